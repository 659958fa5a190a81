package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// smallRecipe makes the image of two files instead of a Debian.
func smallRecipe() recipe {
	r := newRecipe()
	r.Removed = []string{"etc/old"}
	return r
}

// smallBase is what stands in for the Debian.
func smallBase(t *testing.T) v1.Layer {
	t.Helper()
	r := recipe{Added: map[string]string{"etc/old": "old", "etc/kept": "kept"}}
	layer, err := r.change()
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func smallImage(t *testing.T) v1.Image {
	t.Helper()
	r := smallRecipe()
	change, err := r.change()
	if err != nil {
		t.Fatal(err)
	}
	img, err := r.image(smallBase(t), change)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestSecondLayerRemovesAndAdds(t *testing.T) {
	t.Parallel()
	flat := mutate.Extract(smallImage(t))
	defer func() { _ = flat.Close() }()
	var got []string
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.Name)
	}
	want := []string{"dev", "etc/demo-image", "etc/kept"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in the flattened image (-want +got):\n%s", diff)
	}
}

func TestSameRecipeIsSameDigest(t *testing.T) {
	t.Parallel()
	if first, second := digest(t, smallImage(t)), digest(t, smallImage(t)); first != second {
		t.Errorf("digests %s and %s differ", first, second)
	}
}

func TestServedImageIsTheKeptOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, ready := filepath.Join(dir, "kept"), filepath.Join(dir, "ready")
	index, err := layout.Write(kept, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	want := smallImage(t)
	if err := index.AppendImage(want); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server{listen: "127.0.0.1:0", readyFile: ready, layout: kept, out: io.Discard}.run(ctx)
	}()
	ref, err := name.NewTag(awaitFile(t, ready), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if gotDigest, wantDigest := digest(t, got), digest(t, want); gotDigest != wantDigest {
		t.Errorf("pulled %s, kept %s", gotDigest, wantDigest)
	}
	if err := tarball.Write(ref, got, io.Discard); err != nil {
		t.Errorf("pull the layers: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run after the end of its context: %v", err)
	}
}

func digest(t *testing.T, img v1.Image) v1.Hash {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// awaitFile returns the first line of a file that another goroutine writes.
func awaitFile(t *testing.T, path string) string {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-ticker.C {
		content, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(content))
		}
	}
	t.Fatalf("%s has not appeared", path)
	return ""
}
