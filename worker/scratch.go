package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// scratch is a private directory on the node's own disk. Its worker holds a lock on it. The next
// worker on that node removes directories without a lock, which are those of killed workers.
type scratch struct {
	dir  string
	lock *os.File
}

// scratchPrefix begins the names of all workers' scratch directories.
const scratchPrefix = "cl-worker-"

// makeScratch makes a directory that is named for the job, in parent or, if that is empty, in the
// system's temporary directory. It refuses a full disk, because the command would begin and then
// fail.
func makeScratch(parent, job string) (*scratch, error) {
	dir, err := os.MkdirTemp(parent, scratchPrefix+job+"-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	lock, err := os.Open(dir)
	if err == nil {
		err = lockNow(lock)
		if err == nil {
			err = container.CheckScratch(filepath.Dir(dir))
		}
		if err != nil {
			_ = lock.Close() // nothing was written
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a scratch directory: %w", err), os.Remove(dir))
	}
	return &scratch{dir: dir, lock: lock}, nil
}

func lockNow(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func (s *scratch) remove() error {
	if s == nil {
		return nil
	}
	err := filetree.Remove(s.dir)
	return errors.Join(err, s.lock.Close())
}

// abandonedAge is the age from which a directory without a lock counts as abandoned. A worker makes
// the directory first and its lock after it.
const abandonedAge = time.Minute

// removeAbandonedScratch removes the scratch directories of this user's killed workers in parent.
// If it fails, the next worker tries again.
func removeAbandonedScratch(parent string, now time.Time) {
	if parent == "" {
		parent = os.TempDir()
	}
	left, err := filepath.Glob(filepath.Join(parent, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < abandonedAge {
			continue
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(owner.Uid) != os.Getuid() {
			continue
		}
		lock, err := os.Open(dir)
		if err != nil {
			continue
		}
		if lockNow(lock) == nil {
			_ = filetree.Remove(dir)
		}
		_ = lock.Close()
	}
}
