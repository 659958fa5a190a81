package apptainer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestPulledImageIsConvertedWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	var away atomic.Bool
	var pulls atomic.Int32
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if isBlob(r) {
			pulls.Add(1)
		}
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away.Load()
	}
	img := oddImage(t, reg)
	c := apptainer.Converter{Source: imagetest.Source()}
	direct := converted(t, c, img)
	dir := filepath.Join(t.TempDir(), "layout")
	if _, err := c.Pull(t.Context(), img, dir, nil); err != nil {
		t.Fatal(err)
	}
	before := pulls.Load()
	pulled, err := c.Pull(t.Context(), img, dir, nil)
	must(t, err)
	if n := pulls.Load() - before; n > 1 { // the configuration
		t.Errorf("%d blobs were pulled again", n)
	}
	away.Store(true)
	path := filepath.Join(t.TempDir(), "x.sif")
	must(t, (apptainer.Converter{Source: source.Source{OpenFile: source.FilesBelow(dir)}}).Convert(t.Context(), pulled, path, nil))
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	if diff := cmp.Diff(unsquash(t, direct, "-lln", direct), unsquash(t, path, "-lln", path)); diff != "" {
		t.Errorf("(-direct +pulled)\n%s", diff)
	}
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	must(t, err)
	for _, blob := range blobs {
		spoiled, err := os.ReadFile(blob)
		must(t, err)
		whole := append([]byte(nil), spoiled...)
		spoiled[len(spoiled)/2] ^= 1
		must(t, os.WriteFile(blob, spoiled, 0o600))
		failedConversion(t, apptainer.Converter{Source: source.Source{OpenFile: source.FilesBelow(dir)}}, pulled, false, "")
		must(t, os.WriteFile(blob, whole, 0o600))
	}
}
