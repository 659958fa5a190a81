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
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The pause between two looks at a bundle is a tenth of the time waited so far, within these
// limits. So cl sees the end of a short run at once, and a long wait costs the server little.
// With --tail the pause is short enough to follow the output.
const (
	minPoll = 50 * time.Millisecond
	maxPoll = time.Second
	maxTail = 500 * time.Millisecond
)

// outageLimit is how long cl waits for a server that does not answer.
const outageLimit = 5 * time.Minute

// tailChunk is the maximum size of one read of an output.
const tailChunk = 1 << 20

// waitCommand is bundle_cli.py: do_wait_command.
func (c *cli) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait <bundle>[/<path>]",
		Short: "Wait until a bundle is ready, or has failed",
		Long: "Wait until a bundle is ready, and print its uuid. If it fails or is killed,\n" +
			"print that state on standard error, and exit with code 1.",
		Args: cobra.ExactArgs(1),
	}
	worksheet := worksheetFlag(cmd)
	tail := cmd.Flags().BoolP("tail", "t", false, "print stdout and stderr, or the file given, as they grow")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		w := waiter{cli: c, workspace: at, uuid: target.BundleUUID}
		if *tail {
			w.files = c.outputs(target.Subpath)
		}
		state, err := w.wait(cmd.Context())
		if err != nil {
			return err
		}
		if err := exitError(state); err != nil {
			return err
		}
		return c.printUUID(target.BundleUUID)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

// outputs are the files to follow: subpath, or a run's output if that is empty.
func (c *cli) outputs(subpath string) []*followedFile {
	if subpath != "" {
		return []*followedFile{{path: subpath, to: termtext.Raw(c.Stdout)}}
	}
	return []*followedFile{{path: "stdout", to: termtext.Raw(c.Stdout)}, {path: "stderr", to: termtext.Raw(c.Stderr)}}
}

// waiter waits for a bundle's end.
type waiter struct {
	*cli
	*workspace
	uuid  string
	files []*followedFile
}

// followedFile is a growing file, and how much of it cl has printed.
type followedFile struct {
	path   string
	to     io.Writer
	offset int64
}

// wait returns the bundle's final state, after printing all of the files.
func (w waiter) wait(ctx context.Context) (codalab.State, error) {
	begun := w.Now()
	answered := begun
	longest := maxPoll
	if len(w.files) > 0 {
		longest = maxTail
	}
	for first := true; ; first = false {
		b, err := w.Bundle(ctx, w.uuid)
		if err == nil {
			err = w.printNewOutput(ctx, b.State)
		}
		var call *codalab.Error
		switch {
		case err == nil && b.State.Final():
			return b.State, nil
		case err == nil:
			answered = w.Now()
		case first, !errors.As(err, &call), !call.Transient(), w.Now().Sub(answered) > outageLimit:
			return "", err
		}
		if err := pause.For(ctx, min(max(w.Now().Sub(begun)/10, minPoll), longest)); err != nil {
			return "", err
		}
	}
}

// printNewOutput prints what has been added to the files. Before the bundle's end the files
// may not exist yet, and the worker may not answer.
func (w waiter) printNewOutput(ctx context.Context, state codalab.State) error {
	switch state { //nolint:exhaustive // in the other states there are no files
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

// printNew prints what has been added to a file. A read may return less than it asked for, so
// after the bundle's end printNew reads until nothing is left.
func (w waiter) printNew(ctx context.Context, f *followedFile, last bool) error {
	for {
		target := codalab.Target{BundleUUID: w.uuid, Subpath: f.path}
		contents, err := w.OpenContents(ctx, target, &client.Range{Offset: f.offset, Length: tailChunk})
		if err != nil {
			return err
		}
		from := &errorRecorder{r: contents}
		n, err := io.Copy(f.to, from)
		f.offset += n
		_ = contents.Close() // everything needed has been read
		if from.err != nil {
			// The connection broke. f.offset counts what was printed; the next call prints the
			// rest.
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

// errorRecorder records errors of its source, to tell them from errors of the output.
type errorRecorder struct {
	r   io.Reader
	err error
}

// Read reads from the source.
func (r *errorRecorder) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
