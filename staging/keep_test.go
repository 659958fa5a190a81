package staging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
)

// nowhere takes an upload and keeps nothing.
type nowhere struct{ staging.Contents }

func (nowhere) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// sent is a file that the server was given.
func (r *results) sent(name string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.server.bundles, run1, name))
	if err != nil {
		r.Fatal(err)
	}
	return string(data)
}

func TestKeptResultsStayAndTheServerGetsTheirListing(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a line of the output\n", 100_000)
	r := left(t, map[string]string{
		"stdout": long, "stderr": "a warning\n", "checkpoints/1.pt": "weights", "log.tmp": "x", "old/a": "y", "new\nline": "", "kept.txt": "its own",
	})
	r.link("checkpoints/1.pt", "latest")
	r.link("/"+run1+"_dependencies/data", "data")
	r.run.Dependencies = []codalab.RunDependency{{Dependency: codalab.Dependency{ChildPath: "data"}}}
	r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"*.tmp", "old"}}
	r.collector.Now = func() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(r.dir, "checkpoints/1.pt"), when, when); err != nil {
		t.Fatal(err)
	}
	kept := r.layout.KeptDir(run1)
	if said := r.mustCollect(spool.ResultsKeep); said != "the listing of 2.0m in 7 entries that stay in "+kept {
		t.Errorf("delivered %q", said)
	}
	want := []string{"checkpoints", "checkpoints/1.pt", "kept.txt", "latest", "new\nline", "stderr", "stdout"}
	if diff := cmp.Diff(want, names(t, kept)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kept.txt", "stderr", "stdout"}, r.uploaded()); diff != "" {
		t.Errorf("uploaded (-want +got):\n%s", diff)
	}
	listing := r.sent("kept.txt")
	for _, line := range []string{
		"# " + kept, "(2100024 bytes): 5 files, 1 directories, 1 links, 0 others", "as of 2026-11-20T10:00:00Z",
		"# of stdout the last 1023k of 2.0m are here",
		"file                   7  2026-01-02T03:04:05Z  checkpoints/1.pt\n", "  checkpoints/\n", "  latest -> checkpoints/1.pt\n", `  "new\nline"` + "\n",
	} {
		if !strings.Contains(listing, line) {
			t.Errorf("the listing lacks %q:\n%s", line, listing)
		}
	}
	if n := strings.Count(listing, "\n"); n != 8+7 {
		t.Errorf("%d lines:\n%s", n, listing)
	}
	if out := r.sent("stdout"); len(out) > 1<<20 || len(out) < 1<<20-100 || !strings.HasSuffix(long, out) || !strings.HasPrefix(out, "a line") || r.sent("stderr") != "a warning\n" {
		t.Errorf("%d bytes of output, %.30q…", len(out), out)
	}
	if err := (spool.Disk{Layout: r.layout}).Release(run1, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, names(t, kept)); diff != "" {
		t.Errorf("after the release (-want +got):\n%s", diff)
	}
	if left := names(t, string(r.layout)); strings.Contains(strings.Join(left, " "), "listing-") || strings.Contains(strings.Join(left, " "), "entries-") {
		t.Errorf("left behind: %q", left)
	}
}

