package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// place is an equal part of a pack's allocation. It has one member at a time.
type place struct {
	cpus []int
	// gpus is the number of its GPUs. They are those of indexes, or the MIG devices of visible (CUDA_VISIBLE_DEVICES). If Slurm does not
	// tell the job's GPUs, unknown is set, and the place has its part of those that the job may open.
	gpus    int
	indexes []int
	visible string
	unknown error
	// number is that of the place, of so many.
	number, of int
	// end is the end of the job; zero if it is not known.
	end time.Time
	// job is the job's memory cgroup, and memory the place's part of its limit; 0 for no limit.
	job        cgroup
	memory     int64
	containers PlaceRuntime // nil if its members have the worker's
	// private is the place's own directory in the scratch of its last member; nil until there is one.
	private *privateDir
	// spare is the last member's private directory, emptied for the next one; nil if there is none.
	spare   *privateDir
	scratch string // of the last member
}

// divide divides the allocation. Places share processors only if there are fewer than places.
func (p Pack) divide() ([]place, error) {
	cpus, err := affinity.Own()
	if err != nil {
		return nil, err
	}
	w := p.Worker
	job := w.cgroupOfJob("memory")
	memory := job.memoryLimit() / int64(p.Places)
	mig := migDevices(w.VisibleDevices)
	indexes, unknown := ParseGPUIndexes(w.JobGPUs)
	places := make([]place, p.Places)
	for i := range places {
		at := place{cpus: share(cpus, i, p.Places), end: p.End, job: job, memory: memory, number: i, of: p.Places}
		if len(at.cpus) == 0 {
			at.cpus = cpus[i*len(cpus)/p.Places:][:1]
		}
		if mig != nil {
			own := share(mig, i, p.Places)
			at.gpus, at.visible = len(own), strings.Join(own, ",")
		} else {
			at.indexes, at.unknown = share(indexes, i, p.Places), unknown
			at.gpus = len(at.indexes)
		}
		places[i] = at
	}
	return places, nil
}

// share returns the part with this number of n equal parts.
func share[T any](all []T, number, n int) []T {
	return all[number*len(all)/n : (number+1)*len(all)/n]
}

// has limits the GPUs of a node to those of the place, where each member has asked for want; a nil place is the whole job.
func (p *place) has(present []gpu, want int) ([]gpu, error) {
	if p == nil || p.visible != "" {
		return present, nil
	}
	if p.unknown == nil {
		return slices.DeleteFunc(present, func(g gpu) bool { return !slices.Contains(p.indexes, g.index) }), nil
	}
	allowed := allowedOf(present)
	if len(allowed) != want*p.of {
		return nil, fmt.Errorf("the job of the pack may open %s where it asked for %d, and its own ones are unknown: %w", countGPUs(len(allowed)), want*p.of, p.unknown)
	}
	return share(allowed, p.number, p.of), nil
}

// keptDir returns a directory in a scratch for what the place keeps between members; "" if there can be none.
func (p *place) keptDir(scratch, job string) string {
	if p == nil || p.containers == nil {
		return ""
	}
	if p.private == nil || p.private.scratch != scratch {
		_ = p.private.remove() // as for a killed worker, if it fails
		p.private, _ = makePrivateDir(scratch, job)
	}
	if p.private == nil {
		return ""
	}
	return p.private.dir
}

// takePrivateDir returns a private directory for the next member: the spare one, or a new one. p may be nil.
func (p *place) takePrivateDir(scratch, job string) (*privateDir, error) {
	if p == nil {
		return makePrivateDir(scratch, job)
	}
	spare := p.spare
	p.spare, p.scratch = nil, scratch
	if spare != nil && spare.scratch == scratch && spare.renew() == nil {
		return spare, nil
	}
	_ = spare.remove() // as for a killed worker, if it fails
	return makePrivateDir(scratch, job)
}

// leavePrivateDir removes a member's private directory, or makes it the spare one. p and s may be nil.
func (p *place) leavePrivateDir(s *privateDir) error {
	if p != nil && s != nil && s.vacated && s.empty() {
		p.spare = s
		return nil
	}
	return s.remove()
}

// trees returns the directories in which the root of a running container may be, given the private directory of its command
// (container.Container.KeptDir). p may be nil.
func (p *place) trees(of *privateDir) []diskuse.Tree {
	began := of.began.Load()
	if p == nil || p.private == nil || began == 0 {
		return nil
	}
	return []diskuse.Tree{{Dir: p.private.dir, Since: time.Unix(0, began)}}
}

