package engineimages

import (
	"fmt"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// The output is that of a client of Docker 20.10 without a terminal.
func TestLayersCountWhenTheyAreThere(t *testing.T) {
	t.Parallel()
	var pulled transfer.Transfer
	p := newProgress(&pulled, map[string]int64{"b4fb1c4f1fba": 100, "0a1b2c3d4e5f": 20, "ffffffffffff": 3})
	for _, step := range []struct {
		output string
		done   int64
	}{
		{"1: Pulling from a/b\nb4fb1c4f1fba: Pulling fs layer\n0a1b2c3d4e5f: Already exists\n", 20},
		{"b4fb1c4f1fba: Verifying Checksum\nb4fb1c4f1fba: Down", 20},
		{"load complete\n", 120},
		{"b4fb1c4f1fba: Pull complete\nffffffffffff: Pull complete\nDigest: sha256:00\nStatus: Downloaded newer image for a/b:1\n", 123},
	} {
		_, _ = fmt.Fprint(p, step.output) // it never fails
		if got := pulled.Progress(time.Unix(0, 0)); got.Done != step.done || got.Total != 123 {
			t.Errorf("after %q: %d of %d", step.output, got.Done, got.Total)
		}
	}
}
