package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// How often a bundle that is waited for is looked at: after a tenth of the time waited so far,
// so that the end of a short run is seen at once, that of a long one at a cost to the server
// that does not matter, and neither later than a tenth of what the run took. Who reads along
// waits for a line less than a second, with the time of the call itself.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = time.Second
	maxTail = 500 * time.Millisecond
)

// patience is how long a server in trouble is borne while waiting.
const patience = 5 * time.Minute

// tailChunk is how much of an output is asked for at once.
const tailChunk = 1 << 20

// waitCommand is bundle_cli.py: do_wait_command.
func (c *cli) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait <bundle>[/<path>]",
		Short: "Wait until a bundle is ready, or has failed",
		Long: "Wait until a bundle is ready, and print its uuid. Where it fails or is killed,\n" +
			"that state is printed on standard error, and the exit code is 1.",
		Args: cobra.ExactArgs(1),
	}
	worksheet := worksheetFlag(cmd)
	tail := cmd.Flags().BoolP("tail", "t", false, "print stdout and stderr, or the file given, as they grow")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		w := waiting{cli: c, place: at, uuid: target.BundleUUID}
		if *tail {
			w.files = c.outputs(target.Subpath)
		}
		state, err := w.wait(cmd.Context())
		if err != nil {
			return err
		}
		if err := ended(state); err != nil {
			return err
		}
		return c.print(target.BundleUUID)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// outputs are the files to follow: a run's output unless another is named.
func (c *cli) outputs(subpath string) []*followed {
	if subpath != "" {
		return []*followed{{path: subpath, to: c.Stdout}}
	}
	return []*followed{{path: "stdout", to: c.Stdout}, {path: "stderr", to: c.Stderr}}
}

// waiting waits for a bundle's end.
type waiting struct {
	*cli
	*place
	uuid  string
	files []*followed
}

// followed is a file that grows, and how much of it has been printed.
type followed struct {
	path   string
	to     io.Writer
	offset int64
}

// wait returns the bundle's final state, when all of the files is printed.
func (w waiting) wait(ctx context.Context) (codalab.State, error) {
	begun := w.Now()
	answered := begun
	longest := maxPoll
	if len(w.files) > 0 {
		longest = maxTail
	}
	for first := true; ; first = false {
		b, err := w.Bundle(ctx, w.uuid)
		if err == nil {
			err = w.catchUp(ctx, b.State)
		}
		var call *codalab.Error
		switch {
		case err == nil && b.State.Final():
			return b.State, nil
		case err == nil:
			answered = w.Now()
		case first, !errors.As(err, &call), !call.Transient(), w.Now().Sub(answered) > patience:
			return "", err
		}
		pause := min(max(w.Now().Sub(begun)/10, minPoll), longest)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(pause):
		}
	}
}

// catchUp prints what the files have got since the last time. While the bundle is not at its
// end they may not be there yet, and its worker may not answer for them.
func (w waiting) catchUp(ctx context.Context, state codalab.State) error {
	switch state { //nolint:exhaustive // in the others nothing can be read
	case codalab.StateRunning, codalab.StateFinalizing,
		codalab.StateReady, codalab.StateFailed, codalab.StateKilled:
	default:
		return nil
	}
	for _, f := range w.files {
		err := w.printNew(ctx, f, state.Final())
		var call *codalab.Error
		if errors.As(err, &call) && (call.Status == 404 || call.Status != 0 && !state.Final()) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printNew prints what a file has got. Whoever has it may send less than was asked for, so at
// the end it is asked until there is no more.
func (w waiting) printNew(ctx context.Context, f *followed, last bool) error {
	for {
		target := codalab.Target{BundleUUID: w.uuid, Subpath: f.path}
		contents, err := w.OpenContents(ctx, target, &client.Range{Offset: f.offset, Length: tailChunk})
		if err != nil {
			return err
		}
		from := &reader{r: contents}
		n, err := io.Copy(f.to, from)
		f.offset += n
		_ = contents.Close() // all that is wanted has been read
		if from.err != nil {
			// Broken off: what was printed is counted, the rest comes next time.
			return &codalab.Error{Method: "GET", Path: target.String(), Err: from.err, Message: from.err.Error()}
		}
		if err != nil {
			return fmt.Errorf("print %s: %w", target, err)
		}
		if n == 0 || n < tailChunk && !last {
			return nil
		}
	}
}

// reader keeps its source's error apart from that of the copy's other side.
type reader struct {
	r   io.Reader
	err error
}

// Read reads from the source.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
