package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const runHelp = `Run a command on bundles, and print the new bundle's uuid.

Dependencies come first, the command last, as one word or after ---:

  cl run data:mydata 'cat data'    the run sees the bundle mydata as data
  cl run :mydata 'cat mydata'      under its own name
  cl run :mydata/sub/f 'cat sub/f' one file of it, under its path
  cl run mydata 'cat b1'           dependencies without a name are b1, b2, ...
  cl run 'cat %mydata%'            the same, within the command; %% is a %
  cl run :mydata --- cat mydata    the command in several words

Many runs, with other settings each (cl help sweep):

  cl run --each lr=0.1,0.01 --each seed=1..4 'python train.py {lr} {seed}'

A run again, with the changes that are given: same command, dependencies, image
and requests otherwise.

  cl run --like train --request-gpus 2 -n train2
  cl run --like train --sub lr=0.3   --lr 0.1, --lr=0.1 or lr=0.1 in the command
  cl run --like train data:new       other data in place of its dependency data
  cl run --like train 'python x.py'  another command on the same dependencies

--like makes one run; cl mimic makes again, with other inputs, all that was made
from a bundle.

The run's output is in its files stdout and stderr. Other files that it
writes into its working directory are kept, too.`

// runCommand is bundle_cli.py: do_run_command.
func (c *cli) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [[<key>]:<bundle>[/<path>]]... <command>",
		Short: "Run a command on bundles",
		Long:  runHelp + "\n" + runUploadHelp,
	}
	var o runOptions
	worksheet := c.worksheetFlag(cmd)
	metadata := metadataFlags(cmd.Flags(), codalab.TypeRun)
	secrets := c.secretFlag(cmd, "give the command your secret of this `name` as a variable; may be repeated (cl help secret)")
	resume := resumeFlag(cmd.Flags())
	cmd.Flags().BoolVarP(&o.memoize, "memoize", "m", false, "use an existing run of the same command on the same inputs")
	cmd.Flags().StringVarP(&o.afterSortKey, "after_sort_key", "a", "", "put the run after the item with this sort key")
	cmd.Flags().BoolVarP(&o.edit, "edit", "e", false, "edit the metadata in $EDITOR first")
	cmd.Flags().BoolVarP(&o.interactive, "interactive", "i", false, "not supported")
	_ = cmd.Flags().MarkHidden("after_sort_key") // for web pages
	_ = cmd.Flags().MarkHidden("interactive")
	o.addWaitFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.upload, "upload", "", "send the files of this `directory`, and run the command among them")
	_ = cmd.MarkFlagDirname("upload")
	members := gridFlags(cmd.Flags())
	cmd.Flags().StringVar(&members.name, "sweep", "", "name of the sweep that --each makes")
	c.completeQueueFlag(cmd)
	like := likeFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("like", c.completeBundles)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if like.run != "" {
			return nil
		}
		return cobra.MinimumNArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.interactive {
			return refusef("cl run --interactive needs CodaLab's own cl and a Docker engine on this machine. " +
				"Try the command with docker run or apptainer exec, in the same image.")
		}
		if err := like.check(); err != nil {
			return err
		}
		if like.run != "" && members.given() {
			return refusef("--like makes one run; --each and its like make many: give one of them.")
		}
		if like.run != "" {
			given := givenMetadata(cmd.Flags(), metadata())
			secrets(given)
			return c.createLike(cmd.Context(), *worksheet, like, args, given, resume, o)
		}
		last, m := len(args)-1, metadata()
		secrets(m)
		resume(m)
		if members.given() {
			return c.createSweep(cmd.Context(), *worksheet, args[:last], args[last], m, o, members)
		}
		if err := members.checkAlone("zip", "sample", "sample-seed", "sweep", "max-parallel"); err != nil {
			return err
		}
		return c.createRun(cmd.Context(), *worksheet, args[:last], args[last], m, o)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

type runOptions struct {
	wait, tail, verbose        bool
	memoize, edit, interactive bool
	afterSortKey               string
	// upload is a directory to send; empty for none.
	upload string
}

// addWaitFlags adds the flags of commands that make runs (bundle_cli.py: WAIT_ARGUMENTS).
func (o *runOptions) addWaitFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.wait, "wait", "W", false, "wait for the run's end, then show the run")
	flags.BoolVarP(&o.tail, "tail", "t", false, "print the run's output until it ends")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "with -W or -t, show more of the run at its end")
}

