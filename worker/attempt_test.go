package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestImageThatHasChangedIsNotRun(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	path, at := filepath.Join(dir, "x.sif"), time.Unix(1_700_000_000, 123_000_000)
	write := func(text string, when time.Time) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(text), 0o600))
		must(t, os.Chtimes(path, when, when))
	}
	in := spool.Inputs{SIF: path, SIFFile: &spool.SIFFile{Size: 3, Modified: at.UnixNano()}}
	check := func(want string) {
		t.Helper()
		f, err := openSIF(in)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		_ = f.Close()
	}
	write("sif", at)
	check("")
	write("sif", at.Add(time.Millisecond))
	check("has changed")
	write("longer", at)
	check("has changed")
	must(t, os.Rename(path, path+".moved"))
	check("no such file")
	must(t, os.Symlink(path+".moved", path))
	check("symbolic link")
	in.SIFFile = nil // the bridge's own
	check("")
}
