package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/pause"
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
//	             (container.Container.KilledFirst). A member that it kills within its own limit was struck by the use of
//	             another one.
//	time         a member begins only if its time limit fits before the end of the job
//	the end      TERM to the job reaches all members, and no further one begins. The bridge ends one member by its file
//	             of stops (spool.Attempt.WriteStop).
//
// Members can join the pack while it runs (spool.Slot). A place without a next member waits for them while another place
// still runs one. When no place runs a member any more, the worker closes the list and ends at once: a pack holds no allocation for
// members that may come.
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
	// Joining continues the list of members; nil means that none can join.
	Joining *spool.Slots
	// Containers returns the runtime of one place; nil means Worker.Containers. The thread of the place alone uses it.
	Containers func() PlaceRuntime
	// LogTo returns the log of a member, which writes to its own file of output (spool.Attempt.OutputPath). A member that
	// succeeds within a second, without a warning, has no such file: its records say the same.
	LogTo func(io.Writer) *slog.Logger
}

// PlaceRuntime runs the containers of a place, one after another.
type PlaceRuntime interface {
	container.Runtime
	// Close ends what the runtime keeps for the next container.
	Close()
}

// ErrSickNode means that the node has failed mostSick members of a pack one after another, before their commands began. The pack has left
// the others.
var ErrSickNode = errors.New("the node is at fault, and the further members are left")

// mostSick is the number of members in a row that a sick node may take from a pack. One alone may have met a fault that passes.
const mostSick = 2

// ErrLeft means that the worker of a pack has left a member for another job, or for its bridge. Nothing was begun.
var ErrLeft = errors.New("the member is not begun")

// Run runs the members, and those that join them, and returns when those that it has begun have ended. When ctx ends, it sends TERM to
// all commands, and begins no further member. It leaves members that another worker has begun or the bridge has fenced or stopped,
// that are described wrongly, or that do not fit before End. It closes the list of members before it returns, if the disk lets it.
//
// An error wraps ErrNotBegun or ErrUnrecorded, and means that the shared disk has failed a member, or it is ErrSickNode. After
// ErrNotBegun and ErrSickNode no further member begins.
func (p Pack) Run(ctx context.Context, members []spool.Attempt) error {
	places, err := p.divide()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	}
	run := &packRun{Pack: p, left: slices.Clip(members), bundles: len(members), closed: p.Joining == nil}
	run.changed.L = &run.mu
	watching, finished := context.WithCancel(ctx)
	defer finished()
	var group, watch errgroup.Group
	watch.Go(func() error {
		run.watchSlots(watching)
		return nil
	})
	for i := range places {
		group.Go(func() error {
			run.serve(ctx, &places[i])
			return nil
		})
	}
	_ = group.Wait() // they return nil
	finished()
	_ = watch.Wait() // it returns nil
	if left := len(run.left); run.isSick && left > 0 {
		run.failures = append(run.failures, fmt.Errorf("%w: %d", ErrSickNode, left))
	}
	p.Worker.Log.InfoContext(ctx, "the pack has ended", slog.Int("bundles", run.bundles), slog.Int("runs", run.begun))
	return errors.Join(run.failures...)
}

// packRun is one call of Pack.Run.
type packRun struct {
	Pack

	mu sync.Mutex
	// changed is told when places that wait have something to do.
	changed  sync.Cond
	left     []spool.Attempt // the members whose turn has not come
	running  int             // the members that have a place
	bundles  int             // all members
	closed   bool            // no member can join any more
	ended    bool            // no further member may begin
	inSlots  bool            // Joining is in use
	begun    int
	sick     int  // of the last members, those that the node has failed
	isSick   bool // mostSick of them in a row
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
	for {
		member, ok := p.next(ctx)
		if !ok {
			break
		}
		p.runMember(ctx, at, member)
	}
}

// next returns the next member. It waits for one while a member runs. ok is false if there is none, or if no further one may begin.
func (p *packRun) next(ctx context.Context) (member spool.Attempt, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.ended && ctx.Err() == nil {
		switch {
		case len(p.left) > 0:
			member, p.left = p.left[0], p.left[1:]
			p.running++
			return member, true
		case p.closed:
			return spool.Attempt{}, false
		case p.running == 0:
			p.closeList(ctx)
		default:
			p.changed.Wait()
		}
	}
	return spool.Attempt{}, false
}

