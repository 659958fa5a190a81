package worker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// place is an equal part of a pack's allocation. It has one member at a time.
type place struct {
	cpus []int
	// gpus is the number of its GPUs. They are those of indexes, or the MIG devices of visible (CUDA_VISIBLE_DEVICES).
	gpus    int
	indexes []int
	visible string
	// end is the end of the job; zero if it is not known.
	end time.Time
	// job is the job's memory cgroup.
	job        cgroup
	containers PlaceRuntime // nil if its members have the worker's
	// private is the place's own directory in the scratch of its last member; nil until there is one.
	private *privateDir
	scratch string
}

// divide divides the allocation. Places share processors only if there are fewer than places.
func (p Pack) divide() ([]place, error) {
	cpus, err := affinity.Own()
	if err != nil {
		return nil, err
	}
	w := p.Worker
	proc := w.procDir()
	job := findCgroup(readText(filepath.Join(proc, "self/cgroup")), readText(filepath.Join(proc, "self/mountinfo")), "memory", jobDirs(w.Job, w.SLUID))
	mig := migDevices(w.VisibleDevices)
	indexes, _ := ParseGPUIndexes(w.JobGPUs) // none is known after an error
	places := make([]place, p.Places)
	for i := range places {
		at := place{cpus: share(cpus, i, p.Places), end: p.End, job: job}
		if len(at.cpus) == 0 {
			at.cpus = cpus[i*len(cpus)/p.Places:][:1]
		}
		if mig != nil {
			own := share(mig, i, p.Places)
			at.gpus, at.visible = len(own), strings.Join(own, ",")
		} else {
			at.indexes = share(indexes, i, p.Places)
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

// has limits the GPUs of a node to those of the place; a nil place is the whole job.
func (p *place) has(present []gpu) []gpu {
	if p == nil || p.visible != "" {
		return present
	}
	return slices.DeleteFunc(present, func(g gpu) bool { return !slices.Contains(p.indexes, g.index) })
}

// keptDir returns a directory in a scratch for what the place keeps between members; "" if there can be none.
func (p *place) keptDir(scratch, job string) string {
	if p == nil || p.containers == nil {
		return ""
	}
	if p.private == nil || p.scratch != scratch {
		_ = p.private.remove() // as for a killed worker, if it fails
		p.private, _ = makePrivateDir(scratch, job)
		p.scratch = scratch
	}
	if p.private == nil {
		return ""
	}
	return p.private.dir
}

// leave removes the place's own directory, and what killed workers have left beside it.
func (p *place) leave(ctx context.Context, w Worker) {
	if err := p.private.remove(); err != nil {
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

// stopPause is the time between two looks at the file of stops.
const stopPause = 2 * time.Second

// followStop calls stop when the bridge stops the member. It runs in the background, so a shared disk that hangs delays nothing
// else.
func (r *attemptRun) followStop(ctx context.Context, stop func()) {
	warned := false
	for pause.For(ctx, stopPause) == nil {
		stopped, err := r.attempt.Stopped()
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
	var s sample
	p.job.readMemory(&s)
	return s.oomKills
}

// ownKills returns the kills for memory that hit a member, of those in the job while it ran. The kernel does not tell whose
// processes it kills. A command that SIGKILL has ended, although this worker sent none, was hit; of another one that has failed,
// note says that it may have been. signalled is set if the worker has stopped the command.
func ownKills(kills int64, got container.Exit, signalled bool) (own int64, note string) {
	switch {
	case kills <= 0 || got.Code == 0:
		return 0, ""
	case got.Signal == int(syscall.SIGKILL) && !signalled:
		return kills, ""
	}
	return 0, "the kernel killed a process for memory while the command ran, of this run or of another one in the same job"
}
