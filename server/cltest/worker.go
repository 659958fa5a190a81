package cltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// shellWorker is a worker that runs commands without containers: bash runs them in a directory of their
// own, with copies of their parents. Its messages about failed runs are those of CodaLab's own
// cl-worker.
type shellWorker struct {
	api  *client.Client
	id   string
	self codalab.CheckIn // without runs
	dir  string
	end  context.CancelFunc
	// measures is set if reports tell the use of runs.
	measures bool
	// aside counts the worker's goroutines.
	aside sync.WaitGroup

	mu   sync.Mutex
	runs map[string]*shellRun
	// started counts the runs of the worker's life.
	started int64
	// changed is closed and replaced when there is something to report.
	changed chan struct{}
	// paused is closed when the worker goes on; nil unless it hangs.
	paused chan struct{}
}

// StartShellWorker starts a worker that runs commands without containers, by bash.
func StartShellWorker(ctx context.Context, call WorkerCall) (Worker, error) {
	api, err := client.New(call.Address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return call.User.Name, call.User.Password, nil },
	})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	w := &shellWorker{
		api: api, id: call.ID, dir: filepath.Join(call.Dir, "work-"+call.ID), end: end, measures: call.Measures,
		runs: map[string]*shellRun{}, changed: make(chan struct{}),
		self: codalab.CheckIn{CPUs: 2, MemoryBytes: 1 << 34, FreeDiskBytes: 1 << 40, Hostname: "testhost"},
	}
	for i, arg := range call.Args {
		switch arg {
		case "--tag":
			w.self.Tag = call.Args[i+1]
		case "--tag-exclusive":
			w.self.TagExclusive = true
		}
	}
	w.aside.Go(func() { w.serve(ctx) })
	return w, nil
}

// Pause stops the worker's communication. Its runs continue, as containers do.
func (w *shellWorker) Pause() error {
	w.change(func() { w.paused = make(chan struct{}) })
	return nil
}

// Resume ends the pause.
func (w *shellWorker) Resume() error {
	w.change(func() {
		if w.paused != nil {
			close(w.paused)
		}
		w.paused = nil
	})
	return nil
}

// Stop ends it with its runs.
func (w *shellWorker) Stop() error {
	w.end()
	w.aside.Wait()
	return nil
}

func (w *shellWorker) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// awaitResume waits while the worker hangs.
func (w *shellWorker) awaitResume(ctx context.Context) {
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	if paused == nil {
		return
	}
	select {
	case <-paused:
	case <-ctx.Done():
	}
}

// serve checks in until ctx ends. It sends a new report only after the server has applied the last one,
// because the server may apply two concurrent check-ins in the wrong order.
func (w *shellWorker) serve(ctx context.Context) {
	for ctx.Err() == nil {
		w.awaitResume(ctx)
		report, changed := w.report()
		answered := make(chan struct{})
		w.aside.Go(func() {
			defer close(answered)
			messages, err := w.api.CheckIn(ctx, w.id, report)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // the server may be in trouble
			}
			w.awaitResume(ctx)
			for _, m := range messages {
				if m.Type == codalab.MessageMarkFinalized {
					w.handleMessage(ctx, m) // before the next check-in: CodaLab's own server takes a run that is still in it for one that goes on
					continue
				}
				w.aside.Go(func() { w.handleMessage(ctx, m) })
			}
		})
		select {
		case <-changed:
			w.awaitApplied(ctx, report, answered)
		case <-answered:
		case <-ctx.Done():
		}
	}
}

