package results

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
	"github.com/cl-slurm/cl-slurm/spool"
)

// makeDeep makes nested directories, with a file in the lowest one.
func makeDeep(t *testing.T, dir, name string, levels int) {
	t.Helper()
	at, err := treewalk.OpenDir(unix.AT_FDCWD, dir)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, name, 0o700))
		below, err := treewalk.OpenDir(at, name)
		must(t, err)
		must(t, unix.Close(at))
		at = below
	}
	must(t, os.WriteFile(fmt.Sprintf("/proc/self/fd/%d/result", at), []byte("7 bytes"), 0o600))
	must(t, treewalk.Chmod(at, "result", 0o4700))
	must(t, unix.Close(at))
}

// Each level takes an open directory or a step of each path below it.
func TestDeepResultsAreCollected(t *testing.T) {
	t.Parallel()
	const levels = 1500
	for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := left(t, map[string]string{"stdout": "x"})
			makeDeep(t, r.runDir, "d", levels)
			r.mustCollect(mode)
			if mode == spool.ResultsUpload {
				if got := r.sent(strings.Repeat("d/", levels) + "result"); got != "7 bytes" {
					t.Errorf("sent %q", got)
				}
				return
			}
			if want := "  " + strings.Repeat("d/", levels) + "result\n"; !strings.Contains(r.sent(ListingName), want) {
				t.Error("the listing lacks the result")
			}
			info, err := os.Stat(filepath.Join(r.layout.KeptDir(run1), strings.Repeat("d/", levels)+"result"))
			if must(t, err); info.Mode() != 0o700 {
				t.Errorf("kept with mode %v", info.Mode())
			}
		})
	}
}

// The paths of all levels together take the square of the number of levels.
func TestResultsThatAreTooDeepAreRefused(t *testing.T) {
	t.Parallel()
	for mode, want := range map[spool.ResultsMode]string{
		spool.ResultsUpload: `archive is too large: a path of 4095 bytes, where 4093 are the most: "ddd`,
		spool.ResultsKeep:   "archive is too large: directories are nested too deeply, with a path of 16639 bytes, where 16384 are the most: ddd",
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := left(t, map[string]string{"stdout": "x"})
			makeDeep(t, r.runDir, strings.Repeat("d", 255), 70)
			t.Cleanup(func() { must(t, filetree.Remove(string(r.layout))) })
			_, err := r.collect(mode)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		})
	}
}
