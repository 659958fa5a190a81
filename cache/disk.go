package cache

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// dirMode and fileMode return the permissions of the cache's own files, but not of contents.
func (c *Cache) dirMode() fs.FileMode {
	if c.o.Group {
		return 0o770 | fs.ModeSetgid
	}
	return 0o700
}

func (c *Cache) fileMode() fs.FileMode {
	if c.o.Group {
		return 0o660
	}
	return 0o600
}

// makeDir makes a directory and its missing parents, and flushes each. Directories outside of the
// cache are private.
func (c *Cache) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if dir == c.dir && c.opened {
		return fmt.Errorf("the cache's directory %s is not there: is its disk mounted?", dir)
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := c.makeDir(parent); err != nil {
			return err
		}
	}
	if err := persist(func() error { return c.mkdir(dir) }); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return persist(func() error { return atomicfile.SyncDir(parent) })
}

// mkdir makes a directory, if there is none. It gives a group's directory its permissions before
// its name, so that a crash in between leaves no directory that is closed to others.
func (c *Cache) mkdir(dir string) error {
	if !c.o.Group || !strings.HasPrefix(dir+"/", c.dir+"/") {
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) { // another process made it, or this one's answer was lost
			return nil
		}
		return err
	}
	tmp := filepath.Join(filepath.Dir(dir), probePrefix+newToken())
	err := os.Mkdir(tmp, 0o700)
	if err == nil {
		err = os.Chmod(tmp, c.dirMode())
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(tmp) // if this fails, a sweep removes it
	if info, there := os.Stat(dir); there == nil && info.IsDir() {
		return nil
	}
	return err
}

// newToken returns 128 random bits in hexadecimal.
func newToken() string {
	var bits [tokenLength / 2]byte
	_, _ = rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}

// probe makes this host forget its cached listing of a directory, and returns the file server's
// time. An NFS client reads a directory anew after it has changed it (nfs(5): DATA AND METADATA
// COHERENCE), and a new file bears the server's time.
func (c *Cache) probe(dir string) (time.Time, error) {
	var info fs.FileInfo
	err := persist(func() error {
		f, err := os.CreateTemp(dir, probePrefix)
		if err != nil {
			return err
		}
		info, err = f.Stat()
		err = errors.Join(err, f.Close())
		if removed := os.Remove(f.Name()); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("probe the disk: %w", err)
	}
	return info.ModTime(), nil
}

// touchNow sets a file's time of change to the file server's current time (RFC 1813,
// SET_TO_SERVER_TIME).
func touchNow(name string) error {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, now, 0); err != nil {
		return fmt.Errorf("touch %s: %w", name, err)
	}
	return nil
}

// createEmpty makes an empty file, unless it exists. The cache uses only the name of such a file.
// The file may belong to another user: one user's trim may have moved the pin of another user's
// holder.
func (c *Cache) createEmpty(path string) error {
	return persist(func() error {
		// Not O_EXCL, because NFS makes two calls of it, and in between the file has an arbitrary
		// time (RFC 1813, 3.3.8: EXCLUSIVE).
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, c.fileMode())
		if errors.Is(err, fs.ErrPermission) {
			if _, there := os.Lstat(path); there == nil {
				return nil
			}
		}
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// openedInfo returns a file's current attributes. It opens the file, because only an open makes an
// NFS client ask the server.
func openedInfo(path string) (info fs.FileInfo, err error) {
	err = persist(func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		info, err = f.Stat()
		return errors.Join(err, f.Close())
	})
	return info, err
}

// names lists a directory as the file server has it now.
func (c *Cache) names(dir string) ([]string, error) {
	if _, err := c.probe(dir); err != nil {
		return nil, err
	}
	names, err := readNames(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return names, nil
}

func readNames(dir string) (names []string, err error) {
	err = persist(func() error {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		names, err = d.Readdirnames(-1)
		return errors.Join(err, d.Close())
	})
	return names, err
}

// moveTo renames a file or directory to a name that no other process uses, so that only one of
// several processes gets it. Its error is fs.ErrNotExist if another process was faster. A failed
// call may still have had its effect, so moveTo checks the new name.
func moveTo(from, to string) error {
	return persist(func() error {
		err := os.Rename(from, to)
		if err == nil {
			return nil
		}
		if _, there := os.Lstat(to); there == nil {
			return nil
		}
		return err
	})
}

// remove removes a file, and ignores that it is gone already.
func remove(name string) error {
	return persist(func() error {
		err := os.Remove(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) {
			return nil
		}
		return err
	})
}

// removeTree hides a directory by a rename, so that nobody sees half of it, and then removes it.
// The hidden name of a content is the same for all processes, so each of several that remove it
// returns only when it is gone.
func removeTree(dir string) error {
	trash := filepath.Join(filepath.Dir(dir), trashPrefix+filepath.Base(dir))
	if strings.HasSuffix(dir, leftToken) { // a new leftover may appear soon
		trash += "-" + newToken()
	}
	if err := moveTo(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return removeTrash(trash)
}

func removeTrash(trash string) error {
	return persist(func() error { return filetree.Remove(trash) })
}

// triesOfDisk limits the tries of a call while the disk fails with errors that may pass.
const triesOfDisk = 5

// persist repeats try while the disk fails with an error that may pass.
func persist(try func() error) error {
	for i := 1; ; i++ {
		err := try()
		if !passing(err) || i == triesOfDisk {
			return err
		}
		time.Sleep(time.Millisecond << (2 * (i - 1))) //nolint:forbidigo // 85 ms in all
	}
}

// passing reports whether an error of a disk may pass by itself.
func passing(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EAGAIN)
}
