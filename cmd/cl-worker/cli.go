package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/manual"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const about = `cl-worker is CodaLab's worker: it takes runs from a server, runs each in a container on
this host, and sends the results back. Several runs run at the same time, each with its
own CPUs, GPUs and memory. The worker continues until it is stopped.

  cl-worker --server http://server:2900          asks for your user name and password
  cl-worker --password-file ~/.codalab/password  reads them from a file
  cl-worker --tag gpu --tag-exclusive            takes only cl run --request-queue gpu
  cl-worker --group lab                          also takes runs of the group's members
  cl-worker --gpuset 0 --max-memory 16g          gives runs a part of this host
  cl-worker --exit-when-idle --idle-seconds 600  ends after ten minutes without a run
  cl-worker --bundle-runtime slurm               runs each bundle as a Slurm job
  cl-worker --bundle-runtime kubernetes          runs each bundle as a pod of a cluster
  cl-worker probe                                shows the runtime for containers, with the reason

A stopped worker leaves its runs running; a worker of the same --id takes them up. With
--pass-down-termination it ends them, and the server stages them again. Options may be
shortened.

Exit codes: 0 ended by a signal or by itself; 1 it cannot continue; 2 the command line is
wrong, or names something that does not exist; 4 the server refuses the login.`

func run(ctx context.Context, p program.Process) error {
	// AWS Batch passes a whole command line to the entry point of the worker's image, which is this program.
	if len(p.Args) > 0 && filepath.Base(p.Args[0]) == "cl-worker" {
		p.Args = p.Args[1:]
	}
	root := newRoot(p) //nolint:contextcheck // the commands take theirs from ExecuteContext
	args, err := normalizeArgs(root, p.Args)
	if err != nil {
		return program.Usage(err)
	}
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return program.Usage(argparse.WrongValue(invalid))
	}
	return err //nolint:wrapcheck // our own errors come through cobra
}

// newRoot builds the command line.
func newRoot(p program.Process) *cobra.Command {
	var f flags
	p, f.token = takeToken(p)
	root := program.Root(p, "cl-worker", "Run bundles of a CodaLab server on this host", about)
	root.Annotations = map[string]string{manual.Alone: ""}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return work(cmd.Context(), p, f) }
	f.add(root.Flags())
	completeFlags(root)
	root.AddCommand(onnode.ExecCommand(p, containers), onnode.ProbeCommand(p))
	return root
}

// completeFlags sets shell completion for the flags: few values are file names.
func completeFlags(root *cobra.Command) {
	root.Flags().VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch f.Name {
		case "work-dir", "password-file", "token-file", "kubernetes-cert-path", "log-format":
			return
		case "bundle-runtime":
			complete = cobra.FixedCompletions(runtimeChoices(), cobra.ShellCompDirectiveNoFileComp)
		case "bundle-network":
			complete = cobra.FixedCompletions(networkChoices(), cobra.ShellCompDirectiveNoFileComp)
		}
		_ = root.RegisterFlagCompletionFunc(f.Name, complete) // it has none yet
	})
	_ = root.MarkFlagDirname("work-dir") // it is there
	program.CompleteLogFormat(root)
}

// normalizeArgs rewrites a command line that Python's argparse accepts for pflag. It leaves the command
// lines of subcommands unchanged.
func normalizeArgs(root *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	root.InitDefaultVersionFlag()
	options, rest, err := argparse.ReadBefore(root, args)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("unexpected argument %q", rest[0])
	}
	return options, nil
}
