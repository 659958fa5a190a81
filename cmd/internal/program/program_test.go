package program_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestExitCodeTellsWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"success", t.Context(), nil, 0},
		{"failure", t.Context(), errors.New("no"), program.ExitFailure},
		{"refusal", t.Context(), &codalab.Error{Status: 403}, program.ExitFailure},
		{"no answer", t.Context(), fmt.Errorf("x: %w", &codalab.Error{}), program.ExitTransient},
		{"server in trouble", t.Context(), &codalab.Error{Status: 502}, program.ExitTransient},
		{"usage", t.Context(), &program.Error{Code: program.ExitUsage, Err: errors.New("x")}, program.ExitUsage},
		{"signal", stopped, &codalab.Error{Err: context.Canceled}, program.ExitInterrupted},
		{"signal, but done", stopped, nil, 0},
	} {
		if got := program.Code(test.ctx, test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", test.name, got, test.want)
		}
	}
}
