package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// privateDir is a worker's own directory in the node's scratch. Its worker holds a lock on it. The next
// worker on that node removes directories without a lock, which are those of killed workers.
type privateDir struct {
	dir   string
	lock  *os.File
	began atomic.Int64 // see commandBegan
}

// privatePrefix begins the names of all workers' private directories.
const privatePrefix = "cl-worker-"

// makePrivateDir makes a directory that is named for the job, in the scratch or, if that is empty, in the
// system's temporary directory. It refuses a full disk, because the command would begin and then
// fail.
func makePrivateDir(scratch, job string) (*privateDir, error) {
	dir, err := os.MkdirTemp(scratch, privatePrefix+job+"-")
	if err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
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
		return nil, errors.Join(fmt.Errorf("make a private directory: %w", err), os.Remove(dir))
	}
	return &privateDir{dir: dir, lock: lock}, nil
}

func lockNow(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// commandBegan notes the time of the command's begin, by the clock of the directory's file system.
func (s *privateDir) commandBegan() {
	if os.Chmod(s.dir, 0o700) != nil { // as it is; sets the time of the change
		return
	}
	var st unix.Stat_t
	if unix.Stat(s.dir, &st) == nil {
		s.began.Store(time.Unix(st.Ctim.Unix()).UnixNano())
	}
}

// trees returns the directories in which the command's files are: TMPDIR, a local working directory, and
// those of the container, which also have files from before the command, such as an image's that were
// unpacked.
func (s *privateDir) trees() (trees []diskuse.Tree) {
	began := s.began.Load()
	entries, err := os.ReadDir(s.dir)
	if err != nil || began == 0 {
		return nil
	}
	for _, e := range entries {
		t := diskuse.Tree{Dir: filepath.Join(s.dir, e.Name())}
		if e.Name() != tempName && e.Name() != workingDirName {
			t.Since = time.Unix(0, began)
		}
		trees = append(trees, t)
	}
	return trees
}

func (s *privateDir) remove() error {
	if s == nil {
		return nil
	}
	err := filetree.Remove(s.dir)
	return errors.Join(err, s.lock.Close())
}

// abandonedAge is the age from which a directory without a lock counts as abandoned. A worker makes
// the directory first and its lock after it.
const abandonedAge = time.Minute

// removeAbandoned removes the private directories of this user's killed workers in the scratch.
// If it fails, the next worker tries again.
func removeAbandoned(scratch string, now time.Time) {
	if scratch == "" {
		scratch = os.TempDir()
	}
	left, err := filepath.Glob(filepath.Join(scratch, privatePrefix+"*"))
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
