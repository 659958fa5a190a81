package nfstest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// twoHosts is a server with two clients, who believe for long what they have seen.
func twoHosts(t *testing.T) (disk, a, b string) {
	t.Helper()
	disk, a, b = t.TempDir(), t.TempDir(), t.TempDir()
	const long = 30 * time.Second
	s := Serve(t, disk, Options{Seed: 1, AcregMin: long, AcregMax: long, AcdirMin: long, AcdirMax: long})
	s.Mount(a)
	s.Mount(b)
	return disk, a, b
}

func openOn(t *testing.T, dir, host string, o cache.Options) *cache.Cache {
	t.Helper()
	o.Host = host
	c, err := cache.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func found(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A host that believes in a record's name still takes it for restored, while its
// only name is the one that is to be dropped.
func TestRecordKeepsAName(t *testing.T) {
	t.Parallel()
	t.Run("of one", func(t *testing.T) { t.Parallel(); keepsAName(t, false) })
	// Its publisher was killed between its link and the removal of its temporary.
	t.Run("beside a temporary", func(t *testing.T) { t.Parallel(); keepsAName(t, true) })
}

func keepsAName(t *testing.T, temporary bool) {
	t.Helper()
	disk, a, b := twoHosts(t)
	o := cache.Options{Settle: time.Minute}
	onA, onB := openOn(t, a, "a", o), openOn(t, b, "b", o)
	w := cache.Want{Key: cache.Key{Kind: "bundle", ID: "k"}}
	fill := func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("content"), 0o600) }
	for _, c := range []*cache.Cache{onB, onA} { // a has seen the name
		if _, err := c.Get(t.Context(), w, fill); err != nil {
			t.Fatal(err)
		}
	}
	record := found(t, filepath.Join(disk, "bundle/*/*.json"))[0]
	if temporary {
		if err := os.Link(record, filepath.Join(filepath.Dir(record), "."+filepath.Base(record)+".tmp-1")); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := onB.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil || len(done.Retired) != 1 {
		t.Fatal(done, err)
	}
	out := found(t, filepath.Join(disk, "retired/*"))
	if len(out) != 1 {
		t.Fatal(out)
	}
	// Somebody on b wants it, and dies when it has renamed it.
	name := filepath.Join(b, "retired", filepath.Base(out[0]))
	if err := os.Rename(name, name+".restored"); err != nil {
		t.Fatal(err)
	}
	w.Holder = "row-1"
	if _, err := onA.Get(t.Context(), w, fill); err != nil {
		t.Fatal(err)
	}
	if _, err := onA.Trim(t.Context(), cache.TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(found(t, filepath.Join(disk, "bundle/*/*.json")))+len(found(t, filepath.Join(disk, "retired/*.restored"))) == 0 {
		t.Error("the record of a pinned content has no name any more")
	}
}

// A file that is open on the trimmer's own host is renamed instead of removed,
// and its directory is not empty. (Not beside other tests: where one of them starts
// a program, that closes a copy of the reader's descriptor, and the client waits
// for the end of what it takes for closed.)
func TestOpenFileStandsInNobodysWay(t *testing.T) { //nolint:paralleltest // see above
	disk, a, _ := twoHosts(t)
	c := openOn(t, a, "a", cache.Options{Settle: -1, Size: 10_000})
	path, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: "read"}}, func(_ context.Context, tmp string) error {
		return errors.Join(os.Mkdir(tmp, 0o700), os.WriteFile(filepath.Join(tmp, "f"), make([]byte, 3000), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(filepath.Join(path, "f"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"b", "c", "d", "e", "f"} {
		w := cache.Want{Key: cache.Key{Kind: "bundle", ID: id}, Size: 3000}
		if _, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, make([]byte, 3000), 0o600) }); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), cache.TrimOptions{All: true}); err != nil {
		t.Error(err)
	}
	if left := found(t, filepath.Join(disk, "bundle/*/.trash-*")); len(left) > 0 {
		t.Errorf("when the reader has ended there are %v", left)
	}
}
