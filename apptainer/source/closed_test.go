package source_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// Each layer of a layout is a file, which may be closed.
func TestImageIsClosedIfAnyOfItsFilesIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", "1")))
	refs := imagetest.Everywhere(t, dir, imagetest.Image(t, v1.Config{}, layer))
	digest, err := layer.Digest()
	must(t, err)
	files := map[string]string{"layout": "layout/blobs/sha256/" + digest.Hex}
	for name, ref := range refs {
		if file, ok := strings.CutPrefix(ref, "docker-archive:"+dir+"/"); ok {
			files[name], _, _ = strings.Cut(file, ":")
		}
	}
	files["layout archive"] = "layout.tar"
	registry := local(dir)
	registry.Closed = func(f *os.File) bool {
		info, err := f.Stat()
		return err != nil || info.Mode()&0o004 == 0
	}
	setModes(t, dir, 0o644)
	for name, ref := range refs {
		img, err := registry.Resolve(t.Context(), imagetest.Reference(t, ref))
		if err != nil || img.Closed {
			t.Errorf("%s: %+v, %v", name, img, err)
		}
		file, ok := files[name]
		if !ok {
			continue
		}
		setModes(t, filepath.Join(dir, file), 0o600)
		if again, err := registry.Refresh(t.Context(), img); err != nil || !again.Closed {
			t.Errorf("%s, once %s is closed: %+v, %v", name, file, again, err)
		}
		if anew, err := registry.Resolve(t.Context(), imagetest.Reference(t, ref)); err != nil || !anew.Closed {
			t.Errorf("%s, when %s is closed: %+v, %v", name, file, anew, err)
		}
		setModes(t, filepath.Join(dir, file), 0o644)
		if again, err := registry.Refresh(t.Context(), img); err != nil || again.Closed {
			t.Errorf("%s, once %s is open again: %+v, %v", name, file, again, err)
		}
	}
}

// setModes sets the mode of the files below a path.
func setModes(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, mode)
	})
	must(t, err)
}
