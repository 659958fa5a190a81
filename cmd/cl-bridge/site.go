package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

// site holds the process of a command and the configuration that its flags name, with the ledger
// filled in.
type site struct {
	program.Process
	config.Config
	flags siteFlags
	json  bool
}

// siteFlags are the flags by which a command finds its bridge.
type siteFlags struct{ config, ledger string }

// siteCommand returns a command with the flags of a site and --json. run gets the site
// once its configuration has been read.
func siteCommand(p program.Process, use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, s *site, args []string) error) *cobra.Command {
	s := &site{Process: p}
	cmd := s.command(use, short, long, args, func(ctx context.Context, args []string) error { return run(ctx, s, args) })
	jsonFlag(cmd, &s.json)
	return cmd
}

// diskCommand is siteCommand for a command that uses the shared disk. It fails if the disk does not
// answer.
func diskCommand(p program.Process, use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, s *site, args []string) error) *cobra.Command {
	return siteCommand(p, use, short, long, args, func(ctx context.Context, s *site, args []string) error {
		if err := diskspace.Answers(ctx, s.Shared); err != nil {
			return err
		}
		return run(ctx, s, args)
	})
}

// command returns a command with the flags of the site. run is called once the
// configuration has been read.
func (s *site) command(use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: program.WrongUsage(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.read(); err != nil {
				return err
			}
			return run(cmd.Context(), args)
		},
	}
	configFlag(cmd, &s.flags.config)
	ledgerFlag(cmd, &s.flags.ledger)
	return cmd
}

func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

func ledgerFlag(cmd *cobra.Command, where *string) {
	cmd.Flags().StringVar(where, "ledger", "",
		"the bridge's `ledger`, an SQLite file or postgres://…, instead of the configuration's; if it has a password, set it in the configuration")
}

// read reads the configuration and fills in the ledger.
func (s *site) read() error {
	err := s.readConfig()
	if err == nil {
		s.Ledger, err = ledgerPlace(s.Process, s.Config, s.flags.ledger)
	}
	return err
}

// readConfig reads the configuration that the flag names, or the one in its usual place.
func (s *site) readConfig() (err error) {
	if s.flags.config, err = findConfig(s.Process, s.flags.config); err == nil {
		s.Config, err = config.Read(s.flags.config)
	}
	if err != nil {
		return program.Usage(err)
	}
	return nil
}

// print prints a command's result, as JSON or as text.
func (s *site) print(found any, text string) error { return s.Print(s.json, found, text) }

// withExitCode gives ExitTransient to an error without an exit code if it may pass: the ledger's
// database, Slurm or a registry did not answer. It gives ExitUsage to a ledger whose place must be
// changed.
func withExitCode(err error) error {
	var coded *program.Error
	var failed interface {
		error
		Transient() bool
	}
	if !errors.As(err, &coded) && errors.Is(err, ledger.ErrNetwork) {
		return program.Usage(err)
	}
	if err == nil || errors.As(err, &coded) || !errors.As(err, &failed) || !failed.Transient() {
		return err
	}
	return &program.Error{Code: program.ExitTransient, Err: err}
}

// ledgerPlace returns the ledger that the flag names, or else the configuration, or else
// the one in the directory of the user's state.
func ledgerPlace(p program.Process, c config.Config, flag string) (string, error) {
	if flag != "" {
		if err := sqldb.Check(flag); err != nil {
			return "", program.Usage(fmt.Errorf("--ledger: %w", err))
		}
		return flag, nil
	}
	if c.Ledger != "" {
		return c.Ledger, nil
	}
	state, err := userDir(p, "XDG_STATE_HOME", ".local", "state")
	if err != nil {
		return "", fmt.Errorf("find ledger: %w; set ledger in the configuration", err)
	}
	return filepath.Join(state, "ledger.db"), nil
}

// configVariable is the environment variable with the configuration's path; --config comes first.
const configVariable = "CL_BRIDGE_CONFIG"

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "", "the configuration `file`, if not $"+configVariable+" or ~/.config/cl-bridge/bridge.toml")
	if err := cmd.MarkFlagFilename("config", "toml"); err != nil {
		panic(err) // the flag was added above
	}
}

// findConfig returns the configuration that the flag names, or else the one that the
// environment names, or else the one in the user's configuration directory.
func findConfig(p program.Process, flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	path, err := configPlace(p)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return path, nil // reading it fails with the reason
	case p.Getenv(configVariable) != "":
		return "", fmt.Errorf("no configuration: $%s names %s, which is not there; \"cl-bridge init\" writes one", configVariable, path)
	}
	return "", fmt.Errorf("no configuration: $%s is not set, and there is no %s; \"cl-bridge init\" writes one, and --config names another", configVariable, path)
}

// configPlace returns the configuration's path if no flag names one.
func configPlace(p program.Process) (string, error) {
	if path := p.Getenv(configVariable); path != "" {
		return path, nil
	}
	dir, err := userDir(p, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", fmt.Errorf("find configuration: %w; name it with --config", err)
	}
	return filepath.Join(dir, "bridge.toml"), nil
}

// userDir returns this program's directory in one of the user's directories: the one
// that a variable names, or else the one in the home.
func userDir(p program.Process, variable string, inHome ...string) (string, error) {
	dir := p.Getenv(variable)
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(append([]string{home}, inHome...)...)
	}
	return filepath.Join(dir, "cl-bridge"), nil
}

// elsewhere returns the lease of the bridge that has the configuration's ledger on another host. err
// is the error of opening the ledger on this host.
func (s *site) elsewhere(ctx context.Context, err error) (lease.State, bool) {
	if !errors.Is(err, ledger.ErrAbsent) || s.Shared == "" {
		return lease.State{}, false
	}
	host, err := os.Hostname()
	if err != nil || diskspace.Answers(ctx, s.Shared) != nil {
		return lease.State{}, false
	}
	state, err := lease.Read(spool.Layout(s.Shared).BridgeDir())
	return state, err == nil && status.IsElsewhere(state.Holder, s.Config, host)
}

// absent replaces the error of a missing ledger: by the host that has the ledger, or else by
// otherwise.
func (s *site) absent(ctx context.Context, err error, otherwise string) error {
	if state, ok := s.elsewhere(ctx, err); ok {
		return fmt.Errorf("the ledger %s is on %s, and can be used there only", state.Holder.Ledger, state.Holder.Host)
	}
	if !errors.Is(err, ledger.ErrAbsent) {
		return err
	}
	if silent := diskspace.Answers(ctx, s.Shared); silent != nil {
		return silent // only the disk shows whether another host has the ledger
	}
	return errors.New(otherwise)
}

// openToJudge opens the ledger for commands that remove unneeded files. It fails without a ledger,
// because only the ledger shows which files are unneeded.
func (s *site) openToJudge(ctx context.Context) (*ledger.Reader, error) {
	r, err := ledger.OpenToRead(ctx, s.Ledger)
	if err != nil {
		return nil, s.absent(ctx, err, fmt.Sprintf("there is no ledger at %s: only a ledger shows which files are unneeded", sqldb.Name(s.Ledger)))
	}
	return r, nil
}