// slotPause is the time between two looks for members that join.
const slotPause = 500 * time.Millisecond

// watchSlots looks for members that join, until watching ends: when no place needs one any more, or with TERM. Then no further member
// begins, and it closes the list.
func (p *packRun) watchSlots(watching context.Context) {
	for pause.For(watching, slotPause) == nil {
		p.lookForMembers(watching)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	for !p.closed {
		p.closeList(watching)
	}
}

// end makes that no further member begins.
func (p *packRun) end() {
	p.ended = true
	p.changed.Broadcast()
}

// lookForMembers takes members that have joined, if there is a place for them.
func (p *packRun) lookForMembers(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.closed || p.inSlots || len(p.left) > 0 {
		return
	}
	if _, err := p.take(p.Joining.Look); err != nil {
		p.Worker.Log.WarnContext(ctx, "cannot look for members that join", slog.Any("error", err))
	}
}

// closeList closes the list of members, unless members have joined before: it takes those. It gives up if the disk does not let it
// in time. Members that join later have no turn, and their bridge sees that from the end of the job.
func (p *packRun) closeList(ctx context.Context) {
	if p.inSlots {
		p.changed.Wait()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	joined, err := p.take(func() ([]spool.Attempt, error) { return p.Joining.Close(ctx) })
	if err != nil {
		p.Worker.Log.WarnContext(ctx, "cannot close the list of members", slog.Any("error", err))
	}
	p.closed = joined == 0
}

// take takes the members of the next slot from the disk, without the mutex: a disk that hangs delays nothing else. It wakes the places
// that wait for the outcome.
func (p *packRun) take(from func() ([]spool.Attempt, error)) (joined int, err error) {
	p.inSlots = true
	p.mu.Unlock()
	members, err := from()
	p.mu.Lock()
	p.inSlots = false
	p.left = append(p.left, members...)
	p.bundles += len(members)
	p.changed.Broadcast()
	return len(members), err
}

// runMember runs one member in a place. Its failures concern no other member, except for those of the shared disk.
func (p *packRun) runMember(ctx context.Context, at *place, member spool.Attempt) {
	output := &outputFile{path: member.OutputPath()}
	defer output.close()
	defer time.AfterFunc(statusDelay, output.open).Stop()
	w := p.Worker
	w.place, w.Log = at, slog.New(warningHandler{p.LogTo(output).Handler(), output})
	if at.containers != nil {
		w.Containers = at.containers
	}
	if at.visible != "" {
		w.VisibleDevices = at.visible
	}
	exit, err := w.Run(ctx, member.SpecPath())
	p.note(ctx, w.Log, member, exit, err)
	if exit.Cause != spool.CauseSucceeded || exit.Note != "" {
		output.open()
	}
	if err := output.failure(); err != nil {
		p.Worker.Log.WarnContext(ctx, "cannot write to the bundle's own file of output", slog.Any("error", err))
	}
}

// note notes the end of a member, or the reason why it has not begun. A member that another worker may have begun has that worker's
// file of output.
func (p *packRun) note(ctx context.Context, own *slog.Logger, member spool.Attempt, exit spool.Exit, err error) {
	switch {
	case errors.Is(err, ErrSpec):
		own.ErrorContext(ctx, "the member is not begun", slog.Any("error", err))
	case errors.Is(err, ErrTaken), errors.Is(err, ErrLeft):
		p.Worker.Log.InfoContext(ctx, "the member is not begun", slog.String("directory", member.Dir), slog.Any("error", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.changed.Broadcast()
	switch {
	case err == nil:
		p.begun++
	case errors.Is(err, ErrNotBegun):
		p.end() // the disk takes no start
		p.failures = append(p.failures, err)
	case errors.Is(err, ErrUnrecorded):
		p.begun++
		p.failures = append(p.failures, err)
	}
	p.noteSick(exit)
}

// noteSick leaves the further members of a pack on a sick node. The caller holds mu.
func (p *packRun) noteSick(exit spool.Exit) {
	switch {
	case exit.NodeAtFault:
		p.sick++
	case exit.Cause != "": // it has begun
		p.sick = 0
	}
	if p.sick >= mostSick {
		p.isSick = true
		p.end()
	}
}
