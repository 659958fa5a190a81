package sbatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A refusal of a job, and the end of one that has ended, are answers of Slurm; an error without an answer is a failure.
func TestWatchTellsAnswersFromFailures(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"sbatch":  `case "$*" in *--partition=nope*) echo "sbatch: error: invalid partition specified: nope" >&2; echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2; exit 1 ;; esac; echo 7`,
		"scancel": `echo "scancel: error: Kill job error on job id 7: Invalid job id specified" >&2; exit 1`,
		"squeue":  `echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1`,
		"sacct":   ``,
	} {
		testenv.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	var seen []string
	c := sbatch.Client{Bin: bin, Watch: func(name string) func(bool) {
		return func(answered bool) { seen = append(seen, fmt.Sprint(name, " ", answered)) }
	}}
	ctx := t.Context()
	_, _ = c.Submit(ctx, sbatch.Request{Script: "#!/bin/sh\n"})
	_, _ = c.Submit(ctx, sbatch.Request{Partition: "nope", Script: "#!/bin/sh\n"})
	_ = c.Try(ctx, sbatch.Request{Partition: "nope", Script: "#!/bin/sh\n"})
	_ = c.Cancel(ctx, "", 7)
	_, _ = c.Observe(ctx, time.Now())
	_, _ = c.QueryAccounting(ctx, time.Now(), sbatch.Which{IDs: []sbatch.JobID{7}})
	_, _ = c.Settings(ctx)
	want := []string{"sbatch true", "sbatch true", "sbatch --test-only true", "scancel true", "squeue false", "sacct true", "scontrol false"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q\nwant %q", seen, want)
	}
}
