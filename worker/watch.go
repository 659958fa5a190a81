package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/spool"
)

const (
	// statusDelay is the time for which the first status record waits for the command to begin, so
	// that a usual start writes one record and rings once, and not twice.
	statusDelay = time.Second
	statusPause = 5 * time.Second // the shortest pause between two status records
	samplePause = time.Second     // between two samples of the usage
)

// nextStatus returns the pause between two status records of an attempt of this age. It grows,
// because all workers share the disk and nobody watches a run of days by the second.
func nextStatus(age time.Duration) time.Duration {
	return min(max(age/10, statusPause), spool.LongestStatusPause)
}

// reportStatus writes the attempt's status until ctx ends. It rings the doorbell after the first record, for
// the begin of the attempt, and after the first one that shows that the command has begun. A usual start has
// one record and one ring for both. reportStatus runs in the background, so a shared disk that hangs or is full
// delays nothing else. The first record of a member of a pack waits for a second in any case.
func (r *attemptRun) reportStatus(ctx context.Context) {
	began := time.Now()
	tick := time.NewTimer(statusDelay)
	defer tick.Stop()
	attemptRung, commandRung := false, false
	changed := r.usage.changed
	if r.place != nil { // of a member that ends soon the exit record is enough
		changed = nil
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
			changed = r.usage.changed
		}
		now := time.Now()
		status := r.usage.snapshot(now)
		err := r.attempt.WriteStatus(status)
		if err != nil {
			r.Log.WarnContext(ctx, "cannot write the status record", slog.Any("error", err))
		}
		commandShown := err == nil && !status.CommandStarted.IsZero()
		if ctx.Err() == nil && (!attemptRung || commandShown && !commandRung) { // runBundle rings for the end
			r.ringBell(ctx)
			attemptRung, commandRung = true, commandShown
		}
		tick.Reset(nextStatus(now.Sub(began)))
	}
}

// watchUsage samples the command's use. It stops the command at its time limit, or so long before it as the
// specification says (see commandLimit), and at its memory limit if the kernel does not enforce that. Time for which Slurm
// suspends the job does not count (see runTime).
func (r *attemptRun) watchUsage(ctx context.Context, m meter, started <-chan int, stopCommand context.CancelCauseFunc) {
	var root int
	select {
	case root = <-started:
	case <-ctx.Done():
		return
	}
	ran := runTime{counted: time.Now()}
	expiry := time.NewTimer(ran.next(r.time.limit().signal))
	defer expiry.Stop()
	tick := time.NewTicker(samplePause)
	defer tick.Stop()
	of, tree, memory := m, 0, r.spec.MemoryBytes // of the container from its first sample on: most are short
	for {
		select {
		case <-ctx.Done():
			return
		case root = <-started: // the next runtime, after one that the host refused
			tree = 0
		case <-expiry.C:
			ran.count(time.Now())
			r.time.ran.Store(int64(ran.total))
			if limit := r.time.limit(); ran.total < limit.signal {
				expiry.Reset(ran.next(limit.signal))
			} else {
				stopCommand(&limitError{sentence: limit.sentence(ran.total), timedOut: true})
			}
		case <-tick.C:
			if tree == 0 {
				of, tree = m.ofContainer(root)
				if of.memory.enforces(memory) {
					memory = 0
				}
			}
			s := of.read(tree)
			r.usage.addSample(s)
			if used := of.above(s, tree, memory); used > 0 {
				stopCommand(&limitError{sentence: memorySentence(memory, used)})
			}
		}
	}
}

// Limits of the last measurement of the disk, for which the bridge waits: of a run with a limit or on a full disk, and
// of others.
const (
	judgedWalkTime = time.Minute
	finalWalkTime  = 100 * time.Millisecond
)

