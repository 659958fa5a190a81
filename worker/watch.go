package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

const (
	// statusDelay is how long the first status record waits for the command to begin: a usual start writes
	// one record, and not two.
	statusDelay = time.Second
	statusPause = 5 * time.Second // between two status records, at first
	samplePause = time.Second     // between two samples of the usage
)

// nextStatus is the pause between two status records of an attempt of this age. All workers share the
// disk, and people do not watch a run of days by the second.
func nextStatus(age time.Duration) time.Duration {
	return min(max(age/10, statusPause), time.Minute)
}

// reportStatus tells the bridge that the attempt has begun, and then writes its
// status until ctx ends. It runs in the background, so a shared disk that hangs
// or is full delays nothing else.
func (r *attemptRun) reportStatus(ctx context.Context) {
	r.ringBell(ctx)
	began := time.Now() //nolint:forbidigo // a record's date
	tick := time.NewTimer(statusDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.usage.changed:
		case <-tick.C:
		}
		now := time.Now() //nolint:forbidigo // as above
		if err := r.attempt.WriteStatus(r.usage.snapshot(now)); err != nil {
			r.Log.WarnContext(ctx, "write the status", slog.Any("error", err))
		}
		tick.Reset(nextStatus(now.Sub(began)))
	}
}

// watchUsage samples what the command uses. It stops the command at its time
// limit, and at its memory limit where the kernel does not enforce that.
// Time in which Slurm suspends the job does not count (see runTime).
func (r *attemptRun) watchUsage(ctx context.Context, m meter, started <-chan int, stop context.CancelCauseFunc) {
	var root int
	select {
	case root = <-started:
	case <-ctx.Done():
		return
	}
	m = m.ofContainer(root)
	limit := timeLimit(r.spec.Seconds)
	ran := runTime{counted: time.Now()} //nolint:forbidigo // the command's time is the clock's
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
		case root = <-started: // a second runtime was tried
		case <-expiry.C:
			ran.count(time.Now()) //nolint:forbidigo // as above
			if ran.total < limit {
				expiry.Reset(ran.next(limit))
			} else {
				stop(&limitError{timeSentence(ran.total, limit)})
			}
		case <-tick.C:
			s := m.read(root)
			r.usage.addSample(s)
			if used := m.above(s, root, memory); used > 0 {
				stop(&limitError{memorySentence(memory, used)})
			}
		}
	}
}

// runTime is how long a command has run. Slurm suspends a job by stopping its
// processes, the worker's too (slurm.conf(5): PreemptMode, SUSPEND), and no clock
// leaves out the time in which a process was stopped. So the worker counts the time
// in parts of a second. A part that took two seconds or more had a stop in it, and
// counts as one second.
type runTime struct {
	total   time.Duration
	counted time.Time // when the last part ended
}

const runTimePart = time.Second

// next is how long the next part is.
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

// timeLimit is a specification's time limit; without one, longer than any job runs.
func timeLimit(seconds float64) time.Duration {
	const longest = 100 * 365 * 24 * 3600
	if !(seconds > 0) || seconds > longest {
		seconds = longest
	}
	return time.Duration(seconds * float64(time.Second))
}

// The cost of a walk through the working directory: while the command runs, and
// at its end, when the bridge waits for the record.
const (
	walkEntries      = 1 << 20
	finalWalkEntries = 2000
	finalWalkTime    = 100 * time.Millisecond
)

// watchDisk measures the working directory for at most a tenth of the time, and
// stops a command that exceeds its disk limit.
func (r *attemptRun) watchDisk(ctx context.Context, stop context.CancelCauseFunc) {
	for rest := samplePause; pause.For(ctx, rest) == nil; {
		began := time.Now() //nolint:forbidigo // how long it takes decides the rest
		bytes, _ := r.diskUse(ctx, walkEntries)
		if ctx.Err() != nil {
			return
		}
		r.usage.setDisk(bytes)
		if limit := r.spec.DiskBytes; limit > 0 && bytes > limit {
			stop(&limitError{diskSentence(limit, bytes)})
		}
		rest = max(samplePause, 10*time.Since(began)) //nolint:forbidigo // as above
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

// leastRoom is the room below which a disk counts as full: many disks have a
// little room left when nothing can be written any more.
const leastRoom = 1 << 20

// diskFull reports whether a directory's disk is known to be full.
func diskFull(dir string) bool {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 { // some network file systems count nothing
		return false
	}
	return s.Bavail*uint64(max(s.Frsize, 0)) < leastRoom
}

// diskUse is what the command has written to its working directory. A local one
// has only links to the output files, which are added.
func (r *attemptRun) diskUse(ctx context.Context, entries int) (bytes int64, whole bool) {
	bytes, whole = diskUse(ctx, r.dir, entries)
	if r.dir == r.spec.RunDir {
		return bytes, whole
	}
	for _, name := range outputs() {
		if info, err := os.Lstat(filepath.Join(r.spec.RunDir, name)); err == nil {
			bytes += info.Size()
		}
	}
	return bytes, whole
}

// diskUse adds up the sizes of the files below dir, as CodaLab does
// (codalab/worker/file_util.py: get_path_size): links are not followed, and
// sparse files count in full. It stops after a number of entries; whole is then
// false.
func diskUse(ctx context.Context, dir string, entries int) (bytes int64, whole bool) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, false
	}
	defer func() { _ = root.Close() }()
	pending := []string{"."}
	for len(pending) > 0 {
		name := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		d, err := openDir(root, name)
		if err != nil {
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
	return bytes, true
}

// openDir opens a directory. The command may have replaced it by a pipe, which
// must not block.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}
