package tarstream

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxName is the longest path in an archive, in bytes: that of Linux.
const maxName = 4096

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	u.headers++
	if err := u.count(); err != nil {
		return err
	}
	name, err := cleanName(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if header.Typeflag == tar.TypeDir {
			return nil // the root itself is the caller's
		}
		return fmt.Errorf("%w: a file without a name", ErrUnsafe)
	}
	if u.watch.Special != nil && !ordinary(header.Typeflag) {
		u.watch.Special(name)
		return nil
	}
	dir, err := u.tree.enter(path.Dir(name), u.makes)
	if err != nil {
		return err
	}
	if err := u.write(dir, name, header, content); err != nil {
		return classify(err)
	}
	if u.watch.Entry != nil {
		u.watch.Entry(name, header)
	}
	return nil
}

const (
	// openedAtFirst and openedPerEntry limit the calls that open directories. Where the system opens a path in one call, an
	// entry needs a few, and one for each directory that is made. Elsewhere the entries of a hostile archive lead from one
	// deep place to another, and each of these ways has up to 2,000 directories. The order of a walk needs 32 for an entry
	// there, because the walk opens again at most 2,000 directories after it has left maxOpen. In any other order, an entry
	// needs as many as its path has.
	openedAtFirst  = 20_000
	openedPerEntry = 64
)

// checkOpened fails if too many directories were opened, or if ctx has ended.
func (u *unpacker) checkOpened() error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.tree.opened-u.made > openedAtFirst+openedPerEntry*u.headers {
		return fmt.Errorf("%w: it leads through more than %d directories on average, or %d in all", ErrTooLarge, openedPerEntry, openedAtFirst)
	}
	return nil
}

// makes counts a directory that is only in the paths of entries.
func (u *unpacker) makes() error {
	u.made++
	return u.count()
}

// ordinary reports whether an entry is one that write makes.
func ordinary(kind byte) bool {
	switch kind {
	case tar.TypeDir, tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeSymlink, tar.TypeLink:
		return true
	}
	return false
}

func (u *unpacker) write(dir *os.Root, name string, header *tar.Header, content io.Reader) error {
	base := path.Base(name)
	if u.once && header.Typeflag != tar.TypeDir {
		if _, err := dir.Lstat(base); err == nil {
			return fmt.Errorf("%w: the name is there twice", ErrUnsafe)
		}
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return directory(dir, base, permissions(header)|0o700)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.file(dir, base, header, content)
	case tar.TypeSymlink:
		return symlink(dir, base, header.Linkname)
	case tar.TypeLink:
		return u.hardLink(dir, name, header.Linkname)
	}
	return fmt.Errorf("%w: a device, pipe or unknown kind of entry", ErrUnsafe)
}

// cleanName makes a path below the root of an entry's name.
func cleanName(name string) (string, error) {
	if len(name) > maxName {
		return "", fmt.Errorf("%w: a path of more than %d bytes", ErrTooLarge, maxName)
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("%w: a name that leads upwards", ErrUnsafe)
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// classify turns a disk's error into one of this package if the disk cannot hold a name: one
// with a part of more than 255 bytes or a zero byte, and on some disks one that is not UTF-8.
func classify(err error) error {
	switch {
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EMLINK):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EILSEQ):
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	return err
}

// permissions are the bits of an entry's mode that Unpack keeps.
func permissions(header *tar.Header) fs.FileMode { return fs.FileMode(header.Mode & 0o777) }

// replace calls create, which makes base in dir. It removes an existing base first, because
// writing into it could write through a link.
func replace(dir *os.Root, base string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	old, err := dir.Lstat(base)
	if err != nil {
		return err
	}
	if old.IsDir() {
		return fmt.Errorf("%w: a file where a directory is", ErrUnsafe)
	}
	if err := dir.Remove(base); err != nil {
		return err
	}
	return create()
}

func directory(dir *os.Root, base string, perm fs.FileMode) error {
	if err := dir.Mkdir(base, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := dir.Lstat(base)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: a directory where a file or link is", ErrUnsafe)
	case info.Mode().Perm() == perm: // the umask took nothing
		return nil
	}
	// The set-group-id bit comes from the parent directory, not from the archive.
	return dir.Chmod(base, info.Mode()&fs.ModeSetgid|perm)
}

func symlink(dir *os.Root, base, target string) error {
	if target == "" {
		return fmt.Errorf("%w: a link to nothing", ErrUnsafe)
	}
	return replace(dir, base, func() error { return dir.Symlink(target, base) })
}

// hardLink gives an earlier file or symbolic link another name.
func (u *unpacker) hardLink(dir *os.Root, name, linkname string) error {
	target, err := cleanName(linkname)
	if err != nil {
		return fmt.Errorf("link to %s: %w", printable(linkname), err)
	}
	from, err := u.source(name, target)
	if err != nil {
		return notHeld(linkname, err)
	}
	defer from.close()
	there, err := from.dir.Lstat(from.path)
	switch {
	case err != nil:
		return notHeld(linkname, err)
	case there.IsDir():
		return fmt.Errorf("%w: a hard link to the directory %s", ErrUnsafe, printable(linkname))
	}
	base := path.Base(name)
	if here, err := dir.Lstat(base); err == nil && os.SameFile(here, there) {
		return nil // GNU tar writes such a link for a file that it was given twice
	}
	return replace(dir, base, func() error {
		if from.opened {
			return linkBetween(from.dir, from.path, dir, base)
		}
		return from.dir.Link(from.path, from.name)
	})
}

// notHeld returns the error for a target of a hard link that the archive does not hold, unless the disk has failed.
func notHeld(linkname string, err error) error {
	var errno syscall.Errno
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		!errors.As(err, &errno) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, context.Canceled) { // os.Root's own error: it leads out
		return fmt.Errorf("%w: a hard link to %s, which the archive does not hold: %w", ErrUnsafe, printable(linkname), err)
	}
	return err
}

