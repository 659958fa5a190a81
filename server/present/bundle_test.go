package present_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestCommandLineHasPythonsNumbers(t *testing.T) {
	t.Parallel()
	b := store.Bundle{Type: codalab.TypeRun, Metadata: codalab.Metadata{"request_priority": 1e6, "request_cpus": int64(2), "request_gpus": 0.0}}
	if got, want := present.CommandLine(b), "run --request-cpus 2 --request-priority 1000000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
