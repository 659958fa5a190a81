package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// server is a registry with one image in it. Others may push more.
type server struct {
	listen    string
	readyFile string
	layout    string
	out       io.Writer
}

// run serves until ctx ends, which is no error.
//
// An OCI layout has its blobs where the registry's disk handler expects them. So the
// registry serves them in place, and publishing the image writes one manifest only.
func (s server) run(ctx context.Context) error {
	img, err := s.image()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("serve image: %w", err)
	}
	srv := &http.Server{
		Handler: registry.New(
			registry.Logger(log.New(io.Discard, "", 0)),
			registry.WithBlobHandler(registry.NewDiskBlobHandler(filepath.Join(s.layout, "blobs"))),
		),
		ReadHeaderTimeout: time.Minute,
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve image: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return srv.Close()
	})
	group.Go(func() error { return s.publish(ctx, listener.Addr().String(), img) })
	return group.Wait()
}

// image reads the kept image.
func (s server) image() (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(s.layout)
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", s.layout, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", s.layout, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("read image %s: %d images instead of one", s.layout, len(manifest.Manifests))
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", s.layout, err)
	}
	return img, nil
}

// publish puts the image into the registry at address, and then reports its name to
// out and in the ready file.
func (s server) publish(ctx context.Context, address string, img v1.Image) error {
	tag, err := name.NewTag(address+"/demo:latest", name.Insecure)
	if err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	if _, err := fmt.Fprintf(s.out, "demoimage: serving %s\n", tag.Name()); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	if s.readyFile == "" {
		return nil
	}
	return atomicfile.Write(s.readyFile, []byte(tag.Name()+"\n"), 0o644)
}