// awaitApplied waits until the server has applied a check-in, or has answered it.
func (w *shellWorker) awaitApplied(ctx context.Context, in codalab.CheckIn, answered <-chan struct{}) {
	for _, report := range in.Reports {
		for !w.applied(ctx, report) {
			select {
			case <-answered:
				return
			case <-ctx.Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// applied reports whether the server shows the state that a report has, or a later one.
func (w *shellWorker) applied(ctx context.Context, reported codalab.RunReport) bool {
	b, err := w.api.Bundle(ctx, reported.UUID)
	var refused *codalab.Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound || // it was removed
		err == nil && (b.State == reported.State || b.State == codalab.StateFinalizing || b.State.Final())
}

// report returns the next check-in, and a channel that is closed when the check-in is out of date.
func (w *shellWorker) report() (codalab.CheckIn, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.self
	in.ExitAfterNumRuns = codalab.UnlimitedRuns - w.started
	for _, uuid := range slices.Sorted(maps.Keys(w.runs)) {
		// The claim has set the state preparing on the server, so reporting it again would show no
		// change.
		if run := w.runs[uuid].report; run.State != codalab.StatePreparing {
			if w.measures {
				run = measured(run, time.Now())
			}
			in.Reports = append(in.Reports, run)
		}
	}
	return in, w.changed
}

// measured adds made-up use of half a processor and most of a GPU to a report.
func measured(run codalab.RunReport, now time.Time) codalab.RunReport {
	run.ContainerTimeTotal = codalab.UnixSeconds(now) - run.BundleStart
	run.ContainerTimeUser = run.ContainerTimeTotal / 2
	run.Usage = &codalab.UsageNow{MemoryBytes: 1 << 29, GPUs: &codalab.GPUsNow{Busy: .75, MemoryBytes: 1 << 30}}
	return run
}

// handleMessage acts on a message.
func (w *shellWorker) handleMessage(ctx context.Context, m codalab.Message) {
	if m.Type == codalab.MessageRun {
		w.begin(ctx, m)
		return
	}
	w.mu.Lock()
	run := w.runs[m.UUID]
	w.mu.Unlock()
	if run == nil {
		if m.SocketID != 0 {
			_ = w.api.Reply(ctx, w.id, m.SocketID, codalab.ReadReply{ErrorCode: 404, ErrorMessage: "there is no such run"})
		}
		return
	}
	switch m.Type {
	case codalab.MessageKill:
		run.fail(cmp.Or(m.KillMessage, "Kill requested")) // CodaLab's own server gives no reason
	case codalab.MessageMarkFinalized:
		w.change(func() { delete(w.runs, m.UUID) })
	case codalab.MessageRead:
		w.read(ctx, run, m)
	case codalab.MessageWrite:
		// A failure shows in the script, because its file is missing.
		_ = os.WriteFile(filepath.Join(run.dir, m.Subpath), []byte(m.String), 0o600)
	case codalab.MessageNetcat:
		w.netcat(ctx, m)
	default: // the others need no run
	}
}

// begin claims a run and starts it.
func (w *shellWorker) begin(ctx context.Context, m codalab.Message) {
	began := time.Now()
	mine, err := w.api.StartBundle(ctx, w.id, m.Bundle.UUID, codalab.StartBundle{Hostname: w.self.Hostname, StartTime: began.Unix()})
	if err != nil || !mine {
		return
	}
	run := newShellRun(ctx, w, m, began)
	w.change(func() {
		w.runs[m.Bundle.UUID] = run
		w.started++
	})
	w.aside.Go(run.runBundle)
}

func (w *shellWorker) read(ctx context.Context, run *shellRun, m codalab.Message) {
	root, err := os.OpenRoot(run.dir)
	if err != nil {
		_ = w.api.Reply(ctx, w.id, m.SocketID, codalab.ReadReply{ErrorCode: 404, ErrorMessage: err.Error()})
		return
	}
	defer root.Close()
	reply, stream := contents.Reply(ctx, root, codalab.Target{BundleUUID: m.UUID, Subpath: m.Path}, *m.ReadArgs, run.parents())
	if stream == nil {
		_ = w.api.Reply(ctx, w.id, m.SocketID, reply)
		return
	}
	defer stream.Close()
	_ = w.api.ReplyData(ctx, w.id, m.SocketID, stream)
}

// netcat sends a text to a port and replies with the immediate answer (codalab/worker/worker.py:
// netcat).
func (w *shellWorker) netcat(ctx context.Context, m codalab.Message) {
	answer, err := talk(ctx, m.Port, m.Message)
	if err != nil {
		_ = w.api.Reply(ctx, w.id, m.SocketID, codalab.ReadReply{ErrorCode: 500, ErrorMessage: err.Error()})
		return
	}
	_ = w.api.ReplyData(ctx, w.id, m.SocketID, strings.NewReader(answer))
}

func talk(ctx context.Context, port int, text string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("[Errno %d] Connection refused", int(syscall.ECONNREFUSED)) // in Python's words
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil && err != io.EOF { //nolint:errorlint // of a connection
		return "", err
	}
	return string(answer[:n]), nil
}