func (c *cli) createRun(ctx context.Context, worksheet string, specs []string, command string, m codalab.Metadata, o runOptions) error {
	typed := command
	targets, command, err := codalab.RunInputs(specs, command)
	if err != nil {
		return err
	}
	if strings.Contains(typed, "%%") {
		c.warn("cl: %%%% stands for one percent sign: %s", command)
	}
	if command == "" {
		return refusef("The command cannot be empty.")
	}
	if err := codalab.CheckCommand(command); err != nil {
		return refusef("%s", codalab.Sentence(err.Error()))
	}
	if m.String("name") == "" {
		m["name"] = defaultName(codalab.TypeRun, command)
	}
	src, err := c.readSource(ctx, o.upload)
	if err == nil {
		err = src.checkKeys(targets)
	}
	if err != nil {
		return err
	}
	if err := c.checkNew(ctx, codalab.TypeRun, m, o.edit); err != nil {
		return err
	}
	at, uuid, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	deps, err := at.dependencies(ctx, targets)
	if err != nil {
		return orPercentHint(err, typed)
	}
	sent, err := src.sent(ctx, at, uuid)
	if err != nil {
		return err
	}
	withTags(m, sent.tags)
	return c.startRun(ctx, at, client.NewBundle{
		Worksheet: uuid, Type: codalab.TypeRun, AfterSortKey: o.afterSortKey,
		Command: command, Metadata: m, Dependencies: append(deps, sent.deps...),
	}, o, sent.uuid)
}

// startRun makes a run, or finds the same one if --memoize asks for that, prints its uuid, and waits for it if -W or -t
// asks for that. uploaded is the bundle of the run's directory, if it has one.
func (c *cli) startRun(ctx context.Context, at *workspace, b client.NewBundle, o runOptions, uploaded string) error {
	if o.memoize {
		if done, err := c.memoized(ctx, at, b, uploaded); done || err != nil {
			return err
		}
	}
	run, err := c.create(ctx, at, b)
	if err != nil {
		return err
	}
	if !c.asJSON || !o.wait && !o.tail {
		if err := c.printRun(run, uploaded); err != nil {
			return err
		}
	}
	if _, ok := terminal(c.Stdout); ok && !c.asJSON {
		c.warn("%s", bundleURL(at.Address(), run))
	}
	return c.waitForRun(ctx, at, run, o)
}

// printRun prints the uuid of a run, in JSON with that of its uploaded directory.
func (c *cli) printRun(run, uploaded string) error {
	return c.printResult(struct {
		UUID   string `json:"uuid"`
		Upload string `json:"upload,omitempty"`
	}{run, uploaded}, "%s", run)
}

// memoized shows the newest run of the same command on the same dependencies on the worksheet, and
// reports whether there is one.
func (c *cli) memoized(ctx context.Context, at *workspace, b client.NewBundle, uploaded string) (bool, error) {
	same, err := at.SameRuns(ctx, b.Command, b.Dependencies)
	if err != nil || len(same) == 0 {
		return false, err
	}
	newest := same[len(same)-1].UUID
	if err := c.printRun(newest, uploaded); err != nil {
		return true, err
	}
	return true, at.AddItems(ctx, b.Worksheet, []client.Item{bundleItem(newest)}, false)
}

// waitForRun waits for a new run if -W or -t asks for it (bundle_cli.py: wait). Unlike
// CodaLab's cl, the command fails if the run does, so that a script notices.
func (c *cli) waitForRun(ctx context.Context, at *workspace, uuid string, o runOptions) error {
	if !o.wait && !o.tail {
		return nil
	}
	w := waiter{cli: c, workspace: at, uuid: uuid}
	if o.tail && !c.asJSON {
		w.files = c.outputs("")
	}
	b, err := w.wait(ctx)
	if err != nil {
		return c.interrupted(ctx, err, uuid)
	}
	if o.wait || o.verbose || c.asJSON {
		if err := c.printBundles(ctx, at, []string{uuid}, infoOptions{verbose: o.verbose}); err != nil {
			return err
		}
	}
	return exitError(b)
}

// exitError is the command's error for a bundle's final state; nil if that is ready. Its text
// begins with the state, as that of CodaLab's cl.
func exitError(b codalab.Bundle) error {
	if b.State == codalab.StateReady {
		return nil
	}
	text := string(b.State)
	if why := b.Metadata.String("failure_message"); why != "" && why != codalab.KillRequested {
		text += ": " + termtext.OneLine(why)
	}
	return &program.Error{Code: program.ExitFailure, Err: errors.New(text)}
}
