package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs the program with arguments.
func call(t *testing.T, args ...string) (stdout string, code int, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(t.Context(), program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" },
	})
	return out.String(), program.Code(t.Context(), err), err
}

func TestHelpIsGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"root": {}, "exec": {"exec", "--help"}, "probe": {"probe", "--help"}} {
		got, code, err := call(t, args...)
		if code != 0 || err != nil {
			t.Errorf("%s: %d, %v", name, code, err)
		}
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestExitCodeSaysWhatBecameOfTheBundle(t *testing.T) {
	t.Parallel()
	status := func(code int) *int { return &code }
	for name, test := range map[string]struct {
		exit spool.Exit
		err  error
		want int
	}{
		"success":                          {exit: spool.Exit{Cause: spool.CauseSucceeded, ExitCode: status(0)}, want: 0},
		"failure":                          {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(3)}, want: 3},
		"signal":                           {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(137)}, want: 137},
		"limit":                            {exit: spool.Exit{Cause: spool.CauseLimit, ExitCode: status(143)}, want: 143},
		"limit met with 0":                 {exit: spool.Exit{Cause: spool.CauseLimit, ExitCode: status(0)}, want: 124},
		"not run":                          {exit: spool.Exit{Cause: spool.CausePlatform}, want: 124},
		"no specification":                 {err: errors.Join(worker.ErrSpec, spool.ErrNone), want: 120},
		"another's":                        {err: worker.ErrTaken, want: 121},
		"not begun":                        {err: errors.Join(worker.ErrNotBegun, context.DeadlineExceeded), want: 122},
		"not to be recorded":               {err: worker.ErrUnrecorded, want: 123},
		"success, unrecorded":              {exit: spool.Exit{Cause: spool.CauseSucceeded, ExitCode: status(0)}, err: worker.ErrUnrecorded, want: 0},
		"failure, unrecorded":              {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(3)}, err: worker.ErrUnrecorded, want: 3},
		"told to stop, unrecorded":         {exit: spool.Exit{Cause: spool.CausePlatform, Terminated: true, ExitCode: status(3)}, err: worker.ErrUnrecorded, want: 123},
		"as the worker's own, unrecorded":  {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(121)}, err: worker.ErrUnrecorded, want: 123},
		"results lost with it, unrecorded": {exit: spool.Exit{Cause: spool.CausePlatform, ExitCode: status(0)}, err: worker.ErrUnrecorded, want: 123},
	} {
		if got := exitCode(test.exit, test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}

func TestMisuseIsSaidInALine(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"accepts 1 arg(s), received 0":          {"exec"},
		`unknown command "run" for "cl-worker"`: {"run"},
		"unknown flag: --server":                {"--server", "x"},
	} {
		if _, code, err := call(t, args...); code != program.ExitUsage || err.Error() != want {
			t.Errorf("%q: %d, %v; want %s", args, code, err, want)
		}
	}
	_, code, err := call(t, "exec", "/nowhere/spec.json")
	if code != exitSpec || err.Error() != "unusable specification /nowhere/spec.json: no such record" {
		t.Errorf("%d, %v", code, err)
	}
}
