package testsite

import (
	"archive/tar"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// smallImage is the demo's image with two files in place of the Debian.
func smallImage(t *testing.T) v1.Image {
	t.Helper()
	base, err := recipe{Added: map[string]string{"etc/old": "old", "etc/kept": "kept"}}.change()
	if err != nil {
		t.Fatal(err)
	}
	r := newRecipe()
	r.Removed = []string{"etc/old"}
	img, err := r.image(base)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestDemoImagesSecondLayerRemovesAndAdds(t *testing.T) {
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
	if diff := cmp.Diff([]string{"dev", "etc/demo-image", "etc/kept"}, got); diff != "" {
		t.Errorf("names in the flattened image (-want +got):\n%s", diff)
	}
}

// The digest of the served image is also that of another image of the same recipe.
func TestServedImageIsTheRecipes(t *testing.T) {
	t.Parallel()
	served, stop, err := ServeImage(t.Context(), registry.NewInMemoryBlobHandler(), "demo:latest", smallImage(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ref, err := name.NewTag(served, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	gotDigest, err := got.Digest()
	wantDigest, wantErr := smallImage(t).Digest()
	if err := errors.Join(err, wantErr, tarball.Write(ref, got, io.Discard)); err != nil || gotDigest != wantDigest {
		t.Errorf("pulled %s, want %s: %v", gotDigest, wantDigest, err)
	}
}
