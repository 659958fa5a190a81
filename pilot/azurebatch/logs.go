package azurebatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Logged returns the manager's tasks that have begun: the running ones first, then those that ended, the last first.
func (b *Backend) Logged(ctx context.Context) ([]pilot.Pilot, error) {
	tasks, err := b.Client.ListTasks(ctx, b.Job, b.filter())
	if err != nil {
		return nil, err
	}
	var pilots []pilot.Pilot
	for _, p := range b.ours(tasks) {
		if p.Phase != pilot.Pending {
			pilots = append(pilots, p)
		}
	}
	slices.SortFunc(pilots, func(a, c pilot.Pilot) int {
		if (a.Phase == pilot.Ended) != (c.Phase == pilot.Ended) {
			if c.Phase == pilot.Ended {
				return -1
			}
			return 1
		}
		return c.Since.Compare(a.Since)
	})
	return pilots, nil
}

// readEvery is the interval at which a followed log is read. A log is followed on through so many failures in a row,
// each of which the client has repeated before.
const (
	readEvery    = 2 * time.Second
	mostFailures = 5
)

// WriteLog writes the output of a pilot's task: from the node's files while there is a node, and else from the log
// container. Standard output and standard error come one after the other at each look.
func (b *Backend) WriteLog(ctx context.Context, w io.Writer, p pilot.Pilot, follow bool) error {
	l := &logReader{b: b, w: w, name: p.Name, done: make([]int64, len(outputs))}
	if b.Shape.LogContainer != "" {
		var err error
		if l.container, err = OpenLogContainer(b.Shape.LogContainer, b.Storage); err != nil {
			return err
		}
	}
	every := b.Every
	if every == 0 {
		every = readEvery
	}
	for failures := 0; ; {
		ended, err := l.look(ctx)
		var failed *Error
		switch {
		case err == nil && (ended || !follow):
			return l.result()
		case err == nil:
			failures = 0
		case follow && errors.As(err, &failed) && failed.Transient() && failures < mostFailures:
			failures++
		default:
			return err
		}
		if err := pause.For(ctx, every); err != nil {
			return err
		}
	}
}

// logReader reads the output of one task.
type logReader struct {
	b         *Backend
	w         io.Writer
	name      string
	container *LogContainer // nil for none
	done      []int64       // the bytes of each of outputs that are written
	printed   bool
	began     time.Time // when the task has begun, or begun again
	lost      bool      // the task has ended, and its node has no files
}

// look writes the new output, and reports whether there will be no more.
func (l *logReader) look(ctx context.Context) (ended bool, err error) {
	// The state comes first: what an ended task has printed is all there.
	t, err := l.b.Client.TaskInfo(ctx, l.b.Job, l.name)
	switch {
	case errors.Is(err, ErrTaskNotFound): // deleted; its log may be in the container
		ended = true
	case err != nil:
		return false, err
	default:
		ended = t.State == taskCompleted
		if t.Execution != nil && !t.Execution.Start.Equal(l.began) {
			l.began = t.Execution.Start
			clear(l.done) // its files are new ones, perhaps on another node
		}
	}
	for i, file := range outputs {
		n, err := l.b.Client.ReadFile(ctx, l.w, l.b.Job, l.name, file, l.done[i])
		if errors.Is(err, ErrNoFile) {
			n, err = 0, nil
			if ended {
				n, err = l.readBlob(ctx, i)
			}
		}
		l.done[i] += n
		l.printed = l.printed || n > 0
		if err != nil {
			return false, err
		}
	}
	return ended, nil
}

// readBlob writes the rest of a file from the log container.
func (l *logReader) readBlob(ctx context.Context, i int) (int64, error) {
	l.lost = true
	if l.container == nil {
		return 0, nil
	}
	n, err := l.container.Read(ctx, l.w, l.name+"/"+outputs[i], l.done[i])
	if errors.Is(err, errNoBlob) {
		return 0, nil
	}
	return n, err
}

// result returns the error of a log that is complete.
func (l *logReader) result() error {
	switch {
	case l.printed:
		return nil
	case l.lost && l.container == nil:
		return fmt.Errorf("worker %s: its node is gone, and there is no --log-container-url: %w", pilot.WorkerID(l.name), pilot.ErrNoLog)
	case l.lost:
		return fmt.Errorf("worker %s: its node is gone, and the log container %s has nothing of it: %w", pilot.WorkerID(l.name), l.container.Name(), pilot.ErrNoLog)
	}
	return fmt.Errorf("worker %s: %w", pilot.WorkerID(l.name), pilot.ErrNoLog)
}