// watchDisk measures the run's disk space for at most a tenth of the time, and stops a command that exceeds
// its limit.
func (r *attemptRun) watchDisk(ctx context.Context, stopCommand context.CancelCauseFunc) {
	for rest := samplePause; pause.For(ctx, rest) == nil; {
		began := time.Now()
		bytes, err := r.measureDisk(ctx, false, true)
		if ctx.Err() != nil {
			return
		}
		r.usage.setDisk(bytes)
		limit := r.spec.DiskBytes
		switch {
		case limit <= 0:
		case bytes > limit:
			stopCommand(&limitError{sentence: diskSentence(limit, bytes)})
			return // a later measurement would lack files whose last descriptor the command's processes had
		case err != nil: // finalDisk opens closed directories
			r.Log.DebugContext(ctx, "the run's disk space was not measured whole", slog.Any("error", err))
		}
		rest = max(samplePause, 10*time.Since(began))
	}
}

// finalDisk measures the run's disk space once more, opens the directories that the command has closed, and
// returns a *limitError if the run has exceeded its limit. unmeasured is the reason why that is not known.
func (r *attemptRun) finalDisk(ctx context.Context, hurry bool) (overLimit, unmeasured error) {
	limit, longest := r.spec.DiskBytes, finalWalkTime
	if !hurry && (limit > 0 || diskFull(r.spec.RunDir)) { // the verdict depends on it
		longest = judgedWalkTime
	}
	walk, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	bytes, err := r.measureDisk(walk, limit > 0, false)
	if err == nil {
		r.usage.setDisk(bytes)
	}
	switch {
	case limit <= 0:
		return nil, nil
	case bytes > limit:
		r.usage.setDisk(bytes)
		return &limitError{sentence: diskSentence(limit, bytes)}, nil
	case walk.Err() != nil:
		return nil, fmt.Errorf("its disk space at the end could not be measured within %v, and was %s before", longest, codalab.FormatSize(r.usage.snapshot(time.Time{}).Usage.DiskBytes))
	case err != nil:
		return nil, fmt.Errorf("its disk space at the end could not be measured: %w", err)
	}
	return nil, nil
}

// leastRoom is the room below which a disk counts as full, because many disks refuse writes while
// they still have a little room.
const leastRoom = 1 << 20

// freeSpace returns the free space of a directory's disk; false if it is not known.
func freeSpace(dir string) (bytes int64, known bool) {
	s, err := diskspace.Of(dir)
	return s.Free, err == nil && s.Total > 0 // some network file systems report 0 blocks
}

// freeBefore returns the free space of the working directory's disk before the command, 0 if it is not known. Of a run with a limit, the
// limit says what it may fill.
func (r *attemptRun) freeBefore() int64 {
	if r.spec.DiskBytes > 0 {
		return 0
	}
	free, _ := freeSpace(r.workingDir)
	return free
}

// diskFull reports whether a directory's disk is known to be full.
func diskFull(dir string) bool {
	free, known := freeSpace(dir)
	return known && free < leastRoom
}

// measureDisk returns what the run takes of disks: in the working directory, in the private directory, which
// has the container's root and TMPDIR, and in files that are open and have no name. bytes is also right as a
// lower bound after an error. open opens closed directories of this user. running is set while processes of the container may have files
// without a name.
func (r *attemptRun) measureDisk(ctx context.Context, open, running bool) (bytes int64, err error) {
	trees := r.private.trees()
	if running {
		trees = append(trees, r.place.trees(r.private)...)
	}
	if r.workingDir == r.spec.RunDir {
		trees = append(trees, diskuse.Tree{Dir: r.workingDir})
	} else { // the private directory has it, with links to the output files
		for _, name := range outputs() {
			if info, err := os.Lstat(filepath.Join(r.spec.RunDir, name)); err == nil {
				bytes += info.Size()
			}
		}
	}
	for i := range trees {
		trees[i].Open = open
	}
	found, err := diskuse.Measure(ctx, trees...)
	if errors.Is(err, diskuse.ErrClosed) {
		if all, failed := subids.Measure(ctx, trees...); failed == nil {
			found, err = all, nil
		}
	}
	bytes = diskuse.Add(bytes, found)
	if pid := r.usage.snapshot(time.Time{}).Container.PID; pid != 0 && running {
		proc, root := treeOf(r.procDir(), pid)
		bytes = diskuse.Add(bytes, diskUnlinked(proc, root, r.workingDir, r.private.dir))
	}
	return bytes, err
}
