package spelling_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/spelling"
)

func TestNearestWordIsOneThatIsHardlyMisspelt(t *testing.T) {
	t.Parallel()
	words := []string{"cpu", "gpu", "gpu-long", "short"}
	for typed, want := range map[string]string{
		"gpus": "gpu", "gup": "gpu", "gpu": "gpu", "gpu_long": "gpu-long", "shrt": "short", "nothing": "", "": "", "xyz": "",
	} {
		if got := spelling.Nearest(typed, words); got != want {
			t.Errorf("%q is taken for %q, want %q", typed, got, want)
		}
	}
	if got := spelling.Nearest("x", nil); got != "" {
		t.Errorf("%q of no words", got)
	}
}
