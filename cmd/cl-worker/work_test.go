package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/workdir"
	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// The jobs have nothing else of the worker's environment.
func TestSlurmJobsOfAWorkerLookForProgramsWhereItDoes(t *testing.T) {
	t.Parallel()
	for runtime, want := range map[string][]string{runtimeSlurm: {"/home/ann/bin", "/opt/apptainer/bin", "/usr/bin"}, runtimeBuiltin: nil} {
		w := standalone{
			Process: program.Process{Getenv: func(name string) string {
				return map[string]string{"PATH": "/home/ann/bin:relative:/opt/apptainer/bin::/usr/bin"}[name]
			}},
			flags: flags{server: "http://127.0.0.1:2900", runtime: runtime},
			login: account.Login{User: "ann"},
			dirs:  workdir.Dirs{ID: "w", WorkDir: "/work"},
		}
		c, err := w.configuration()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Plan()[queueName].Path); diff != "" {
			t.Errorf("%s (-want +got):\n%s", runtime, diff)
		}
	}
}
