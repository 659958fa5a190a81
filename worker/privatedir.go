package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/dirstate"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// privateDir is a worker's own directory in the node's scratch. Its worker holds a lock on it. The next
// worker on that node removes directories without a lock, which are those of killed workers.
//
// To make and to free a file takes longer than much else of a short run. So a place of a pack uses the directory, with TMPDIR,
// for its next member if the last one has left them as they were (place.leavePrivateDir).
type privateDir struct {
	dir     string
	scratch string
	lock    *os.File     // the open directory
	began   atomic.Int64 // see commandBegan
	// temp is TMPDIR, open; nil if the directory serves one member. made describes the directory and temp before the first command.
	temp *os.File
	made [2]dirstate.State
	// vacated is set if certainly no process of the command is left that could use TMPDIR.
	vacated bool
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
	if err := os.Chmod(dir, 0o700); err != nil { // a scratch may give it a bit of its own (setgid), which commandBegan would remove
		return nil, errors.Join(fmt.Errorf("make a private directory: %w", err), os.Remove(dir))
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
	return &privateDir{dir: dir, scratch: scratch, lock: lock}, nil
}

func lockNow(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// makeTemp makes TMPDIR, unless it is there since an earlier member, and returns its path. more is set if further members may follow.
func (s *privateDir) makeTemp(more bool) (string, error) {
	temp := filepath.Join(s.dir, tempName)
	if s.temp != nil {
		return temp, nil
	}
	err := os.Mkdir(temp, 0o700)
	if err == nil {
		err = os.Chmod(temp, fs.ModeSticky|0o777) // its parent is closed to other users
	}
	if err != nil {
		return "", fmt.Errorf("make TMPDIR: %w", err)
	}
	if more {
		s.temp, err = os.Open(temp)
		if err == nil {
			s.made, err = s.state()
		}
		if err != nil { // the directory serves one member
			_ = s.temp.Close() // it was only read
			s.temp = nil
		}
	}
	return temp, nil
}

// state describes the directory and TMPDIR.
func (s *privateDir) state() (now [2]dirstate.State, err error) {
	if now[0], err = dirstate.Of(s.lock); err == nil {
		now[1], err = dirstate.Of(s.temp)
	}
	return now, err
}

// mostLeft limits the entries of a directory that empty removes. A directory that had many would often not shrink.
const mostLeft = 256

// empty removes what a member has left, and reports whether the directory is then as it was before the first one.
func (s *privateDir) empty() bool {
	if s.temp == nil || !removeEntries(s.temp, "") || !removeEntries(s.lock, tempName) {
		return false
	}
	now, err := s.state()
	return err == nil && now == s.made
}

// removeEntries removes the entries of an open directory but one, and reports whether no others are left.
func removeEntries(dir *os.File, but string) bool {
	for range 2 {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return false
		}
		names, err := dir.Readdirnames(mostLeft + 1)
		if err != nil && !errors.Is(err, io.EOF) || len(names) > mostLeft {
			return false
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == but })
		if len(names) == 0 {
			return true
		}
		for _, name := range names {
			if filetree.Remove(filepath.Join(dir.Name(), name)) != nil {
				return false
			}
		}
	}
	return false
}

// renew makes an emptied directory ready for the next member. It fails if a program that removes old files has removed TMPDIR, or the
// disk is full.
func (s *privateDir) renew() error {
	s.began.Store(0)
	s.vacated = false
	if err := unix.UtimesNanoAt(int(s.lock.Fd()), tempName, nil, unix.AT_SYMLINK_NOFOLLOW); err != nil { // the last member may have set its times
		return os.NewSyscallError("utimensat", err)
	}
	return container.CheckScratch(filepath.Dir(s.dir))
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
	_ = s.temp.Close() // Close of a nil file only returns an error, and it was only read
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
