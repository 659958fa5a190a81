package disktrial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

// Features has the abilities of a directory's disk. A text is empty if the call works, and otherwise the reason why it
// does not.
type Features struct {
	// Type is the file system's, such as ext4 or nfs4. Options are those of its mount about freshness and
	// strictness (nfs(5)).
	Type    string   `json:"type,omitempty"`
	Options []string `json:"options,omitempty"`
	// Network is the name of a file system that other hosts may have mounted, too (diskspace.Network); empty for others.
	Network string `json:"network,omitempty"`

	HardLinks string `json:"hard_links,omitempty"` // from one directory to another, too
	Symlinks  string `json:"symlinks,omitempty"`
	Rename    string `json:"rename,omitempty"`     // over a file that others read meanwhile
	Unnamed   string `json:"unnamed,omitempty"`    // open(2): O_TMPFILE
	Attribute string `json:"attribute,omitempty"`  // user.*, as xattr(7) describes them
	Clone     string `json:"clone,omitempty"`      // ioctl_ficlone(2)
	Flock     string `json:"flock,omitempty"`      // between two descriptions of this host
	RangeLock string `json:"range_lock,omitempty"` // fcntl(2), likewise
}

// within bounds a trial. A lock on an NFS server without a lock manager has no answer for minutes.
const within = 20 * time.Second

// Try tries the disk of a directory. An error means that nothing could be tried.
func Try(ctx context.Context, dir string) (Features, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	f, err := background.Call(ctx, func() (Features, error) { return try(dir) })
	if err != nil {
		return f, fmt.Errorf("try the disk of %s: %w", dir, err)
	}
	return f, nil
}

func try(dir string) (f Features, err error) {
	at, err := os.MkdirTemp(dir, ".trial-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
	f.Type, f.Options = mountOf(at)
	f.Network = diskspace.Network(at)
	for _, trial := range []struct {
		said *string
		do   func(dir string) error
	}{
		{&f.HardLinks, linkHard},
		{&f.Symlinks, linkSymbolically},
		{&f.Rename, renameOver},
		{&f.Unnamed, openUnnamed},
		{&f.Attribute, setAttribute},
		{&f.Clone, func(dir string) error { return cloneBetween(dir, dir) }},
		{&f.Flock, func(dir string) error { return lockTwice(filepath.Join(dir, "flock"), Flock) }},
		{&f.RangeLock, func(dir string) error { return lockTwice(filepath.Join(dir, "ranges"), RangeLock) }},
	} {
		if err := trial.do(at); err != nil {
			*trial.said = cause(err)
		}
	}
	return f, nil
}

// cause returns the kernel's word for an error, without the path, which is gone.
func cause(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func linkHard(dir string) error {
	from, to := filepath.Join(dir, "linked"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(from, []byte("x"), 0o600), os.Mkdir(to, 0o700)); err != nil {
		return err
	}
	if err := os.Link(from, filepath.Join(dir, "second")); err != nil {
		return err
	}
	if err := os.Link(from, filepath.Join(to, "third")); err != nil {
		return fmt.Errorf("not from one directory to another: %s", cause(err))
	}
	return nil
}

func linkSymbolically(dir string) error {
	const target = "nowhere/at all"
	name := filepath.Join(dir, "symbolic")
	if err := os.Symlink(target, name); err != nil {
		return err
	}
	switch got, err := os.Readlink(name); {
	case err != nil:
		return err
	case got != target:
		return fmt.Errorf("a link to %q reads %q", target, got)
	}
	return nil
}

// renames is the number of renames of a trial.
const renames = 30

// renameOver replaces a file by rename(2), while another goroutine opens it again and again.
func renameOver(dir string) error {
	name := filepath.Join(dir, "renamed")
	if err := os.WriteFile(name, []byte("0"), 0o600); err != nil {
		return err
	}
	var group errgroup.Group
	over := make(chan struct{})
	group.Go(func() error {
		for {
			if _, err := os.ReadFile(name); err != nil {
				return fmt.Errorf("a reader lost the file: %s", cause(err))
			}
			select {
			case <-over:
				return nil
			default:
			}
		}
	})
	group.Go(func() error {
		defer close(over)
		for i := range renames {
			next := filepath.Join(dir, "next")
			if err := os.WriteFile(next, fmt.Append(nil, i), 0o600); err != nil {
				return err
			}
			if err := os.Rename(next, name); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

func openUnnamed(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func setAttribute(dir string) error {
	const name, value = "user.cl-slurm", "1"
	file := filepath.Join(dir, "attribute")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Setxattr(file, name, []byte(value), 0); err != nil {
		return err
	}
	var got [8]byte
	n, err := unix.Getxattr(file, name, got[:])
	if err == nil && string(got[:n]) != value {
		err = fmt.Errorf("an attribute %q reads %q", value, got[:n])
	}
	return err
}

// mountOf returns the type and the options of the mount that a path is on. The kernel's table of mounts has absolute paths
// without symbolic links.
func mountOf(path string) (kind string, options []string) {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", nil
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", nil
	}
	m, ok := procstat.MountAt(procstat.Mounts(string(text)), path)
	if !ok {
		return "", nil
	}
	return m.Type, telling(m)
}
