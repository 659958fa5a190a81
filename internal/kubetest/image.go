package kubetest

import (
	"context"
	"crypto/rand"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Load brings an image to all nodes until the test's end, and returns its name.
func Load(tb testing.TB, image v1.Image) string {
	tb.Helper()
	loaded := load(tb, image)
	script := testenv.Kubernetes(tb)
	tb.Cleanup(func() { unload(script, loaded) })
	return loaded
}

// Image brings an image with these files to all nodes until the test's end, and returns its name.
func Image(tb testing.TB, files ...imagetest.File) string {
	tb.Helper()
	config := v1.Config{Env: []string{"PATH=/usr/bin:/bin"}}
	return Load(tb, imagetest.Image(tb, config, imagetest.GzipLayer(tb, imagetest.TarStream(tb, files...))))
}

func load(tb testing.TB, image v1.Image) string {
	tb.Helper()
	tag, err := name.NewTag("cl-slurm.example/test:" + strings.ToLower(rand.Text()))
	testenv.Must(tb, err)
	archive := filepath.Join(tb.TempDir(), "image.tar")
	testenv.Must(tb, tarball.WriteToFile(archive, tag, image))
	if said, err := exec.CommandContext(tb.Context(), testenv.Kubernetes(tb), "load", archive).CombinedOutput(); err != nil {
		tb.Fatalf("load the image: %v: %s", err, said)
	}
	return tag.Name()
}

func unload(script, image string) {
	_ = exec.CommandContext(context.Background(), script, "unload", image).Run() // the kubelet removes what is left
}

// Shared is an image for all tests of a process. TestMain removes it.
type Shared struct {
	once         sync.Once
	name, script string
}

// Name brings the image to all nodes once, and returns its name.
func (s *Shared) Name(tb testing.TB, image func() v1.Image) string {
	tb.Helper()
	s.once.Do(func() { s.name, s.script = load(tb, image()), testenv.Kubernetes(tb) })
	if s.name == "" {
		tb.Fatal("the image could not be loaded: see the first test that needs it")
	}
	return s.name
}

// Remove removes the image, if it was brought.
func (s *Shared) Remove() {
	if s.name != "" {
		unload(s.script, s.name)
	}
}
