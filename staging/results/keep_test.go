package results

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// nowhere accepts an upload and keeps nothing.
type nowhere struct{}

func (nowhere) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// sent is a file that the server got.
func (r *results) sent(name string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.server.bundles, run1, name))
	must(r.T, err)
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
	must(t, os.Chtimes(filepath.Join(r.runDir, "checkpoints/1.pt"), when, when))
	kept := r.layout.KeptDir(run1)
	if delivered := r.mustCollect(spool.ResultsKeep); delivered != "the listing of 2.0m in 7 entries that stay in "+kept {
		t.Errorf("delivered %q", delivered)
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
	must(t, (spool.Disk{Layout: r.layout, Bridge: "b1"}).Release(run1))
	if diff := cmp.Diff(want, names(t, kept)); diff != "" {
		t.Errorf("after the release (-want +got):\n%s", diff)
	}
	if left := names(t, string(r.layout)); strings.Contains(strings.Join(left, " "), "listing-") || strings.Contains(strings.Join(left, " "), "entries-") {
		t.Errorf("left behind: %q", left)
	}
}

// The bridge may have died between any two steps, and collects again, perhaps with another
// configuration.
func TestKeepingContinuesWhereItEnded(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(r *results) error{
		"at the beginning": func(*results) error { return nil },
		"after the rename": func(r *results) error { return os.Rename(r.runDir, r.layout.KeptDir(run1)) },
		"within the removal": func(r *results) error {
			return errors.Join(os.Rename(r.runDir, r.layout.KeptDir(run1)), os.Remove(filepath.Join(r.layout.KeptDir(run1), "old/b")))
		},
		"after the listing": func(r *results) error {
			r.server.refuse = errors.New("no answer")
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
		for _, mode := range []spool.ResultsMode{spool.ResultsKeep, spool.ResultsUpload} {
			if mode == spool.ResultsUpload && name == "at the beginning" {
				continue
			}
			r := left(t, map[string]string{"stdout": "o", "a": "a", "old/a": "", "old/b": ""})
			r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"old"}}
			must(t, before(r))
			r.mustCollect(mode)
			if diff := cmp.Diff([]string{"a", "stdout"}, names(t, r.layout.KeptDir(run1))); diff != "" {
				t.Errorf("%s, kept (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff([]string{"kept.txt", "stdout"}, r.uploaded()); diff != "" {
				t.Errorf("%s, uploaded (-want +got):\n%s", name, diff)
			}
			if _, err := os.Stat(r.runDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the run directory is there: %v", name, err)
			}
		}
	}
}

// After a restore of its database, a server may run a bundle again although its results are kept.
func TestResultsKeptBeforeAreNotOverwritten(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "second"})
	kept := r.layout.KeptDir(run1)
	for _, dir := range []string{kept, kept + ".1"} {
		must(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "stdout"), []byte(filepath.Base(dir)), 0o600)))
	}
	r.mustCollect(spool.ResultsKeep)
	for dir, want := range map[string]string{kept: "second", kept + ".1": run1 + ".1", kept + ".2": run1} {
		if got, err := os.ReadFile(filepath.Join(dir, "stdout")); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", dir, got, err, want)
		}
	}
}

// A superseded bridge may still run next to the new one.
func TestResultsAreKeptOnceByManyBridges(t *testing.T) {
	t.Parallel()
	for range 20 {
		r := left(t, map[string]string{"stdout": "o", "a/b": "results"})
		var group errgroup.Group
		for range 4 {
			c := &Collector{Contents: nowhere{}, Layout: r.layout, Now: time.Now}
			group.Go(func() error {
				_, err := c.Collect(t.Context(), r.run, r.runDir, spool.ResultsKeep, func(string) {})
				var e *transfer.Error
				if errors.As(err, &e) && e.Transient() {
					return nil // it is called again
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

// The name of kept results contains the bundle's identity, and only that name finds them.
func TestI9ResultsAreKeptUnderTheIdentity(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"model": "weights"})
	r.run.OwnerID, r.run.Metadata = "1", codalab.Metadata{"created": int64(100)}
	kept := r.layout.KeptDir(run1 + "-" + r.run.Identity().Digest())
	r.mustCollect(spool.ResultsKeep)
	part := codalab.Target{BundleUUID: run1, Subpath: "model"}
	if path, found, err := FindKeptResults(r.layout, "in", r.run.Identity(), part); !found || err != nil || path != filepath.Join(kept, "model") {
		t.Errorf("found %t at %q, %v", found, path, err)
	}
	root, err := r.collector.Open(r.run, r.runDir)
	must(t, err)
	must(t, root.Close())
	listing := func() (string, error) { return r.sent("kept.txt"), nil }
	must(t, CheckListing(r.layout, r.run.Identity(), part, listing))
	other := r.run.Identity()
	other.OwnerID = "2"
	if err := CheckListing(r.layout, other, part, listing); !errors.Is(err, ErrRemoved) {
		t.Errorf("another bundle of the UUID gets the listing of the first one's results: %v", err)
	}
}

// It runs as an ordinary user, because root may write everywhere.
func TestKeptResultsWaitForADirectoryOfRecordsThatTheHostClosed(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	r := left(t, map[string]string{"stdout": "x"})
	records := r.layout.BundleDir(run1)
	must(t, errors.Join(os.MkdirAll(records, 0o700), os.Chmod(records, 0o500)))
	_, err := r.collect(spool.ResultsKeep)
	must(t, os.Chmod(records, 0o700))
	wantError(t, err, "write listing", true)
	r.mustCollect(spool.ResultsKeep)
}
