package results

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

func (r *results) sparse(name string, size int64) {
	r.Helper()
	must(r.T, os.WriteFile(filepath.Join(r.runDir, name), []byte("x"), 0o600))
	must(r.T, os.Truncate(filepath.Join(r.runDir, name), size))
}

// many returns n files in a few directories.
func many(n int) map[string]string {
	files := map[string]string{"stdout": "x"}
	for i := range n - 1 {
		files[fmt.Sprintf("d%d/%d", i%3, i)] = ""
	}
	return files
}

func TestSmallResultsAreKnownByBytesAndEntries(t *testing.T) {
	t.Parallel()
	small := func(r *results, mode spool.ResultsMode) bool {
		return r.collector.Measure(t.Context(), r.run, r.runDir, mode).Small
	}
	for name, c := range map[string]struct {
		files map[string]string
		alter func(r *results)
		want  map[spool.ResultsMode]bool
	}{
		"a few":                              {files: many(3), want: map[spool.ResultsMode]bool{spool.ResultsUpload: true, spool.ResultsKeep: true}},
		"none":                               {alter: func(r *results) { must(r.T, os.RemoveAll(r.runDir)) }, want: map[spool.ResultsMode]bool{spool.ResultsUpload: true, spool.ResultsKeep: true}},
		"as many entries as small ones have": {files: many(smallEntries - 3), want: map[spool.ResultsMode]bool{spool.ResultsUpload: true, spool.ResultsKeep: true}},
		"one entry more":                     {files: many(smallEntries - 2)},
		"a large file, of which the listing is sent where results stay": {
			alter: func(r *results) { r.sparse("model", smallBytes+1) }, want: map[spool.ResultsMode]bool{spool.ResultsKeep: true},
		},
		"a large file that is excluded": {
			alter: func(r *results) {
				r.sparse("model", smallBytes+1)
				r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"model"}}
			},
			want: map[spool.ResultsMode]bool{spool.ResultsUpload: true, spool.ResultsKeep: true},
		},
		"kept before, and large": {
			files: many(3), alter: func(r *results) {
				r.sparse("model", smallBytes+1)
				must(r.T, os.Rename(r.runDir, r.layout.KeptDir(run1)))
			},
			want: map[spool.ResultsMode]bool{spool.ResultsUpload: true, spool.ResultsKeep: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := left(t, c.files)
			if c.alter != nil {
				c.alter(r)
			}
			for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
				if got := small(r, mode); got != c.want[mode] {
					t.Errorf("%s: small is %v", mode, got)
				}
			}
		})
	}
}

// TestSparseResultsAreRefusedBeforeTheyAreRead: a file of 10 TB that takes one block on the disk would
// be read and sent for hours, and fill the server's disk.
func TestSparseResultsAreRefusedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	const size = 10 << 40
	r := left(t, map[string]string{"stdout": "x"})
	r.sparse("image.raw", size)
	for name, most := range map[string]int64{"the disk's size": 0, "the site's bound": 1 << 30} {
		r.collector.MaxBytes = func() int64 { return most }
		_, err := r.collect(spool.ResultsUpload)
		if err == nil || !strings.Contains(err.Error(), "with image.raw they have more than") || !strings.Contains(err.Error(), tarstream.ErrTooLarge.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		if transient, ok := err.(interface{ Transient() bool }); !ok || transient.Transient() {
			t.Errorf("%s: %v is tried again", name, err)
		}
	}
	if r.collector.Measure(t.Context(), r.run, r.runDir, spool.ResultsUpload).Small {
		t.Error("they count as small")
	}
	if entries, err := os.ReadDir(r.server.bundles); err != nil || len(entries) > 0 {
		t.Errorf("sent %v, %v", entries, err)
	}
	r.collector.MaxBytes = nil
	must(t, os.Remove(filepath.Join(r.runDir, "image.raw")))
	r.mustCollect(spool.ResultsUpload)
}
