package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// playPart is what this program does as a part of area images: serve an image,
// convert it, or read it as the floor of what a conversion costs.
func playPart(ctx context.Context, part string, args []string, out io.Writer) error {
	parts := map[string]struct {
		args int
		play func(context.Context, []string, io.Writer) error
	}{
		"serve":   {1, servePart},
		"convert": {3, convertPart},
		"floor":   {2, floorPart},
		"start":   {4, startPart},
	}
	p, ok := parts[part]
	if !ok || len(args) != p.args {
		return fmt.Errorf("no part %q with %d arguments", part, len(args))
	}
	return p.play(ctx, args, out)
}

// onDisk serves the blobs of OCI layouts. Unlike the library's own it does not
// read a blob to say how long it is: its client checks it anyway.
type onDisk struct{ dir string }

func (d onDisk) path(h v1.Hash) string { return filepath.Join(d.dir, "blobs", h.Algorithm, h.Hex) }

// Stat says how long a blob is.
func (d onDisk) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(d.path(h))
	if err != nil {
		return 0, registry.ErrNotFound
	}
	return info.Size(), nil
}

// Get opens a blob.
func (d onDisk) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	return os.Open(d.path(h))
}

// servePart serves the OCI layout in a directory until it is ended, and prints
// the image's name.
func servePart(ctx context.Context, args []string, out io.Writer) error {
	index, err := layout.ImageIndexFromPath(args[0])
	if err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: registry.New(registry.Logger(quiet()), registry.WithBlobHandler(onDisk{args[0]}))}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ref, err := name.ParseReference(l.Addr().String() + "/bench/" + filepath.Base(args[0]) + ":1")
	if err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	if _, err := fmt.Fprintln(out, ref); err != nil {
		return fmt.Errorf("serve an image: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve an image: %w", err)
	}
	return nil
}

// convertPart converts an image to a SIF, with its layers in a directory.
func convertPart(ctx context.Context, args []string, _ io.Writer) error {
	ref, err := source.ParseReference(args[0])
	if err != nil {
		return err
	}
	img, err := source.Source{}.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	return apptainer.Converter{TempDir: args[2]}.Convert(ctx, img, args[1], nil)
}

// floorPart reads an image as anyone has to who makes use of it: its layers,
// three at a time, checked against their digests by the registry's client, and
// unzipped; by the libraries that a conversion uses. With "diffids" it takes the
// digests of what they unpack to, too.
func floorPart(ctx context.Context, args []string, _ io.Writer) error {
	ref, err := name.ParseReference(args[0])
	if err != nil {
		return fmt.Errorf("read an image: %w", err)
	}
	img, err := remote.Image(ref, remote.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("read an image: %w", err)
	}
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("read an image: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(3)
	for _, l := range layers {
		group.Go(func() error {
			blob, err := l.Compressed()
			if err != nil {
				return fmt.Errorf("read a layer: %w", err)
			}
			defer blob.Close() //nolint:errcheck // only read
			buffered := bufio.NewReaderSize(blob, 256<<10)
			content, err := gzip.NewReader(buffered)
			if err != nil {
				return fmt.Errorf("read a layer: %w", err)
			}
			to := io.Discard
			if args[1] == "diffids" {
				to = sha256.New()
			}
			_, err = io.Copy(to, content)
			rest, restErr := io.Copy(io.Discard, buffered)
			if rest > 0 {
				err = errors.Join(err, errors.New("read a layer: more than one stream"))
			}
			return errors.Join(err, restErr)
		})
	}
	return group.Wait()
}

// normal gives numbers of a normal distribution as little-endian float32.
type normal struct {
	random *rand.Rand
	buf    []byte
}

// Read fills p.
func (n *normal) Read(p []byte) (int, error) {
	for len(n.buf) < len(p) {
		n.buf = binary.LittleEndian.AppendUint32(n.buf, math.Float32bits(float32(n.random.NormFloat64()*0.02)))
	}
	copied := copy(p, n.buf)
	n.buf = append(n.buf[:0], n.buf[copied:]...)
	return copied, nil
}

// imageName is what servePart printed.
func imageName(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("start the registry: %w", err)
	}
	return strings.TrimSpace(line), nil
}
