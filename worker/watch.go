package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	statusPause = 5 * time.Second // between two status records
	samplePause = time.Second     // between two looks at what is used
)

// report tells the bridge that the attempt is begun and then, until ctx ends,
// how it goes on. A shared disk that hangs or is full keeps nothing else from
// being done.
func (r *run) report(ctx context.Context) {
	r.ring(ctx)
	tick := time.NewTicker(statusPause)
	defer tick.Stop()
	for {
		now := time.Now() //nolint:forbidigo // a record's date
		if err := r.attempt.WriteStatus(r.account.snapshot(now)); err != nil {
			r.Log.WarnContext(ctx, "write the status", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.account.changed:
		case <-tick.C:
		}
	}
}

// watch samples what the command uses, and stops it when its time is over or
// when it takes more memory than it asked for and nothing else keeps it from
// that.
func (r *run) watch(ctx context.Context, m meter, started <-chan int, stop context.CancelCauseFunc) {
	var root int
	select {
	case root = <-started:
	case <-ctx.Done():
		return
	}
	var expired <-chan time.Time
	limit := timeLimit(r.spec.Seconds)
	began := time.Now() //nolint:forbidigo // the command's time is the clock's
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
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
		case root = <-started: // by another way
		case now := <-expired:
			stop(&limitError{timeSentence(now.Sub(began), limit)})
		case <-tick.C:
			s := m.read(root)
			r.account.use(s)
			if used := m.above(s, root, memory); used > 0 {
				stop(&limitError{memorySentence(memory, used)})
			}
		}
	}
}

// timeLimit is a specification's limit; 0 means none.
func timeLimit(seconds float64) time.Duration {
	const longest = 100 * 365 * 24 * 3600 // which no job reaches
	if !(seconds > 0) || seconds > longest {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// What a walk through the working directory may cost: on the way, and at the
// end, when everybody waits for the record.
const (
	walkEntries      = 1 << 20
	finalWalkEntries = 2000
	finalWalkTime    = 100 * time.Millisecond
)

// watchDisk measures the working directory now and then, a tenth of the time
// at most, and stops a command that fills it above its limit.
func (r *run) watchDisk(ctx context.Context, stop context.CancelCauseFunc) {
	for rest := samplePause; pause(ctx, rest); {
		began := time.Now() //nolint:forbidigo // how long it takes decides the rest
		bytes, _ := r.diskUse(ctx, walkEntries)
		if ctx.Err() != nil {
			return
		}
		r.account.occupy(bytes)
		if limit := r.spec.DiskBytes; limit > 0 && bytes > limit {
			stop(&limitError{diskSentence(limit, bytes)})
		}
		rest = max(samplePause, 10*time.Since(began)) //nolint:forbidigo // as above
	}
}

// finalDisk measures the working directory once more if that is quick.
func (r *run) finalDisk(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finalWalkTime)
	defer cancel()
	if bytes, whole := r.diskUse(ctx, finalWalkEntries); whole {
		r.account.occupy(bytes)
	}
}

// leastRoom is how much room a disk has that is not full: a little is left on
// many where nothing can be written any more.
const leastRoom = 1 << 20

// diskFull says whether a directory's disk is known to be full.
func diskFull(dir string) bool {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 { // some network file systems count nothing
		return false
	}
	return s.Bavail*uint64(max(s.Frsize, 0)) < leastRoom
}

// diskUse is what the command has written to its working directory, and to the
// output files that a local one has only links to.
func (r *run) diskUse(ctx context.Context, entries int) (bytes int64, whole bool) {
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
// sparse files count in full. It looks at no more than a number of entries,
// and says whether that was all.
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
			continue // gone, replaced, or shut by the command
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

// openDir opens a directory, and nothing that the command has put in its place:
// a pipe would hold us until somebody writes to it.
func openDir(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}
