package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
)

// workersCommand is one call of a command that shows or kills the workers of a manager.
type workersCommand struct {
	*manager
	location
	// address is the server in --server.
	address string
}

// newWorkersCommand returns a command with the flags by which it finds a manager's workers.
func (m *manager) newWorkersCommand(use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, l *workersCommand, args []string) error) *cobra.Command {
	l := &workersCommand{manager: m}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: program.WrongUsage(args), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.address != "" {
				m.server = l.address
			}
			return run(cmd.Context(), l, args)
		},
	}
	cmd.Flags().StringVar(&l.address, "server", "", "`address` of the server (default: the manager's, or the one that cl uses)")
	l.addLocationFlags(cmd.Flags())
	return cmd
}

// open returns the backend, and a manager that starts nothing, with the settings that the last manager recorded in
// the work directory. known is false if there is no record.
func (l *workersCommand) open(ctx context.Context) (b *slurmbatch.Backend, m *pilot.Manager, r record, known bool, err error) {
	if b, err = l.openBackend(l.Process, l.slurm()); err != nil {
		return nil, nil, record{}, false, err
	}
	data, err := os.ReadFile(recordPath(b))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, nil, record{}, false, err
	default:
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, nil, record{}, false, fmt.Errorf("read %s: %w", recordPath(b), err)
		}
		known = true
	}
	if m, err = l.connectTo(ctx, b, &r, known); err != nil {
		return b, nil, r, known, err
	}
	return b, m, r, known, nil
}

func (l *workersCommand) connectTo(ctx context.Context, b *slurmbatch.Backend, r *record, known bool) (*pilot.Manager, error) {
	passwordFile := l.passwordFile
	if l.manager.server != "" || !known {
		server, err := l.manager.address()
		if err != nil {
			return nil, err
		}
		if server != r.Server {
			r.Server, r.PasswordFile = server, ""
		}
	}
	if _, err := os.Stat(r.PasswordFile); err == nil && passwordFile == "" && l.Getenv("CODALAB_PASSWORD") == "" {
		passwordFile = r.PasswordFile // else no worker has needed it yet
	}
	login, err := findLogin(ctx, l.Process, r.Server, passwordFile, b.WorkDir)
	if err != nil {
		return nil, err
	}
	api, err := login.connect(r.Server)
	if err != nil {
		return nil, err
	}
	return r.manager(api, b), nil
}
