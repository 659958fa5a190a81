package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// worker takes one bundle at a time from a server and executes a script's commands for
// it.
type worker struct {
	api *client.Client
	dir string

	mu sync.Mutex
	// run is the bundle in hand, nil for none.
	run      *codalab.RunBundle
	state    codalab.State
	exitCode *int
	failure  *string
	// seconds is the time for which the command has run, with half a processor and a GPU, as the worker tells; 0 if it does not tell.
	seconds float64
	// platform is what the next runs run on; nil if the worker does not tell.
	platform *codalab.Platform
	// changed is closed and replaced at each change.
	changed chan struct{}
	wg      sync.WaitGroup
}

// newWorker returns a worker that keeps its runs in dir.
func newWorker(api *client.Client, dir string) *worker {
	return &worker{api: api, dir: dir, changed: make(chan struct{})}
}

// serve checks in until ctx ends, again at once when something has changed.
func (w *worker) serve(ctx context.Context) {
	defer w.wg.Wait()
	for ctx.Err() == nil {
		w.mu.Lock()
		changed := w.changed
		report := w.report()
		w.mu.Unlock()
		done := make(chan struct{})
		w.wg.Go(func() {
			defer close(done)
			messages, err := w.api.CheckIn(ctx, "test", report)
			if err != nil {
				return
			}
			for _, m := range messages {
				w.obey(ctx, m)
			}
		})
		select {
		case <-changed:
		case <-done:
		case <-ctx.Done():
		}
	}
}

func (w *worker) report() codalab.CheckIn {
	in := codalab.CheckIn{
		CPUs: 4, MemoryBytes: 1 << 33, FreeDiskBytes: 1 << 40, Hostname: "testhost",
		ExitAfterNumRuns: codalab.UnlimitedRuns,
	}
	if w.run == nil {
		return in
	}
	profile := map[string]codalab.StageTimes{}
	for _, s := range codalab.Stages() {
		profile[s] = codalab.StageTimes{} // its time is not known yet
	}
	profile[codalab.StagePreparing] = codalab.NewStageTimes(time.Now(), time.Now())
	in.Reports = []codalab.RunReport{{
		UUID: w.run.UUID, State: w.state, RunStatus: "Running", Remote: "testhost",
		Cost:     &codalab.Cost{StagingSeconds: 2, QueuedSeconds: 90, AllocatedSeconds: 3600, Attempts: 1, GPUs: &codalab.GPUUse{Busy: .25, MemoryMax: 1 << 30}, EnergyJoules: 1_800_000},
		Platform: w.platform, ExitCode: w.exitCode, FailureMessage: w.failure, Profile: profile,
	}}
	if w.seconds > 0 {
		r := &in.Reports[0]
		r.ContainerTimeTotal, r.ContainerTimeUser = w.seconds, w.seconds/2
		r.Usage = &codalab.UsageNow{MemoryBytes: 3 << 30, GPUs: &codalab.GPUsNow{Busy: .25, MemoryBytes: 1 << 30}}
	}
	return in
}

// obey acts on a message.
func (w *worker) obey(ctx context.Context, m codalab.Message) {
	switch m.Type {
	case codalab.MessageRun:
		mine, err := w.api.StartBundle(ctx, "test", m.Bundle.UUID, codalab.StartBundle{Hostname: "testhost"})
		if err != nil || !mine || os.MkdirAll(filepath.Join(w.dir, m.Bundle.UUID), 0o755) != nil {
			return
		}
		w.change(func() { w.run, w.state, w.exitCode, w.failure, w.seconds = m.Bundle, codalab.StateRunning, nil, nil, 0 })
	case codalab.MessageKill:
		message := m.KillMessage
		if err := w.end(ctx, nil, &message); err != nil {
			panic(err)
		}
	case codalab.MessageMarkFinalized:
		w.change(func() { w.run = nil })
	case codalab.MessageRead:
		w.read(ctx, m)
	}
}

func (w *worker) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// held waits until a bundle is in hand, and returns its directory.
func (w *worker) held(ctx context.Context) (string, error) {
	for {
		w.mu.Lock()
		run, changed := w.run, w.changed
		w.mu.Unlock()
		if run != nil {
			return filepath.Join(w.dir, run.UUID), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// write appends to a file of the run.
func (w *worker) write(ctx context.Context, name, text string) error {
	dir, err := w.held(ctx)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// end uploads the run's directory and reports the run's end.
func (w *worker) end(ctx context.Context, exitCode *int, failure *string) error {
	dir, err := w.held(ctx)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive, err := contents.Archive(ctx, root, "", nil)
	if err != nil {
		return err
	}
	defer archive.Close()
	err = w.api.UploadContents(ctx, filepath.Base(dir), client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true}, archive)
	if err != nil {
		return fmt.Errorf("upload results: %w", err)
	}
	w.change(func() { w.state, w.exitCode, w.failure = codalab.StateFinalizing, exitCode, failure })
	return nil
}

func (w *worker) read(ctx context.Context, m codalab.Message) {
	root, err := os.OpenRoot(filepath.Join(w.dir, m.UUID))
	if err != nil {
		_ = w.api.Reply(ctx, "test", m.SocketID, codalab.ReadReply{ErrorCode: 404, ErrorMessage: err.Error()})
		return
	}
	defer root.Close()
	target := codalab.Target{BundleUUID: m.UUID, Subpath: m.Path}
	reply, stream := contents.Reply(ctx, root, target, *m.ReadArgs, nil)
	if stream == nil {
		_ = w.api.Reply(ctx, "test", m.SocketID, reply)
		return
	}
	defer stream.Close()
	_ = w.api.ReplyData(ctx, "test", m.SocketID, stream)
}