// linkSource is the target of a hard link: its path in an open directory, and that of the new name.
type linkSource struct {
	dir        *os.Root
	path, name string
	// opened means that dir is the target's own directory, and not one above both. close closes it.
	opened bool
	close  func()
}

// source finds the target of a hard link name in the last directory that was entered.
func (u *unpacker) source(name, target string) (linkSource, error) {
	near, target, depth := u.tree.near(target)
	below := strings.Join(strings.Split(name, "/")[depth:], "/")
	steps := strings.Count(below, "/") + strings.Count(target, "/")
	if steps > manySteps {
		if err := u.tree.open(); err != nil {
			return linkSource{}, err
		}
		own, err := u.tree.beneath(near, path.Dir(target))
		if err == nil {
			return linkSource{own, path.Base(target), "", true, func() { _ = own.Close() }}, nil // it was only read
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return linkSource{}, err
		}
	}
	const calls = 2 // with the target
	u.tree.opened += int64(strings.Count(below, "/") + calls*strings.Count(target, "/"))
	return linkSource{near, target, below, false, func() {}}, u.checkOpened()
}

func (u *unpacker) file(dir *os.Root, base string, header *tar.Header, content io.Reader) error {
	if left := u.limits.Bytes - u.size.Bytes; u.limits.Bytes > 0 && header.Size > left {
		return &LimitError{Limits{Bytes: u.limits.Bytes}}
	}
	perm := permissions(header) | 0o400
	var f *os.File
	err := replace(dir, base, func() (err error) {
		// The owner may write until the file is complete, because an NFS server checks each
		// write. nonBlock has no effect on a file; it keeps os from setting and unsetting it.
		f, err = dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL|nonBlock, perm|0o200)
		return err
	})
	if err != nil {
		return err
	}
	err = u.copy(f, content)
	if err == nil {
		err = chmod(f, perm)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	// After Close: writes that an NFS client has held back would change the time.
	if at := header.ModTime; at.After(time.Unix(0, 0)) && at.Before(time.Unix(0, math.MaxInt64)) {
		return dir.Chtimes(base, at, at)
	}
	return nil
}

func (u *unpacker) copy(f io.Writer, content io.Reader) error {
	for {
		n, err := content.Read(u.buf)
		if n > 0 {
			if err := u.put(f, u.buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return broken(err)
		}
	}
}

// put writes a part of a file.
func (u *unpacker) put(f io.Writer, part []byte) error {
	if u.limits.Reserve != nil {
		if err := u.limits.Reserve(int64(len(part))); err != nil {
			return err
		}
	}
	n, err := f.Write(part)
	u.size.Bytes += int64(n)
	if u.watch.Wrote != nil {
		u.watch.Wrote(int64(n))
	}
	return err
}

// chmod adds the permissions that the umask removed, and removes those that were only for
// writing. It calls stat first, because on NFS only a change needs a call of the server.
func chmod(f *os.File, perm fs.FileMode) error {
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() == perm {
		return err
	}
	return f.Chmod(perm)
}
