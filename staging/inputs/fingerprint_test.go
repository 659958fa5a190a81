package inputs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/sitepath"
)

// tree makes old files.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte("x"), 0o644))
		must(t, os.Chtimes(name, time.Time{}, time.Unix(1e9, 0)))
	}
	return dir
}

func TestFingerprintSeesNamesSizesAndTimesAlone(t *testing.T) {
	t.Parallel()
	digest := func(dir string) string {
		f, err := fingerprint(t.Context(), dir, fingerprintEntries)
		must(t, err)
		return f.Digest
	}
	dir := tree(t, "a", "b/c", "b/d/e")
	same := tree(t, "b/d/e", "b/c", "a")
	first := digest(dir)
	if got := digest(same); got != first {
		t.Error("two trees of the same names, sizes and times differ")
	}
	must(t, os.WriteFile(filepath.Join(same, "a"), []byte("y"), 0o644))
	must(t, os.Chtimes(filepath.Join(same, "a"), time.Time{}, time.Unix(1e9, 0)))
	if digest(same) != first {
		t.Error("it reads files")
	}
	seen := map[string]string{first: "as it was"}
	for what, change := range map[string]func(dir string) error{
		"a name":             func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "A")) },
		"a size":             func(dir string) error { return os.Truncate(filepath.Join(dir, "b/d/e"), 2) },
		"a time":             func(dir string) error { return os.Chtimes(filepath.Join(dir, "b/c"), time.Time{}, time.Unix(1e9, 1)) },
		"a file less":        func(dir string) error { return os.Remove(filepath.Join(dir, "a")) },
		"an empty directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "c"), 0o755) },
		"a symbolic link":    func(dir string) error { return os.Symlink("a", filepath.Join(dir, "l")) },
	} {
		dir := tree(t, "a", "b/c", "b/d/e")
		must(t, change(dir))
		got := digest(dir)
		if other, ok := seen[got]; ok {
			t.Errorf("%s looks like %s", what, other)
		}
		seen[got] = what
	}
}

func TestFingerprintIsBoundedAndComparedAsFarAsItWent(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("%02d/%02d", i/5, i))
	}
	dir := tree(t, names...)
	look := func(stop int64) (cut bool, entries int64) {
		f, err := fingerprint(t.Context(), dir, stop)
		must(t, err)
		return f.Partial, f.Entries
	}
	if cut, n := look(20); !cut || n != 20 {
		t.Errorf("partial %v after %d entries, want 20", cut, n)
	}
	if cut, n := look(48); cut || n != 48 {
		t.Errorf("partial %v after %d entries, want all 48", cut, n)
	}
	whole, err := fingerprint(t.Context(), dir, fingerprintEntries)
	must(t, err)
	half, err := fingerprint(t.Context(), dir, 20)
	must(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	nothing, err := fingerprint(over, dir, fingerprintEntries)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "07/39")))
	shorter, err := fingerprint(t.Context(), dir, reachOf(whole))
	must(t, err)
	again, err := fingerprint(t.Context(), dir, reachOf(half))
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "00/00")))
	other, err := fingerprint(t.Context(), dir, reachOf(half))
	must(t, err)
	for name, c := range map[string]struct{ got, want bool }{
		"whole and shorter":                    {differ(whole, shorter), true},
		"half, changed beyond it":              {differ(half, again), false},
		"half, changed in it":                  {differ(half, other), true},
		"whole and one that was too slow":      {differ(whole, nothing), false},
		"whole and more than can be looked at": {differ(shorter, half), false},
		"nothing and anything":                 {differ(nothing, nothing), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: differ %v", name, c.got)
		}
	}
	if got := outline(half); !strings.HasPrefix(got, "at least 16 files (16 bytes)") {
		t.Errorf("%q", got)
	}
}

func TestVeryDeepTreeIsCutShort(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", fingerprintDepth+20) + "f"
	f, err := fingerprint(t.Context(), tree(t, deep), fingerprintEntries)
	if err != nil || !f.Partial || f.Files != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestFingerprintIsSharedByBundlesThatUseTheSameData(t *testing.T) {
	t.Parallel()
	dir := tree(t, "a")
	place := sitepath.Place{Path: dir, Roots: []string{filepath.Dir(dir)}}
	var clock atomic.Int64 // each reading takes a second
	now := func() time.Time { return time.Unix(clock.Add(1), 0) }
	var l fingerprints
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := l.locate(t.Context(), now, place, fingerprintEntries); err != nil || got.Files != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	must(t, os.Remove(filepath.Join(dir, "a")))
	if got, err := l.locate(t.Context(), func() time.Time { return time.Unix(clock.Load(), 0) }, place, fingerprintEntries); err != nil || got.Files != 1 {
		t.Errorf("asked again at once: %+v, %v", got, err)
	}
	clock.Add(3600)
	if got, err := l.locate(t.Context(), now, place, fingerprintEntries); err != nil || got.Files != 0 {
		t.Errorf("asked again later: %+v, %v", got, err)
	}
	if len(l.recent) != 1 {
		t.Errorf("%d fingerprints are kept", len(l.recent))
	}
}
