package onnode

import (
	"context"
	"errors"
	"testing"

	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker"
)

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
		"a sick node":                      {err: errors.Join(worker.ErrSickNode), want: 122},
		"not begun":                        {err: errors.Join(worker.ErrNotBegun, context.DeadlineExceeded), want: 122},
		"not to be recorded":               {err: worker.ErrUnrecorded, want: 123},
		"success, unrecorded":              {exit: spool.Exit{Cause: spool.CauseSucceeded, ExitCode: status(0)}, err: worker.ErrUnrecorded, want: 0},
		"failure, unrecorded":              {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(3)}, err: worker.ErrUnrecorded, want: 3},
		"terminated, unrecorded":           {exit: spool.Exit{Cause: spool.CausePlatform, Terminated: true, ExitCode: status(3)}, err: worker.ErrUnrecorded, want: 123},
		"failure on a full disk":           {exit: spool.Exit{Cause: spool.CausePlatform, ExitCode: status(3)}, err: worker.ErrUnrecorded, want: 3},
		"as the worker's own, unrecorded":  {exit: spool.Exit{Cause: spool.CauseUser, ExitCode: status(121)}, err: worker.ErrUnrecorded, want: 123},
		"results lost with it, unrecorded": {exit: spool.Exit{Cause: spool.CausePlatform, ExitCode: status(0)}, err: worker.ErrUnrecorded, want: 123},
	} {
		if got := exitCode(test.exit, test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}
