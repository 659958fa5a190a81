package testsite

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Quiet is a log that keeps nothing.
func Quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// Serve serves on a free loopback address until stop is called.
func Serve(ctx context.Context, h http.Handler) (address string, stop func(), err error) {
	return serveAt(ctx, anyPort, h)
}

// anyPort is a free address that nodes do not reach.
const anyPort = "127.0.0.1:0"

func serveAt(ctx context.Context, on string, h http.Handler) (address string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", on)
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: Quiet()}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // it ends with stop
	return l.Addr().String(), func() {
		_ = s.Close() // nothing is lost
		serving.Wait()
	}, nil
}

// ServeImage serves an image from a registry of its own until stop is called, and returns
// its name. The registry keeps blobs in blobs. It gets those of the image that it lacks.
func ServeImage(ctx context.Context, blobs registry.BlobHandler, repository string, img v1.Image) (image string, stop func(), err error) {
	return ServeImageAt(ctx, anyPort, blobs, repository, img)
}

// ServeImageAt is ServeImage on another address of this host, with its port.
func ServeImageAt(ctx context.Context, on string, blobs registry.BlobHandler, repository string, img v1.Image) (image string, stop func(), err error) {
	address, stop, err := serveAt(ctx, on, registry.New(registry.Logger(Quiet()), registry.WithBlobHandler(blobs)))
	if err != nil {
		return "", nil, err
	}
	tag, err := name.NewTag(address+"/"+repository, name.Insecure)
	if err == nil {
		err = remote.Write(tag, img, remote.WithContext(ctx))
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return tag.Name(), stop, nil
}

// OpenImage returns the only image of an OCI layout.
func OpenImage(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	return index.Image(manifest.Manifests[0].Digest)
}

// serveImage serves the demo's image; the first call makes it. An OCI layout has its blobs
// in the paths that the registry's disk handler expects, so they are served in place.
func (s *Site) serveImage(ctx context.Context) error {
	kept, err := newRecipe().ensureImage(ctx, filepath.Join(Base, "demoimage"), s.log)
	if err != nil {
		return err
	}
	img, err := OpenImage(kept)
	if err != nil {
		return err
	}
	image, stop, err := ServeImage(ctx, registry.NewDiskBlobHandler(filepath.Join(kept, "blobs")), "demo:latest", img)
	if err != nil {
		return err
	}
	s.Image = image
	s.onClose(func() error { stop(); return nil })
	return nil
}
