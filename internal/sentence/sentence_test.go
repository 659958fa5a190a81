package sentence_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/sentence"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		" \n":                          "",
		"open /data: no such file":     "Open /data: no such file.",
		"sbatch: error:\n  no account": "Sbatch: error: no account.",
		"élan":                         "Élan.",
		"The disk is full.":            "The disk is full.",
	} {
		if got := sentence.Of(text); got != want {
			t.Errorf("Of(%q) = %q, not %q", text, got, want)
		}
	}
}
