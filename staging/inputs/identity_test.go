package inputs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// A private bundle was deleted, and another user made another one with its UUID. A run that depends
// on it gets the new one's contents, not those of the first in the cache.
func TestI9CachedInputIsNotServedToTheNextBundleOfItsUUID(t *testing.T) {
	t.Parallel()
	server := &directoryServer{bundles: t.TempDir()}
	write(t, server.bundles, map[string]string{run1 + "/d/f": "ann's secret"})
	content, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	must(t, err)
	now := codalab.Identity{UUID: run1, OwnerID: "1", Created: 100}
	s := &Dependencies{
		Contents: server, Cache: content, AtOnce: 1,
		Identity: func(context.Context, string) (codalab.Identity, error) { return now, nil },
	}
	in := codalab.Dependency{ParentUUID: run1, ChildPath: "in"}
	first, err := stageOne(t, s, in)
	must(t, err)
	if again, err := stageOne(t, s, in); err != nil || again != first {
		t.Errorf("the same bundle's contents are at %s, then at %s, %v", first, again, err)
	}
	must(t, os.RemoveAll(filepath.Join(server.bundles, run1)))
	write(t, server.bundles, map[string]string{run1 + "/d/f": "bob's"})
	for name, other := range map[string]codalab.Identity{
		"of another owner": {UUID: run1, OwnerID: "2", Created: 100},
		"made later":       {UUID: run1, OwnerID: "1", Created: 101},
	} {
		now = other
		source, err := stageOne(t, s, in)
		must(t, err)
		if text, err := os.ReadFile(filepath.Join(source, "d/f")); err != nil || string(text) != "bob's" {
			t.Errorf("%s: the run gets %q, %v", name, text, err)
		}
	}
}

// The same holds for results that were kept on the shared disk.
func TestI9KeptResultsAreNotServedToTheNextBundleOfTheirUUID(t *testing.T) {
	t.Parallel()
	layout := spool.Layout(t.TempDir())
	ann := codalab.RunBundle{UUID: run1, OwnerID: "1", Command: "true", Metadata: codalab.Metadata{"created": int64(100)}}
	part := codalab.Target{BundleUUID: run1, Subpath: "f"}
	found := func(of codalab.Identity) bool {
		_, ok, err := results.FindKeptResults(layout, "in", of, part)
		must(t, err)
		return ok
	}
	bob, later := ann.Identity(), ann.Identity()
	bob.OwnerID, later.Created = "2", 1<<40
	name := run1 + "-" + ann.Identity().Digest()
	write(t, layout.KeptDirs(), map[string]string{name + "/f": "ann's"})
	if !found(ann.Identity()) || found(bob) || found(later) {
		t.Errorf("found for its own bundle %t, another owner's %t, one made later %t", found(ann.Identity()), found(bob), found(later))
	}
}
