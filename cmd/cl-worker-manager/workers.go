package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// finder finds the workers of a manager: in Slurm by the manager's work directory and the name of its jobs, in a cloud
// by the manager's name.
type finder interface {
	// addFindFlags adds the flags for finding the workers.
	addFindFlags(flags *pflag.FlagSet)
	// openFound returns the backend with the workers. The backend need not be able to start any.
	openFound(ctx context.Context) (pilot.Backend, error)
	// settings returns the settings of the manager of these workers. server is the server that --server names;
	// it may be empty.
	settings(server string) (settings, error)
	// command returns the command line, without flags, that has status, logs and kill for these workers.
	command() string
}

// settings are those of a manager.
type settings struct {
	record
	// shaped is set if record has the manager's shape and bounds.
	shaped bool
	// login are the files of the login, and workDir is the directory in which an earlier manager has kept the user's name
	// and password; each may be empty.
	login   loginFiles
	workDir string
}

// workersCommand is one call of a command that shows or kills the workers of a manager.
type workersCommand struct {
	*manager
	finder
	// address is the server in --server.
	address string
}

// workersCommands returns status, logs and kill. They have the finder's flags of their own, unless their parent has them
// for them.
func (m *manager) workersCommands(f finder, ownFlags bool) []*cobra.Command {
	var all []*cobra.Command
	for _, command := range []func(l *workersCommand) *cobra.Command{statusCommand, logsCommand, killCommand} {
		l := &workersCommand{manager: m, finder: f}
		cmd := command(l)
		cmd.ValidArgsFunction = l.completeWorkers
		if cmd.Name() == "status" {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.PreRun = func(*cobra.Command, []string) {
			if l.address != "" {
				m.server = l.address
			}
		}
		cmd.Flags().StringVar(&l.address, "server", "", "`address` of the server (default: the manager's, or the one that cl uses)")
		if ownFlags {
			f.addFindFlags(cmd.Flags())
		}
		completeFlags(cmd, cmd.Flags())
		all = append(all, cmd)
	}
	return all
}

// open returns the backend, and a manager that starts nothing, with the settings of the workers' manager. If only the
// server or the login is not known, open returns the backend, the settings and the error.
func (l *workersCommand) open(ctx context.Context) (b pilot.Backend, m *pilot.Manager, s settings, err error) {
	if b, err = l.openFound(ctx); err != nil {
		return nil, nil, settings{}, err
	}
	if s, err = l.settings(l.manager.server); err != nil {
		return b, nil, s, err
	}
	login, err := s.login.find(ctx, l.Process, s.Server, s.workDir)
	if err != nil {
		return b, nil, s, err
	}
	api, err := login.connect(s.Server, l.device(s.Server))
	if err == nil {
		err = login.findUser(ctx, api, true, l.Process, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return b, nil, s, err
	}
	s.Everybody = s.Everybody || login.User == rootUser
	return b, s.manager(api, b, l.Now), s, nil
}

func alive(pilots []pilot.Pilot) []pilot.Pilot {
	var live []pilot.Pilot
	for _, p := range pilots {
		if p.Phase != pilot.Ended {
			live = append(live, p)
		}
	}
	return live
}

// exactly returns a check for a number of arguments, whose error is one of the command line.
func exactly(n int) cobra.PositionalArgs { return program.WrongUsage(cobra.ExactArgs(n)) }