// The bridge may have died between any two steps, and is asked again; also with
// a configuration that says otherwise.
func TestKeepingIsTakenUpWhereItWasLeft(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(r *results) error{
		"at the beginning": func(*results) error { return nil },
		"after the rename": func(r *results) error { return os.Rename(r.dir, r.layout.KeptDir(run1)) },
		"within the removal": func(r *results) error {
			return errors.Join(os.Rename(r.dir, r.layout.KeptDir(run1)), os.Remove(filepath.Join(r.layout.KeptDir(run1), "old/b")))
		},
		"after the listing": func(r *results) error {
			r.server.refuse = errors.New("away")
			if _, err := r.collect(spool.ResultsKeep); !errors.Is(err, r.server.refuse) {
				return err
			}
			r.server.refuse = nil
			return os.MkdirAll(filepath.Join(r.layout.BundleDir(run1), "listing-1"), 0o700)
		},
		"after all of it": func(r *results) error {
			_, err := r.collect(spool.ResultsKeep)
			return err
		},
	} {
		for _, how := range []spool.Results{spool.ResultsKeep, spool.ResultsUpload} {
			if how == spool.ResultsUpload && name == "at the beginning" {
				continue
			}
			r := left(t, map[string]string{"stdout": "o", "a": "a", "old/a": "", "old/b": ""})
			r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"old"}}
			if err := before(r); err != nil {
				t.Fatal(err)
			}
			r.mustCollect(how)
			if diff := cmp.Diff([]string{"a", "stdout"}, names(t, r.layout.KeptDir(run1))); diff != "" {
				t.Errorf("%s, kept (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff([]string{"kept.txt", "stdout"}, r.uploaded()); diff != "" {
				t.Errorf("%s, uploaded (-want +got):\n%s", name, diff)
			}
			if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the run directory is there: %v", name, err)
			}
		}
	}
}

// A server that was put back may have a bundle run once more whose results are
// kept already.
func TestResultsKeptBeforeAreNotOverwritten(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "second"})
	kept := r.layout.KeptDir(run1)
	for _, dir := range []string{kept, kept + ".1"} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "stdout"), []byte(filepath.Base(dir)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r.mustCollect(spool.ResultsKeep)
	for dir, want := range map[string]string{kept: "second", kept + ".1": run1 + ".1", kept + ".2": run1} {
		if got, err := os.ReadFile(filepath.Join(dir, "stdout")); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", dir, got, err, want)
		}
	}
}

