package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const runHelp = `Run a command on bundles, and print the new bundle's uuid.

Dependencies come first, the command last, as one word or after ---:

  cl run data:mydata 'cat data'    the run sees the bundle mydata as data
  cl run :mydata 'cat mydata'      under its own name
  cl run :mydata/sub/f 'cat sub/f' one file of it, under its path
  cl run mydata 'cat b1'           dependencies without a name are b1, b2, ...
  cl run 'cat %mydata%'            the same, within the command
  cl run :mydata --- cat mydata    the command in several words

The run's output is in its files stdout and stderr. Other files that it
writes into its working directory are kept, too.`

// runCommand is bundle_cli.py: do_run_command.
func (c *cli) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [[<key>]:<bundle>[/<path>]]... <command>",
		Short: "Run a command on bundles",
		Long:  runHelp,
		Args:  cobra.MinimumNArgs(1),
	}
	var o runOptions
	worksheet := worksheetFlag(cmd)
	metadata := metadataFlags(cmd.Flags(), codalab.TypeRun, "store")
	cmd.Flags().BoolVarP(&o.wait, "wait", "W", false, "wait for the run's end, then show the run")
	cmd.Flags().BoolVarP(&o.tail, "tail", "t", false, "print the run's output until it ends")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "with -W or -t, show more of the run at its end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		last := len(args) - 1
		return c.createRun(cmd.Context(), *worksheet, args[:last], args[last], metadata(), o)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

type runOptions struct{ wait, tail, verbose bool }

func (c *cli) createRun(ctx context.Context, worksheet string, specs []string, command string, m codalab.Metadata, o runOptions) error {
	targets, command, err := desugar(specs, command)
	if err != nil {
		return err
	}
	if command == "" {
		return usagef("The command cannot be empty.")
	}
	if m.String("name") == "" {
		m["name"] = defaultName(codalab.TypeRun, command)
	}
	if err := codalab.CheckMetadata(codalab.TypeRun, m, true); err != nil {
		return usagef("%v", err)
	}
	at, uuid, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	deps, err := at.dependencies(ctx, targets)
	if err != nil {
		return err
	}
	b, err := at.CreateBundle(ctx, client.NewBundle{
		Worksheet: uuid, Type: codalab.TypeRun,
		Command: command, Metadata: m, Dependencies: deps,
	})
	if err != nil {
		return err
	}
	if err := c.printUUID(b.UUID); err != nil {
		return err
	}
	return c.waitForRun(ctx, at, b.UUID, o)
}

// waitForRun waits for a new run if -W or -t asks for it (bundle_cli.py: wait). Unlike
// CodaLab's cl, the command fails if the run does, so that a script notices.
func (c *cli) waitForRun(ctx context.Context, at *workspace, uuid string, o runOptions) error {
	if !o.wait && !o.tail {
		return nil
	}
	w := waiter{cli: c, workspace: at, uuid: uuid}
	if o.tail {
		w.files = c.outputs("")
	}
	state, err := w.wait(ctx)
	if err != nil {
		return err
	}
	if o.wait || o.verbose {
		if err := c.printBundles(ctx, at, []string{uuid}, infoOptions{verbose: o.verbose}); err != nil {
			return err
		}
	}
	return exitError(state)
}

// exitError is the command's error for a bundle's final state; nil if that is ready. Its text
// is the state alone, as CodaLab's cl prints it.
func exitError(state codalab.State) error {
	if state == codalab.StateReady {
		return nil
	}
	return &program.Error{Code: program.ExitFailure, Err: errors.New(string(state))}
}
