// Package filetree removes and opens trees of files that a command wrote as this user and
// may have closed to it. A command that is root in its container does not notice missing
// permissions, and neither does an overlay file system.
package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// Remove removes a directory and its contents, even if a directory has lost its owner's
// permissions. It follows no symbolic link. It returns nil if the directory does not exist.
func Remove(dir string) error {
	if err := removeOrReclaim(unix.AT_FDCWD, dir, dir); err != nil {
		return fmt.Errorf("remove tree: %w", err)
	}
	return nil
}

// RemoveIn removes an entry of root and its contents, even if a directory has lost its
// owner's permissions.
func RemoveIn(root *os.Root, name string) error {
	d, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only used for its entries
	return removeOrReclaim(int(d.Fd()), path.Base(name), filepath.Join(root.Name(), name))
}

// removeOrReclaim removes an entry of an open directory, which has the path at. If a killed container left files
// of the user's subordinate ids, it first makes the user their owner.
func removeOrReclaim(dir int, name, at string) error {
	r := remover{}
	err := r.all(dir, name)
	if err == nil || !r.foreign || subids.Reclaim(at) != nil {
		return err
	}
	again := remover{}
	return again.all(dir, name)
}

// OpenUp gives the owner all permissions on the root and the directories below it, and read
// permission on files. It follows no symbolic link. It reports no failure, because the next
// use of the tree fails then. It does nothing if the owner may not search the root itself.
//
// If a killed container left files of the user's subordinate ids, OpenUp first makes the user their owner.
// Root's Name must be the path of the directory.
func OpenUp(root *os.Root) { openUpOrReclaim(root, root.Name()) }

func openUpOrReclaim(root *os.Root, at string) {
	if openUpAll(root) {
		if subids.Reclaim(at) == nil {
			openUpAll(root)
		}
	}
}

// openUpAll reports whether there are files of the user's subordinate ids.
func openUpAll(root *os.Root) (foreign bool) {
	if info, err := root.Lstat("."); err == nil {
		_ = OpenEntry(root, ".", info) // see OpenUp
		foreign = subids.IsForeign(info)
	}
	d, err := root.Open(".")
	if err != nil {
		return foreign
	}
	defer func() { _ = d.Close() }() // only used for its entries
	entry := func(dir int, name string) (enter bool, err error) {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return false, nil //nolint:nilerr // see OpenUp
		}
		foreign = foreign || subids.IsForeignID(st.Uid)
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		switch {
		case isDir && st.Mode&0o700 != 0o700:
			_ = treewalk.Chmod(dir, name, st.Mode&0o777|0o700) // see OpenUp
		case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o400 == 0:
			_ = treewalk.Chmod(dir, name, st.Mode&0o777|0o400) // see OpenUp
		}
		return isDir, nil
	}
	ignored := func(int, string, error) error { return nil }
	_ = treewalk.Walk(int(d.Fd()), ".", treewalk.Visitor{Entry: entry, Failed: ignored}) // see OpenUp
	return foreign
}

// Each calls visit for a directory and everything in it, at any depth. It follows no symbolic link, and omits entries
// that vanish or that the calling user may not read. An error of visit, or ctx's end, ends it.
func Each(ctx context.Context, dir string, visit func(st *unix.Stat_t) error) error {
	stat := func(at int, name string) (isDir bool, err error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		var st unix.Stat_t
		err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return st.Mode&unix.S_IFMT == unix.S_IFDIR, visit(&st)
		}
		return false, omit(at, name, err)
	}
	isDir, err := stat(unix.AT_FDCWD, dir)
	if err != nil || !isDir {
		return err
	}
	return treewalk.Walk(unix.AT_FDCWD, dir, treewalk.Visitor{Entry: stat, Failed: omit})
}

func omit(_ int, name string, err error) error {
	if treewalk.IsGone(err) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return &fs.PathError{Op: "read", Path: name, Err: err}
}

// OpenEntry gives the owner all permissions on a directory of root, or reading of a file.
// info comes from Lstat.
func OpenEntry(root *os.Root, name string, info fs.FileInfo) error {
	mode := info.Mode()
	switch {
	case info.IsDir() && mode&0o700 != 0o700:
		return root.Chmod(name, mode.Perm()|0o700)
	case mode.IsRegular() && mode&0o400 == 0:
		return root.Chmod(name, mode.Perm()|0o400)
	}
	return nil
}