// leave removes the place's directories, and what killed workers have left beside them.
func (p *place) leave(ctx context.Context, w Worker) {
	if err := errors.Join(p.private.remove(), p.spare.remove()); err != nil {
		w.Log.WarnContext(ctx, "cannot remove the private directory", slog.Any("error", err))
	}
	removeAbandoned(p.scratch, time.Now())
}

// endMargin is the time between the last KILL to a command and its exit record: for the copy of its results, and for the record.
const endMargin = copyGrace + 20*time.Second

// admit returns an error if a member must not begin in the place at this time.
func (p *place) admit(a spool.Attempt, spec spool.Spec, now time.Time) error {
	stopped, err := a.Stopped()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrLeft, err)
	case stopped:
		return fmt.Errorf("%w: attempt %d of %s was stopped by its bridge", ErrLeft, spec.Attempt, spec.Bundle)
	case p.end.IsZero() || !(spec.Seconds > 0):
		return nil
	}
	grace := container.Container{KillGrace: killGrace(spec)}.KillGraceOrDefault()
	needs := longestIfNone(spec.Seconds) + grace + endMargin
	if left := p.end.Sub(now); needs > left {
		return fmt.Errorf("%w: attempt %d of %s may take %s, and the job ends in %s", ErrLeft, spec.Attempt, spec.Bundle, needs, left.Round(time.Second))
	}
	return nil
}

// stopPause is the least time between two looks at the file of stops, and longestStopPause the longest one.
const (
	stopPause        = 2 * time.Second
	longestStopPause = 10 * time.Second
)

// nextStop returns the pause between two looks of a member of this age. It grows, because all members that run look on the shared disk: 16
// runs of an hour make two looks a second there and not eight. A run of up to two seconds makes none.
func nextStop(age time.Duration) time.Duration { return min(max(age/10, stopPause), longestStopPause) }

// followStop calls stop when the bridge stops the member. It runs in the background, so a shared disk that hangs delays nothing
// else.
func (r *attemptRun) followStop(ctx context.Context, stop func()) {
	warned, expected, began := false, false, time.Now()
	for pause.For(ctx, nextStop(time.Since(began))) == nil {
		var unexpected error
		if !expected {
			unexpected = r.attempt.ExpectStop()
			expected = unexpected == nil
		}
		stopped, err := r.attempt.Stopped()
		err = errors.Join(unexpected, err)
		switch {
		case stopped:
			r.Log.InfoContext(ctx, "stopped by the bridge")
			stop()
			return
		case err != nil && !warned:
			warned = true
			r.Log.WarnContext(ctx, "cannot read whether the bridge stops the member", slog.Any("error", err))
		}
	}
}

// oomKills returns the number of the job's processes that the kernel has killed for memory.
func (p *place) oomKills() int64 {
	if p == nil || p.job.dir == "" {
		return 0
	}
	return p.job.readOOMKills()
}

// killsSince returns the kills for memory in the job since there were so many. Those beside a command that has succeeded mean nothing.
func (p *place) killsSince(before int64, exit container.Exit) int64 {
	if exit.Code == 0 {
		return 0
	}
	return p.oomKills() - before
}

// judgeKills adds the kills for memory in the job while a member ran to its end. The kernel does not tell whose processes it kills, nor
// who took the memory. A command that SIGKILL has ended, although this worker sent none, was hit; of another one that has failed, a
// note says that it may have been. signalled is set if the worker has stopped the command.
//
// A command that was hit has taken too much only if its measured peak has reached limit: the largest of the samples of all its processes,
// one each second, and of the peaks of single ones, which the kernel keeps (getrusage(2), ru_maxrss). Else another member may have
// taken the memory.
func (e *ending) judgeKills(kills, limit int64, signalled bool) {
	switch hit := e.exit.Signal == int(syscall.SIGKILL) && !signalled; {
	case kills <= 0 || e.exit.Code == 0:
	case hit && e.memoryPeak >= limit:
		e.oomKills += kills
	case hit:
		e.struck = true
	default:
		e.exit.Note = joinPhrases(e.exit.Note, "the kernel killed a process for memory while the command ran, of this run or of another one in the same job")
	}
}

// memoryOf returns the memory that a member may take: its request, or without one the place's part of the job's; 0 if that is not known.
func (p *place) memoryOf(spec spool.Spec) int64 {
	if p == nil {
		return spec.MemoryBytes
	}
	return cmp.Or(spec.MemoryBytes, p.memory)
}
