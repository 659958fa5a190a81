package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Pack is the worker of a job that several bundles share. They are the members of the pack.
//
// The pack divides its allocation into equal places. In each place it runs one member after the other, in the order of the list,
// by [Worker.Run]: each member has its own start, limits, output, records, use and verdict, and a member that fails, or fills a
// disk, ends alone. What the members of a pack share, and how they are kept apart:
//
//	processors   the container of a member starts with the processors of its place (sched_setaffinity(2))
//	GPUs         a member gets device files of its place alone
//	memory       the job's cgroup counts all members together. The worker measures the processes of each member, and ends
//	             a member above its own limit. If the kernel is faster, the member is out of memory whose command SIGKILL
//	             has ended, of nobody here, while the job's cgroup counted a kill. The kernel never chooses the worker
//	             (container.Container.KilledFirst).
//	time         a member begins only if its time limit fits before the end of the job
//	the end      TERM to the job reaches all members, and no further one begins. The bridge ends one member by its file
//	             of stops (spool.Attempt.WriteStop).
//
// A member that has not begun has no start, so another job can still begin it. A killed worker leaves a start and no exit record of
// the members that it had begun, as the worker of one bundle does.
type Pack struct {
	// Worker runs each member. Its Log is for what concerns no single member.
	Worker Worker
	// Places is the number of members that run side by side, at least 1.
	Places int
	// End is the time at which Slurm ends the job; zero if it is not known.
	End time.Time
	// Containers returns the runtime of one place; nil means Worker.Containers. The thread of the place alone uses it.
	Containers func() PlaceRuntime
	// LogTo returns the log of a member, which writes to its own file of output (spool.Attempt.OutputPath).
	LogTo func(io.Writer) *slog.Logger
}

// PlaceRuntime runs the containers of a place, one after another.
type PlaceRuntime interface {
	container.Runtime
	// Close ends what the runtime keeps for the next container.
	Close()
}

// ErrLeft means that the worker of a pack has left a member for another job, or for its bridge. Nothing was begun.
var ErrLeft = errors.New("the member is not begun")

// Run runs the members, and returns when those that it has begun have ended. When ctx ends, it sends TERM to all commands, and
// begins no further member. It leaves members that another worker has begun or the bridge has fenced or stopped, that are
// described wrongly, or that do not fit before End.
//
// An error wraps ErrNotBegun or ErrUnrecorded, and means that the shared disk has failed a member. After ErrNotBegun no further
// member begins.
func (p Pack) Run(ctx context.Context, members []spool.Attempt) error {
	places, err := p.divide()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	run := &packRun{Pack: p, left: members}
	var group errgroup.Group
	for i := range places {
		group.Go(func() error {
			run.serve(ctx, &places[i])
			return nil
		})
	}
	_ = group.Wait() // they return nil
	p.Worker.Log.InfoContext(ctx, "the pack has ended", slog.Int("bundles", len(members)), slog.Int("runs", run.begun))
	return errors.Join(run.failures...)
}

// packRun is one call of Pack.Run.
type packRun struct {
	Pack

	mu       sync.Mutex
	left     []spool.Attempt // the members whose turn has not come
	begun    int
	failures []error
}

// serve runs members in a place until none is left.
func (p *packRun) serve(ctx context.Context, at *place) {
	// The thread keeps the processors of the place, so it serves nothing else and ends with this goroutine. It also has to
	// live as long as the containers that it starts.
	runtime.LockOSThread()
	if err := affinity.Set(at.cpus); err != nil {
		p.Worker.Log.WarnContext(ctx, "the members of a place have all CPUs of the job", slog.Any("error", err))
	}
	defer at.leave(ctx, p.Worker)
	if p.Containers != nil {
		at.containers = p.Containers()
		defer at.containers.Close()
	}
	for ctx.Err() == nil {
		member, ok := p.next()
		if !ok {
			break
		}
		p.runMember(ctx, at, member)
	}
}

// next returns the next member; false if there is none, or if no further one may begin.
func (p *packRun) next() (member spool.Attempt, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		return spool.Attempt{}, false
	}
	member, p.left = p.left[0], p.left[1:]
	return member, true
}

// runMember runs one member in a place. Its failures concern no other member, except for those of the shared disk.
func (p *packRun) runMember(ctx context.Context, at *place, member spool.Attempt) {
	output := &outputFile{path: member.OutputPath()}
	defer output.close()
	w := p.Worker
	w.place, w.Log = at, p.LogTo(output)
	if at.containers != nil {
		w.Containers = at.containers
	}
	if at.visible != "" {
		w.VisibleDevices = at.visible
	}
	_, err := w.Run(ctx, member.SpecPath())
	p.note(ctx, w.Log, member, err)
	if output.err != nil {
		p.Worker.Log.WarnContext(ctx, "cannot write to the bundle's own file of output", slog.Any("error", output.err))
	}
}

// note notes the end of a member, or the reason why it has not begun. A member that another worker may have begun has that worker's
// file of output.
func (p *packRun) note(ctx context.Context, own *slog.Logger, member spool.Attempt, err error) {
	switch {
	case errors.Is(err, ErrSpec):
		own.ErrorContext(ctx, "the member is not begun", slog.Any("error", err))
	case errors.Is(err, ErrTaken), errors.Is(err, ErrLeft):
		p.Worker.Log.InfoContext(ctx, "the member is not begun", slog.String("directory", member.Dir), slog.Any("error", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.begun++
	case errors.Is(err, ErrNotBegun):
		p.left = nil // the disk takes no start
		p.failures = append(p.failures, err)
	case errors.Is(err, ErrUnrecorded):
		p.begun++
		p.failures = append(p.failures, err)
	}
}

// outputFile is a file to which text is appended. It is opened with the first text, so that a member that is left alone has none.
type outputFile struct {
	path string
	file *os.File
	err  error
}

func (o *outputFile) Write(text []byte) (int, error) {
	if o.file == nil && o.err == nil {
		o.file, o.err = os.OpenFile(o.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if o.file == nil {
		return 0, o.err
	}
	return o.file.Write(text)
}

func (o *outputFile) close() { _ = o.file.Close() } // Close of a nil file only returns an error
