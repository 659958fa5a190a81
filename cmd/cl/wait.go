package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
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

// outageLimit limits the wait for a server that does not answer.
const outageLimit = 5 * time.Minute

// tailChunk is the maximum size of one read of an output.
const tailChunk = 1 << 20

// waitCommand is bundle_cli.py: do_wait_command.
func (c *cli) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait <bundle>[/<path>]...",
		Short: "Wait until bundles are ready, or have failed",
		Long: "Wait until all bundles have ended, and print the uuid of each that is ready. If one\n" +
			"fails or is killed, print that state on standard error, and exit with code 1. On a\n" +
			"terminal also print the reason of a bundle's wait when it changes.",
		Args: cobra.MinimumNArgs(1),
	}
	worksheet := c.worksheetFlag(cmd)
	tail := cmd.Flags().BoolP("tail", "t", false, "print stdout and stderr, or the file given, as they grow")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		specs, err := expandSpecs(args)
		switch {
		case err != nil:
			return err
		case *tail && len(specs) > 1:
			return usagef("--tail follows one bundle, not %d", len(specs))
		case *tail && c.asJSON:
			return usagef("--tail prints contents: it cannot be used with --json")
		}
		return c.waitFor(cmd.Context(), *worksheet, specs, *tail)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// waitFor waits for bundles, one after another: they all have to end.
func (c *cli) waitFor(ctx context.Context, worksheet string, specs []string, tail bool) error {
	waiters, err := c.waiters(ctx, worksheet, specs, tail)
	if err != nil {
		return err
	}
	var ended []codalab.Bundle
	var failed error
	for i, w := range waiters {
		b, err := w.wait(ctx)
		if err != nil {
			var left []string
			for _, other := range waiters[i:] {
				left = append(left, other.uuid)
			}
			return c.interrupted(ctx, err, left...)
		}
		ended = append(ended, b)
		err = exitError(b)
		switch {
		case err != nil && len(waiters) > 1:
			c.warn("%s %v", bundleText(b), err)
			failed = &program.Error{Code: program.ExitFailure}
		case err != nil:
			failed = err
		case !c.asJSON:
			if err := c.print(b.UUID); err != nil {
				return err
			}
		}
	}
	if c.asJSON {
		return errors.Join(c.printJSON(viewEnded(ended)), failed)
	}
	return failed
}

// waiters returns a waiter for each bundle. If specs has one element, it may name a file to follow.
func (c *cli) waiters(ctx context.Context, worksheet string, specs []string, tail bool) ([]waiter, error) {
	if len(specs) == 1 {
		at, target, err := c.target(ctx, worksheet, specs[0])
		if err != nil {
			return nil, err
		}
		w := waiter{cli: c, workspace: at, uuid: target.BundleUUID}
		if tail {
			w.files = c.outputs(target.Subpath)
		}
		return []waiter{w}, nil
	}
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return nil, err
	}
	var list []waiter
	for _, uuid := range uuids {
		list = append(list, waiter{cli: c, workspace: at, uuid: uuid})
	}
	return list, nil
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
	if ctx.Err() != nil {
		c.warn("cl: the wait has ended, not the bundle. To wait again: cl wait %[1]s. To end it: cl kill %[1]s.", strings.Join(uuids, " "))
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
	shown string
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
	answered := begun
	longest := maxPoll
	if len(w.files) > 0 {
		longest = maxTail
	}
	for first := true; ; first = false {
		b, err := w.Bundle(ctx, w.uuid)
		if err == nil {
			w.showStatus(b.Bundle)
			err = w.printNewOutput(ctx, b.State)
		}
		var call *codalab.Error
		switch {
		case err == nil && b.State.Final():
			return b.Bundle, nil
		case err == nil:
			answered = w.Now()
		case first, !errors.As(err, &call), !call.Transient(), w.Now().Sub(answered) > outageLimit:
			return codalab.Bundle{}, err
		}
		if err := pause.For(ctx, min(max(w.Now().Sub(begun)/10, minPoll), longest)); err != nil {
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
	if details := stateDetails(b); details != "" {
		text += ": " + details
	}
	if text != w.shown {
		w.shown = text
		w.printOnTerminal("%s", termtext.OneLine(text))
	}
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
