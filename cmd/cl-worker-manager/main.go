// Command cl-worker-manager starts workers for a CodaLab server's staged bundles: in Slurm jobs, in pods of Kubernetes,
// or in jobs of AWS Batch or Azure Batch. Its command line is that of CodaLab's own (codalab/worker_manager/main.py).
//
// main.go builds the command line, flags.go its flags. slurmbatch.go wires the manager for Slurm, and cloud.go that for
// clouds, which have a file each; run.go runs both. login.go finds the user's name and password. status.go, logs.go and kill.go show and
// kill workers.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/pilot"
)

func main() { program.Main(run) }

const about = `cl-worker-manager watches a CodaLab server for staged bundles and starts workers
for them: cl-worker in Slurm jobs, in pods of Kubernetes, or in jobs of AWS Batch or
Azure Batch. A worker asks the server for runs by itself, and ends when it has been
idle. On a cluster with Slurm cl-bridge is the recommended way: its jobs need neither
a network nor a login.

  cl-worker-manager --max-workers 4 slurm-batch --partition gpu --gpus 1
  cl-worker-manager status            list the workers of slurm-batch and their runs
  cl-worker-manager logs WORKER -f    follow a worker's log
  cl-worker-manager kill WORKER       end a worker

  cl-worker-manager --max-workers 4 kubernetes --gpus 1
  cl-worker-manager kubernetes status         the same three, with a cloud's name and flags

Flags of the manager come before the name of the batch system, flags of its jobs after
it. When the manager ends, its workers continue; it finds them again when it starts.

Exit codes: 0 done, or ended by a signal; 1 refused or failed; 2 the command line is
wrong; 3 the server or the batch system did not answer, try again later; 4 the server
refused the login.`

func run(ctx context.Context, p program.Process) error {
	root := newRoot(p) //nolint:contextcheck // the commands take theirs from ExecuteContext
	args, err := normalizeArgs(root, p.Args)
	if err != nil {
		return err
	}
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok { // of the manager's flags: cobra passes only those of the subcommand to the flags' function
		err = commandLineError(root, invalid)
	}
	return withExitCode(err)
}

// newRoot builds the command line.
func newRoot(p program.Process) *cobra.Command {
	root := program.Root(p, "cl-worker-manager", "Start workers for staged bundles", about)
	root.TraverseChildren = true
	root.SetFlagErrorFunc(commandLineError)
	m := &manager{Process: p}
	m.addFlags(root.Flags())
	completeFlags(root, root.Flags())
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().NFlag() > 0 {
			return commandLineError(cmd, errors.New("say which worker manager to run: slurm-batch, kubernetes, aws-batch or azure-batch"))
		}
		return cmd.Help()
	}
	slurm := m.slurmBatchCommand()
	completeFlags(slurm, slurm.Flags())
	root.AddCommand(slurm)
	root.AddCommand(m.workersCommands(&slurmFinder{manager: m}, true)...)
	for _, s := range services() {
		root.AddCommand(m.cloudCommand(s))
	}
	return root
}

// commandLineError is the error of a command line that does not parse.
func commandLineError(cmd *cobra.Command, err error) error {
	return program.Usage(fmt.Errorf("%s: error: %w", cmd.CommandPath(), argparse.WrongValue(err)))
}

// oldPrefixFlag is a flag as pages of CodaLab show it, with one dash (docs/Worker-Managers.md).
const oldPrefixFlag = "-worker-work-dir-prefix"

// normalizeArgs rewrites a command line that Python's argparse accepts for pflag.
func normalizeArgs(root *cobra.Command, args []string) ([]string, error) {
	if len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		return args, nil
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == oldPrefixFlag || strings.HasPrefix(arg, oldPrefixFlag+"=") {
			args[i] = "-" + arg
		}
	}
	options, rest, err := argparse.ReadBefore(root, args)
	if err != nil {
		return nil, commandLineError(root, err)
	}
	if len(rest) == 0 {
		return options, nil
	}
	cmd, _, err := root.Find(rest[:1])
	switch {
	case err != nil || cmd == root:
		return nil, unknownCommand(root, rest[0])
	case cmd.DisableFlagParsing || cmd.Name() == "help" || cmd.Name() == "completion":
		return append(options, rest...), nil
	}
	words, err := normalizeOwn(root, cmd, rest[1:])
	return slices.Concat(options, rest[:1], words), err
}

// normalizeOwn rewrites the words after a command's name.
func normalizeOwn(root, cmd *cobra.Command, args []string) ([]string, error) {
	if cmd.HasSubCommands() {
		own, rest, err := argparse.ReadBefore(cmd, args)
		if err != nil {
			return nil, commandLineError(cmd, misplaced(root, cmd, args, err))
		}
		if len(rest) == 0 {
			return own, nil
		}
		sub, _, err := cmd.Find(rest[:1])
		if err != nil || sub == cmd {
			return nil, unknownCommand(cmd, rest[0])
		}
		words, err := normalizeOwn(root, sub, rest[1:])
		return slices.Concat(own, rest[:1], words), err
	}
	own, arguments, err := argparse.Read(cmd, args)
	if err != nil {
		return nil, commandLineError(cmd, misplaced(root, cmd, args, err))
	}
	return slices.Concat(own, []string{"--"}, arguments), nil
}

// misplaced explains a flag of the manager that comes after the subcommand.
func misplaced(root, cmd *cobra.Command, args []string, err error) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if strings.HasPrefix(arg, "--") && cmd.Flags().Lookup(name) == nil && root.Flags().Lookup(name) != nil {
			return fmt.Errorf("--%s comes before %s", name, cmd.Name())
		}
	}
	return err
}

func unknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	return commandLineError(root, fmt.Errorf("there is no command %q%s", name, argparse.DidYouMean("", argparse.Nearest(name, names))))
}

// withExitCode gives an error its exit code: ExitUsage if a flag for the workers' login is missing, ExitDenied if the server has
// refused the login, and ExitTransient for failures that may pass.
func withExitCode(err error) error {
	var coded *program.Error
	var failed interface {
		error
		Transient() bool
	}
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.Is(err, pilot.ErrNoLogin):
		return program.Usage(err)
	case errors.Is(err, client.ErrCredentials), codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden):
		return &program.Error{Code: program.ExitDenied, Err: err}
	case errors.As(err, &failed) && failed.Transient():
		return &program.Error{Code: program.ExitTransient, Err: err}
	}
	return err
}
