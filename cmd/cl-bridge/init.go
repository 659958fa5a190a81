package main

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/setup"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutInit = `init writes a configuration. It asks Slurm which partitions and accounts you may use,
asks you for the rest, and logs in to the server. It writes a queue for each partition,
with its limits, and a comment for each key. In place of your password the bridge gets
a token, if the server has tokens. Only you can read the file and the token's file.

Without a terminal, or with --yes, init asks nothing and takes its own suggestions.
Then it needs --server, and --token-file or --password-file.

Exit codes: 1 refused or failed, or the file is there already; 2 the command line is
wrong; 3 the server or Slurm does not answer.`

func initCommand(p program.Process) *cobra.Command {
	o := setup.Options{In: p.Stdin, Out: p.Stdout, Getenv: p.Getenv, Now: p.Now}
	cmd := &cobra.Command{
		Use: "init", Short: "Write a configuration from Slurm's settings and your answers to a few questions", Long: aboutInit,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			usual, err := configPlace(p)
			if err != nil && o.Path == "" {
				return err
			}
			o.Path, o.UsualPath = cmp.Or(o.Path, usual), usual
			if o.UsualLedger, err = ledgerPlace(p, config.Config{}, ""); err != nil {
				return err
			}
			err = setup.Run(cmd.Context(), o)
			if _, ok := errors.AsType[*setup.UsageError](err); ok {
				return program.Usage(err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Path, "config", "", "the `file` to write, if not $"+configVariable+" or ~/.config/cl-bridge/bridge.toml")
	f.StringVar(&o.Server, "server", "", "the CodaLab server's `address`")
	f.StringVar(&o.User, "user", "", "the `name` of the user whose bundles the bridge runs")
	f.StringVar(&o.PasswordFile, "password-file", "", "a `file` with the password, mode 0600; the bridge reads it there")
	f.StringVar(&o.TokenFile, "token-file", "", "a `file` with a token of the server, mode 0600, in place of a password; the bridge reads it there")
	f.StringVar(&o.Shared, "shared", "", "a `directory` that this host and the compute nodes share; it is made if need be")
	f.StringSliceVar(&o.Trust, "trust", nil, "`names` of users, and of groups after an @, who may write above the shared directory and so act as you")
	f.StringSliceVar(&o.Partitions, "partitions", nil, "`names` of the partitions that get a queue, instead of all that you may use")
	f.StringVar(&o.DefaultPartition, "default", "", "the `partition` for runs that name no queue, if not Slurm's default one")
	f.StringVar(&o.SlurmBin, "slurm-bin", "", "the `directory` of Slurm's commands, if it is not in PATH")
	f.BoolVar(&o.Yes, "yes", false, "ask nothing, and accept all suggestions")
	f.BoolVar(&o.Force, "force", false, "write over files that are there")
	if err := errors.Join(cmd.MarkFlagFilename("config", "toml"), cmd.MarkFlagFilename("password-file"), cmd.MarkFlagFilename("token-file"), cmd.MarkFlagDirname("shared"), cmd.MarkFlagDirname("slurm-bin")); err != nil {
		panic(err) // the flags were added above
	}
	return cmd
}
