package apptainer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// For example, two owners may convert one image at the same time.
func TestConversionsOfOneImageInOneDirectoryDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))
	img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
	digest, err := layer.Digest()
	must(t, err)
	asked, go1 := make(chan struct{}, 10), make(chan struct{})
	var asks atomic.Int32
	reg.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, digest.Hex) {
			asked <- struct{}{}
			if asks.Add(1) == 1 {
				<-go1
			}
		}
		return false
	}
	c := apptainer.Converter{Source: imagetest.Source(), TempDir: t.TempDir()}
	dir, slow := t.TempDir(), make(chan error, 1)
	go func() { slow <- c.Convert(t.Context(), img, filepath.Join(dir, "slow.sif"), nil) }()
	<-asked
	// A directory in use is kept at any age.
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(c.TempDir, "layers-"+strings.TrimPrefix(img.Digest, "sha256:")), old, old); err != nil {
		t.Error(err)
	}
	if err := c.Convert(t.Context(), img, filepath.Join(dir, "quick.sif"), nil); err != nil {
		t.Error(err)
	}
	close(go1)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	wantLeft(t, c.TempDir, false)
}
