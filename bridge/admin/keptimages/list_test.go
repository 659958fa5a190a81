package keptimages

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// What is kept names its SIF, whatever else pins it.
func TestListTellsWhoNeedsAnImage(t *testing.T) {
	t.Parallel()
	sif := cache.Key{Kind: "sif", ID: "sha256:" + strings.Repeat("ab", 32) + " amd64 squashfs zstd-1"}
	entries := []cache.Entry{
		{Key: cache.Key{Kind: "bundle", ID: "0x1/"}},
		{Key: sif, Path: "/c/x", Size: 7, Pins: []cache.Holder{"image-00", pins.RowHolder("b1b2b3", "0x"+strings.Repeat("1", 32)), pins.RowHolder("c1c2c3", "0x"+strings.Repeat("2", 32)), pins.PersonHolder("ann")}},
	}
	kept := []images.KeptImage{
		{Reference: "docker.io/library/python:3", Key: sif, Architecture: "amd64", Digest: "sha256:" + strings.Repeat("ab", 32)},
		{Reference: "docker.io/gone/x:1", Key: cache.Key{Kind: "sif", ID: "other"}, Architecture: "amd64", Digest: "sha256:cd"},
	}
	names := func(string, string) []string { return []string{"docker.io/library/python:3", "python:3.12"} }
	list := List(entries, kept, false, names)
	if len(list) != 2 || len(list[0].Bundles) != 2 || len(list[0].Holders) != 1 || !list[1].Missing {
		t.Fatalf("%+v", list)
	}
	want := "" +
		"IMAGE                  DIGEST               ARCH   SIZE     USED  KEPT  BUNDLES\n" +
		"python:3, python:3.12  sha256:abababababab  amd64  7        now   now   2\n" +
		"gone/x:1               sha256:cd            amd64  missing  -     now   0\n"
	if got := ListText(time.Time{}, list); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// What took a login is this user's alone where a group shares the cache, and there
	// another user may have a SIF of the same.
	for _, grouped := range []bool{false, true} {
		kept[0].Private, entries[1].Private = true, grouped
		if list := List(entries, kept, grouped, names); len(list) != 2 || len(list[0].Kept) != 1 {
			t.Errorf("shared by a group: %v: %+v", grouped, list)
		}
	}
	entries[1].Private = false
	if list := List(entries, kept, true, names); len(list) != 3 || len(list[0].Kept) != 0 || !list[1].Missing {
		t.Errorf("%+v", list)
	}
}
