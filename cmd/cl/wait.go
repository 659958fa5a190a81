package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The pause between two polls of a bundle is a tenth of the time waited so far, within these limits.
// So cl sees the end of a short run at once, and a long wait costs the server little. With --tail the
// pause is short enough to follow the output.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = time.Second
	maxTail = 500 * time.Millisecond
)

// tailChunk is the maximum size of one read of an output.
const tailChunk = 1 << 20

const waitHelp = `Wait until all bundles have ended, and print the uuid of each when it is ready. If one
fails or is killed, print that state on standard error, and exit with code 1.

On a terminal the reason of a bundle's wait is shown when it changes, and for several
bundles a line with their states: how many are ready, failed, running or waiting, and
about how long they will take, as soon as the times of those that are ready tell that.
Without a terminal that line comes a minute after the start, and then ever more seldom.

  cl wait ^1-12                   all twelve
  cl wait lr-sweep                all runs of a sweep
  cl wait --first-failure ^1-12   and end as soon as one of them fails
  cl wait --any a b               until one of them has ended

` + notifyHelp

// waitOptions are the flags of cl wait.
type waitOptions struct {
	tail, any, firstFailure bool
	notify                  notifier
}

// waitCommand is bundle_cli.py: do_wait_command.
func (c *cli) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait (<bundle>[/<path>]|<sweep>)...",
		Short: "Wait until bundles are ready, or have failed",
		Long:  waitHelp,
		Args:  cobra.MinimumNArgs(1),
	}
	var o waitOptions
	var ways []string
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	notifyFlag(cmd, &ways)
	cmd.Flags().BoolVarP(&o.tail, "tail", "t", false, "print stdout and stderr, or the file given, as they grow")
	cmd.Flags().BoolVar(&o.any, "any", false, "end as soon as one bundle has ended, with its state")
	cmd.Flags().BoolVar(&o.firstFailure, "first-failure", false, "end as soon as one bundle has failed or was killed; the others go on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		specs, err := expandSpecs(args)
		switch {
		case err != nil:
			return err
		case o.tail && len(specs) > 1:
			return refusef("--tail follows one bundle, not %d", len(specs))
		case o.tail && c.asJSON:
			return refusef("--tail prints contents: it cannot be used with --json")
		case o.any && o.firstFailure:
			return refusef("--any ends with the first bundle, also if it is ready; --first-failure waits for a failure: give one of them")
		}
		if o.notify, err = c.notifier(ways, args); err != nil {
			return err
		}
		if o.notify.mail && (o.any || o.firstFailure) {
			return refusef("the mail comes when all bundles have ended: leave out --any and --first-failure, or use --notify webhook")
		}
		return c.waitFor(cmd.Context(), *worksheet, specs, o)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// waitFor waits for bundles: for one with its reasons and its output, for several with their counts.
func (c *cli) waitFor(ctx context.Context, worksheet string, specs []string, o waitOptions) error {
	one, err := codalab.ParseTarget(specs[0])
	if err != nil {
		return err
	}
	if !o.tail && one.Subpath == "" || len(specs) > 1 {
		at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, anyRun)
		if err == nil {
			err = c.registerMail(ctx, at, o, uuids)
		}
		switch {
		case err != nil:
			return err
		case len(uuids) > 1:
			return c.waitForAll(ctx, at, uuids, o)
		}
		return c.waitForOne(ctx, at, codalab.Target{BundleUUID: uuids[0]}, o)
	}
	at, target, err := c.target(ctx, worksheet, specs[0])
	if err == nil {
		err = c.registerMail(ctx, at, o, []string{target.BundleUUID})
	}
	if err != nil {
		return err
	}
	return c.waitForOne(ctx, at, target, o)
}

// waitForOne waits for a bundle, and prints its files if the options say so.
func (c *cli) waitForOne(ctx context.Context, at *workspace, target codalab.Target, o waitOptions) error {
	w := waiter{cli: c, workspace: at, uuid: target.BundleUUID}
	if o.tail {
		w.files = c.outputs(target.Subpath)
	}
	b, err := w.wait(ctx)
	if err == nil || w.server.known {
		o.notify.ended(ctx, c, []codalab.Bundle{b}, err)
	}
	if err != nil {
		return c.interrupted(ctx, err, target.BundleUUID)
	}
	failed := exitError(b)
	switch {
	case c.asJSON:
		return errors.Join(c.printJSON(viewEnded([]codalab.Bundle{b})), failed)
	case failed != nil:
		return failed
	}
	return c.print(b.UUID)
}

// endedView is a bundle that has ended, in JSON.
type endedView struct {
	UUID           string        `json:"uuid"`
	State          codalab.State `json:"state"`
	FailureMessage string        `json:"failure_message,omitempty"`
}

