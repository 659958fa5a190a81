package keptimages

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

func TestBarFitsTheTerminalAndSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	const m = 1 << 20
	b := bar{what: "python:3 amd64"}
	half := transfer.Progress{Stage: transfer.Pulling, Done: 60 * m, Total: 120 * m, Rate: 12 * m}
	for width, want := range map[int]string{
		100: "python:3 amd64 [###############...............]  50% pulling 60m of 120m at 12m/s, 5.0s left",
		75:  "python:3 amd64 [######......]  50% pulling 60m of 120m at 12m/s, 5.0s left",
		60:  "python:3 amd64  50% pulling 60m of 120m at 12m/s, 5.0s left",
		20:  "python:3 amd64  50% ",
		0:   "",
	} {
		if got := b.drawing(half, width); got != want || len(got) > width {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
	for want, s := range map[string]transfer.Progress{
		"python:3 amd64 asking ghcr.io":                                         {Stage: transfer.Asking, By: "ghcr.io"},
		"python:3 amd64 waiting for host login2, process 7, which brings it in": {Stage: transfer.Elsewhere, By: "host login2, process 7"},
		"python:3 amd64 pulling 3m":                                             {Stage: transfer.Pulling, Done: 3 * m},
		"python:3 amd64 reading the SIF back and storing it":                    {Stage: transfer.Storing},
	} {
		if got := b.drawing(s, 80); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// Where there is no terminal, a stage has a line at its begin and another each
// ten seconds.
func TestLogsGetALineForEachStage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	now := time.Unix(1_800_000_000, 0)
	b := bar{w: &out, what: "x amd64", now: func() time.Time { return now }}
	for i := range 30 {
		stage := transfer.Pulling
		if i >= 25 {
			stage = transfer.Converting
		}
		b.show(transfer.Progress{Stage: stage, Done: int64(i), Total: 30})
		now = now.Add(time.Second)
	}
	b.clear()
	want := "x amd64: pulling 0 of 30\nx amd64: pulling 10 of 30\nx amd64: pulling 20 of 30\nx amd64: converting 25 of 30\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