// A bridge that was superseded may still be at work beside the next.
func TestResultsAreKeptOnceHoweverManyKeepThem(t *testing.T) {
	t.Parallel()
	for range 20 {
		r := left(t, map[string]string{"stdout": "o", "a/b": "results"})
		var group errgroup.Group
		for range 4 {
			c := &staging.Collector{Contents: nowhere{}, Layout: r.layout, Now: time.Now}
			group.Go(func() error {
				_, err := c.Collect(t.Context(), r.run, r.dir, spool.ResultsKeep, func(string) {})
				var e *staging.Error
				if errors.As(err, &e) && e.Transient() {
					return nil // it is asked again
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		r.mustCollect(spool.ResultsKeep)
		if diff := cmp.Diff([]string{run1, run1 + "/a", run1 + "/a/b", run1 + "/stdout"}, names(t, r.layout.KeptDirs())); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
	}
}

// Where the shared disk is not mounted nobody knows what is kept on it.
func TestNoListingStandsInForResultsOnADiskThatIsAway(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "o", "model": "weights"})
	r.mustCollect(spool.ResultsKeep)
	content, err := cache.Open(t.TempDir(), cache.Options{}) // on a disk of its own
	if err != nil {
		t.Fatal(err)
	}
	s := &staging.Stager{Contents: r.server, Cache: content, Layout: r.layout}
	in := codalab.Dependency{ParentUUID: run1, ChildPath: "in"}
	away := string(r.layout) + "-away"
	if err := errors.Join(os.Rename(string(r.layout), away), os.Mkdir(string(r.layout), 0o700)); err != nil {
		t.Fatal(err)
	}
	source, err := s.Dependency(t.Context(), in)
	var e *staging.Error
	if !errors.As(err, &e) || !e.Transient() || !e.Outage() || !strings.Contains(err.Error(), "find the shared disk") {
		t.Errorf("seen at %q, %v; want an error that passes with the outage", source, err)
	}
	if err := errors.Join(os.Remove(string(r.layout)), os.Rename(away, string(r.layout))); err != nil {
		t.Fatal(err)
	}
	if source, err := s.Dependency(t.Context(), in); err != nil || source != r.layout.KeptDir(run1) {
		t.Errorf("seen at %q, %v", source, err)
	}
}

func TestNoListingStandsInForResultsThatWereRemoved(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "o", "model": "weights"})
	r.mustCollect(spool.ResultsKeep)
	content, err := cache.Open(r.layout.Cache(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := (spool.Disk{Layout: r.layout}).RemoveKept(spool.Kept{Name: run1}, func() (bool, error) { return false, nil }); err != nil || !removed {
		t.Fatal(removed, err)
	}
	place := filepath.Join(r.server.bundles, run1)
	for name, s := range map[string]*staging.Stager{
		"fetched":  {Contents: r.server, Cache: content, Layout: r.layout},
		"in place": {Contents: r.server, Cache: content, Layout: r.layout, Store: &staging.ServerStore{Dir: r.server.bundles}},
	} {
		dependency := func(path string) (string, error) {
			d := codalab.RunDependency{Dependency: codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"}}
			if name == "in place" {
				d.Location = &place
			}
			return s.RunDependency(t.Context(), d)
		}
		for _, path := range []string{"", "stdout"} {
			source, err := dependency(path)
			var e *staging.Error
			if !errors.As(err, &e) || e.Transient() || !strings.Contains(err.Error(), "have been removed") {
				t.Errorf("%s, %q: seen at %q, %v; want a final error that says why", name, path, source, err)
			}
		}
		if source, err := dependency("kept.txt"); err != nil || source == "" {
			t.Errorf("%s: the listing is seen at %q, %v", name, source, err)
		}
	}
	// A bundle may have a kept.txt of its own.
	if err := os.WriteFile(filepath.Join(place, "kept.txt"), []byte(strings.Repeat("my notes\n", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &staging.Stager{Contents: r.server, Cache: content, Layout: r.layout}
	if source, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ChildPath: "in"}); err != nil {
		t.Errorf("another kept.txt: %q, %v", source, err)
	}
}

func TestPartsOfOneBundleNeedOneQuestionAfterItsListing(t *testing.T) {
	t.Parallel()
	r := left(t, nil)
	content, err := cache.Open(r.layout.Cache(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.server.bundles, run1), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &staging.Stager{Contents: r.server, Cache: content, Layout: r.layout}
	var parts sync.WaitGroup
	for i := range 30 {
		part := fmt.Sprint("part", i)
		if err := os.WriteFile(filepath.Join(r.server.bundles, run1, part), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		parts.Go(func() {
			if _, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ParentPath: part, ChildPath: "in"}); err != nil {
				t.Error(err)
			}
		})
	}
	parts.Wait()
	if n := r.server.listings.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestKeptDependencyIsSeenInPlace(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "o", "checkpoints/1.pt": "weights"})
	r.link("checkpoints", "latest")
	r.link("/etc", "etc")
	r.link("../../../../../../../../etc/passwd", "up")
	r.mustCollect(spool.ResultsKeep)
	content, err := cache.Open(r.layout.Cache(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &staging.Stager{Contents: r.server, Cache: content, Layout: r.layout}
	kept := r.layout.KeptDir(run1)
	for path, want := range map[string]string{
		"": kept, "checkpoints/1.pt": kept + "/checkpoints/1.pt", "latest/1.pt": kept + "/checkpoints/1.pt", "../..": kept, "stdout": kept + "/stdout",
	} {
		source, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"})
		if err != nil || source != want {
			t.Errorf("%q is seen at %q, %v; want %q", path, source, err, want)
		}
	}
	for path, want := range map[string]string{"etc": "leads out", "etc/passwd": "leads out", "up": "leads out", "nosuch": "not found"} {
		source, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"})
		var e *staging.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.Transient() {
			t.Errorf("%q is seen at %q, %v; want an error with %q", path, source, err, want)
		}
	}
	if r.server.fetched.Load() != 0 {
		t.Errorf("%d downloads, want none", r.server.fetched.Load())
	}
	if source, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ParentPath: "kept.txt", ChildPath: "in"}); err != nil || !strings.HasPrefix(source, r.layout.Cache()) {
		t.Errorf("the listing is seen at %q, %v", source, err)
	}
}
