package apptainer_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// hello serves an image from a registry on this host, and returns its name.
func hello() (image string, stop func()) {
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	layer, err := random.Layer(1<<10, types.OCILayer)
	if err != nil {
		log.Fatal(err)
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer})
	if err != nil {
		log.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		log.Fatal(err)
	}
	config.OS, config.Architecture = "linux", runtime.GOARCH
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		log.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/lab/hello:v1")
	if err != nil {
		log.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		log.Fatal(err)
	}
	return ref.String(), server.Close
}

// A program resolves a reference, and converts the image to a SIF. That needs mksquashfs or tar2sqfs.
func ExampleConverter_Convert() {
	image, stop := hello() // or "debian:12-slim", from Docker Hub
	defer stop()
	dir, err := os.MkdirTemp("", "sif")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	var converter apptainer.Converter
	converter.Source.Private = outbound.Places{Hosts: []string{"127.0.0.1"}} // for hello; Docker Hub needs no entry
	ref, err := source.ParseReference(image)
	if err != nil {
		log.Fatal(err)
	}
	resolved, err := converter.Source.Resolve(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	sif := filepath.Join(dir, "hello.sif")
	if err := converter.Convert(ctx, resolved, sif, func(p apptainer.Progress) { fmt.Println(p.Stage, p.Done, "of", p.Total) }); err != nil {
		log.Fatal(err)
	}
	fmt.Println(resolved.PinnedReference(), "is in", sif)
}

// An example with an Output would fail where no program can write a SIF.
func TestTheExampleOfConvertRuns(t *testing.T) {
	t.Parallel()
	testenv.ImageTool(t, "mksquashfs")
	ExampleConverter_Convert()
}

// Pull needs no program: it writes the image as an OCI layout, which another host converts.
func ExampleConverter_Pull() {
	image, stop := hello()
	defer stop()
	dir, err := os.MkdirTemp("", "layout")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	var converter apptainer.Converter
	converter.Source.Private = outbound.Places{Hosts: []string{"127.0.0.1"}} // for hello; Docker Hub needs no entry
	ref, err := source.ParseReference(image)
	if err != nil {
		log.Fatal(err)
	}
	resolved, err := converter.Source.Resolve(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	pulled, err := converter.Pull(ctx, resolved, dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a layout:", pulled.Reference.Kind() == source.OCILayout)
	fmt.Println("the same image:", pulled.Digest == resolved.Digest)
	files, err := os.ReadDir(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range files {
		fmt.Println(file.Name())
	}

	// Output:
	// a layout: true
	// the same image: true
	// blobs
	// index.json
	// oci-layout
}
