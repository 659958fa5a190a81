package results

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// directoryServer takes contents as a server does, to directories.
type directoryServer struct {
	bundles string
	// refuse is the answer to uploads; nil takes them.
	refuse error
}

func (s *directoryServer) UploadContents(ctx context.Context, uuid string, _ client.UploadOptions, body io.Reader) error {
	if s.refuse != nil {
		return s.refuse
	}
	dir := filepath.Join(s.bundles, uuid)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	_, err = tarstream.Unpack(ctx, body, root, tarstream.Limits{})
	return errors.Join(err, root.Close())
}

// plant makes files, and symbolic links for texts that begin with "->".
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, ok := strings.CutPrefix(files[name], "->"); ok {
			must(t, os.Symlink(target, at))
		} else {
			must(t, os.WriteFile(at, []byte(files[name]), 0o644))
		}
	}
}

// planted is the reverse of plant.
func planted(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(at, dir+"/")
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(at)
			files[name] = "->" + target
			return err
		}
		data, err := os.ReadFile(at)
		files[name] = string(data)
		return err
	}))
	return files
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	plant(t, dir, files)
	return dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			found[strings.TrimPrefix(path, dir+"/")] = true
		}
		return err
	})
	must(t, err)
	return slices.Sorted(maps.Keys(found))
}

// wantError checks for a *transfer.Error with these words that is or is not transient.
func wantError(t *testing.T, err error, words string, transient bool) {
	t.Helper()
	var e *transfer.Error
	if !errors.As(err, &e) || e.Transient() != transient || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want one with %q, transient %v", err, words, transient)
	}
}

var must = testenv.Must
