package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

const (
	// statusDelay is the time for which the first status record waits for the command to begin, so
	// that a usual start writes one record and not two.
	statusDelay = time.Second
	statusPause = 5 * time.Second // the shortest pause between two status records
	samplePause = time.Second     // between two samples of the usage
)

// nextStatus returns the pause between two status records of an attempt of this age. It grows,
// because all workers share the disk and nobody watches a run of days by the second.
func nextStatus(age time.Duration) time.Duration {
	return min(max(age/10, statusPause), time.Minute)
}

// reportStatus rings the doorbell for the start, and then writes the attempt's status until ctx
// ends. It runs in the background, so a shared disk that hangs or is full delays nothing else.
func (r *attemptRun) reportStatus(ctx context.Context) {
	r.ringBell(ctx)
	began := time.Now()
	tick := time.NewTimer(statusDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.usage.changed:
		case <-tick.C:
		}
		now := time.Now()
		if err := r.attempt.WriteStatus(r.usage.snapshot(now)); err != nil {
			r.Log.WarnContext(ctx, "cannot write the status record", slog.Any("error", err))
		}
		tick.Reset(nextStatus(now.Sub(began)))
	}
}

// watchUsage samples the command's use. It stops the command at its time limit, and at its memory
// limit if the kernel does not enforce that. Time for which Slurm suspends the job does not count
// (see runTime).
func (r *attemptRun) watchUsage(ctx context.Context, m meter, started <-chan int, stopCommand context.CancelCauseFunc) {
	var root int
	select {
	case root = <-started:
	case <-ctx.Done():
		return
	}
	m = m.ofContainer(root)
	limit := timeLimit(r.spec.Seconds)
	ran := runTime{counted: time.Now()}
	expiry := time.NewTimer(ran.next(limit))
	defer expiry.Stop()
	memory := r.spec.MemoryBytes
	if m.memory.enforces(memory) {
		memory = 0
	}
	tick := time.NewTicker(samplePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case root = <-started: // the next runtime, after one that the host refused
		case <-expiry.C:
			ran.count(time.Now())
			if ran.total < limit {
				expiry.Reset(ran.next(limit))
			} else {
				stopCommand(&limitError{timeSentence(ran.total, limit)})
			}
		case <-tick.C:
			s := m.read(root)
			r.usage.addSample(s)
			if used := m.above(s, root, memory); used > 0 {
				stopCommand(&limitError{memorySentence(memory, used)})
			}
		}
	}
}

// runTime is the time for which a command has run. Slurm suspends a job by stopping its processes,
// including the worker (slurm.conf(5): PreemptMode, SUSPEND), and no clock omits the time of the
// stop. So the worker counts the time in parts of a second. A part that took two seconds or more
// contains a stop, and counts as one second.
type runTime struct {
	total   time.Duration
	counted time.Time // the end of the last part
}

const runTimePart = time.Second

// next returns the length of the next part.
func (r *runTime) next(limit time.Duration) time.Duration {
	return min(runTimePart, limit-r.total)
}

// count ends a part.
func (r *runTime) count(now time.Time) {
	part := now.Sub(r.counted)
	if part >= 2*runTimePart {
		part = runTimePart
	}
	r.total += part
	r.counted = now
}

// timeLimit returns a specification's time limit. Without one, it returns more than any job's run
// time.
func timeLimit(seconds float64) time.Duration {
	const longest = 100 * 365 * 24 * 3600
	if !(seconds > 0) || seconds > longest {
		seconds = longest
	}
	return time.Duration(seconds * float64(time.Second))
}

// Bounds of a walk through the working directory: while the command runs, and at its end, when the
// bridge waits for the record.
const (
	walkEntries      = 1 << 20
	finalWalkEntries = 2000
	finalWalkTime    = 100 * time.Millisecond
)

// watchDisk measures the working directory for at most a tenth of the time, and stops a command
// that exceeds its disk limit.
func (r *attemptRun) watchDisk(ctx context.Context, stopCommand context.CancelCauseFunc) {
	for rest := samplePause; pause.For(ctx, rest) == nil; {
		began := time.Now()
		bytes, _ := r.diskUse(ctx, walkEntries)
		if ctx.Err() != nil {
			return
		}
		r.usage.setDisk(bytes)
		if limit := r.spec.DiskBytes; limit > 0 && bytes > limit {
			stopCommand(&limitError{diskSentence(limit, bytes)})
		}
		rest = max(samplePause, 10*time.Since(began))
	}
}

// finalDisk measures the working directory once more, unless that takes long.
func (r *attemptRun) finalDisk(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finalWalkTime)
	defer cancel()
	if bytes, whole := r.diskUse(ctx, finalWalkEntries); whole {
		r.usage.setDisk(bytes)
	}
}

// leastRoom is the room below which a disk counts as full, because many disks refuse writes while
// they still have a little room.
const leastRoom = 1 << 20

// freeSpace returns the free space of a directory's disk; false if it is not known.
func freeSpace(dir string) (bytes int64, known bool) {
	s, err := diskspace.Of(dir)
	return s.Free, err == nil && s.Total > 0 // some network file systems report 0 blocks
}

// diskFull reports whether a directory's disk is known to be full.
func diskFull(dir string) bool {
	free, known := freeSpace(dir)
	return known && free < leastRoom
}

// diskUse returns the size of the command's files in its working directory. A local one has only
// links to the output files, so diskUse adds those.
func (r *attemptRun) diskUse(ctx context.Context, entries int) (bytes int64, whole bool) {
	bytes, whole = diskUse(ctx, r.workingDir, entries)
	if r.workingDir == r.spec.RunDir {
		return bytes, whole
	}
	for _, name := range outputs() {
		if info, err := os.Lstat(filepath.Join(r.spec.RunDir, name)); err == nil {
			bytes += info.Size()
		}
	}
	return bytes, whole
}

// diskUse adds up the sizes of the files below dir, as CodaLab does (codalab/worker/file_util.py:
// get_path_size): it does not follow links, and counts sparse files in full. It stops after a
// number of entries, and then whole is false. It counts directories that the command has closed, if this
// user has subordinate ids: only root in a namespace with these can open those of other ids.
func diskUse(ctx context.Context, dir string, entries int) (bytes int64, whole bool) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrPermission) {
		bytes, err = subids.Measure(ctx, dir)
		return bytes, err == nil
	}
	if err != nil {
		return 0, false
	}
	defer func() { _ = root.Close() }()
	pending, closed := []string{"."}, false
	for len(pending) > 0 {
		name := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		d, err := openDir(root, name)
		if err != nil {
			closed = closed || errors.Is(err, fs.ErrPermission)
			continue // the command removed, replaced or closed it
		}
		for {
			batch, err := d.ReadDir(256)
			for _, e := range batch {
				if e.IsDir() {
					pending = append(pending, name+"/"+e.Name())
				} else if info, err := e.Info(); err == nil {
					bytes += info.Size()
				}
			}
			entries -= len(batch)
			if ctx.Err() != nil || entries < 0 {
				_ = d.Close()
				return bytes, false
			}
			if err != nil {
				break
			}
		}
		_ = d.Close()
	}
	if closed {
		if all, err := subids.Measure(ctx, dir); err == nil {
			return all, true
		}
	}
	return bytes, true
}

// openDir opens a directory. The command may have replaced it with a pipe, which must not block.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}