func viewEnded(bundles []codalab.Bundle) []endedView {
	views := []endedView{}
	for _, b := range bundles {
		views = append(views, endedView{b.UUID, b.State, b.Metadata.String("failure_message")})
	}
	return views
}

// interrupted prints after Ctrl-C that the bundles continue, and returns err.
func (c *cli) interrupted(ctx context.Context, err error, uuids ...string) error {
	switch {
	case ctx.Err() == nil:
	case len(uuids) == 1:
		c.warn("cl: the wait has ended, not the bundle. To wait again: cl wait %[1]s. To end it: cl kill %[1]s.", uuids[0])
	case len(uuids) <= 5:
		c.warn("cl: the wait has ended, not the bundles. To wait again: cl wait %[1]s. To end them: cl kill %[1]s.", strings.Join(uuids, " "))
	default:
		c.warn("cl: the wait has ended, not the %d bundles. To wait again, give the same command.", len(uuids))
	}
	return err
}

// outputs are the files to follow: subpath, or a run's output if that is empty.
func (c *cli) outputs(subpath string) []*followedFile {
	if subpath != "" {
		return []*followedFile{{path: subpath, to: contentsTo(c.Stdout)}}
	}
	return []*followedFile{{path: "stdout", to: contentsTo(c.Stdout)}, {path: "stderr", to: contentsTo(c.Stderr)}}
}

// waiter waits for a bundle's end.
type waiter struct {
	*cli
	*workspace
	uuid  string
	files []*followedFile
	// shown is the last sentence that was printed about the bundle's wait.
	shown  string
	server outage
}

// followedFile is a growing file; cl has printed its first offset bytes.
type followedFile struct {
	path   string
	to     io.Writer
	offset int64
}

// wait returns the bundle at its end, after printing all of the files.
func (w *waiter) wait(ctx context.Context) (codalab.Bundle, error) {
	begun := w.Now()
	w.server.answered = begun
	longest := maxPoll
	if len(w.files) > 0 {
		longest = maxTail
	}
	for {
		b, err := w.Bundle(ctx, w.uuid)
		if err == nil {
			w.showStatus(b.Bundle)
			err = w.printNewOutput(ctx, b.State)
		}
		over := w.server.ends(err, w.Now())
		w.server.say(w.cli, err)
		switch {
		case err == nil && b.State.Final():
			return b.Bundle, nil
		case over:
			return codalab.Bundle{}, err
		}
		if err := pause.For(ctx, w.server.pause(min(max(w.Now().Sub(begun)/10, minPoll), longest))); err != nil {
			return codalab.Bundle{}, err
		}
	}
}

// showStatus prints on a terminal the reason for the bundle's wait, if it has changed.
func (w *waiter) showStatus(b codalab.Bundle) {
	if b.State.Final() {
		return
	}
	text := string(b.State)
	if details := b.Details(); details != "" {
		text += ": " + details
	}
	if _, ok := terminal(w.Stderr); !ok || text == w.shown {
		return
	}
	w.shown = text
	rest := termtext.OneLine(strings.TrimPrefix(text, string(b.State)))
	painted := w.palette(w.Stderr).State(b.State, termtext.OneLine(string(b.State)))
	_, _ = fmt.Fprintln(termtext.Raw(w.Stderr), painted+rest) // only a display
}

// printNewOutput prints the new bytes of the files. Before the bundle's end the files may not exist
// yet, and the worker may not answer.
func (w *waiter) printNewOutput(ctx context.Context, state codalab.State) error {
	switch state {
	case codalab.StateRunning, codalab.StateFinalizing,
		codalab.StateReady, codalab.StateFailed, codalab.StateKilled:
	default: // in the other states there are no files
		return nil
	}
	for _, f := range w.files {
		err := w.printNew(ctx, f, state.Final())
		if call, ok := errors.AsType[*codalab.Error](err); ok && (call.Status == 404 || call.Status != 0 && !state.Final()) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printNew prints the new bytes of a file. A read may return fewer bytes than requested, so after the
// bundle's end printNew reads until nothing is left.
func (w *waiter) printNew(ctx context.Context, f *followedFile, last bool) error {
	for {
		target := codalab.Target{BundleUUID: w.uuid, Subpath: f.path}
		contents, err := w.OpenContents(ctx, target, &client.Range{Offset: f.offset, Length: tailChunk})
		if err != nil {
			return err
		}
		n, err := io.Copy(f.to, received{contents, target})
		f.offset += n        // counts the printed bytes: if the connection broke, the next call prints the rest
		_ = contents.Close() // everything needed has been read
		if err != nil {
			return fmt.Errorf("print %s: %w", target, err)
		}
		if n == 0 || n < tailChunk && !last {
			return nil
		}
	}
}
