//go:build linux

package subids

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Command is the hidden argument with which a program runs [Main].
const Command = "subordinate-ids"

// Orders for Main, its second argument.
const (
	orderReclaim = "reclaim"
	orderMeasure = "measure"
)

// callsMain is set in a program that calls Main. No other program can be started as a helper, because it
// would not understand Command.
var callsMain atomic.Bool //nolint:gochecknoglobals // it is a fact about the program

// Main is a program's hidden part, the helper of Reclaim and Measure. Programs call it first. ran reports
// whether this process is a helper, and code is then the exit status for the program.
func Main(args []string) (code int, ran bool) {
	callsMain.Store(true)
	if len(args) < 2 || args[1] != Command {
		return 0, false
	}
	if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 || len(args) < 4 { // the ids are not mapped
		fmt.Fprintln(os.Stderr, Command+" is started for the files of containers, and not by people")
		return 2, true
	}
	var err error
	switch args[2] {
	case orderReclaim:
		err = ReclaimInside(args[3:]...)
	case orderMeasure:
		_, err = fmt.Fprintln(os.Stdout, measure(args[3]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// IsForeign reports whether the owner of a file is one of the subordinate ids of the calling user. info
// comes from Lstat.
func IsForeign(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if own := os.Getuid(); !ok || own == 0 || st.Uid == uint32(own) { //nolint:gosec // an id
		return false
	}
	m, err := Find()
	return err == nil && m.has(st.Uid)
}

// Reclaim makes the calling user the owner of everything in these directories, and of the directories
// themselves, that belongs to one of the user's subordinate ids. It follows no symbolic link. It starts
// this program in a namespace with these ids.
func Reclaim(dirs ...string) error {
	if _, err := help(nil, orderReclaim, dirs); err != nil {
		return fmt.Errorf("make this user the owner of %s: %w", strings.Join(dirs, ", "), err)
	}
	return nil
}

// Measure adds up the sizes of the files in a directory, of which parts may be closed to the calling user
// and belong to the user's subordinate ids. It counts holes as if they were full.
func Measure(ctx context.Context, dir string) (bytes int64, err error) {
	output, err := help(ctx.Done(), orderMeasure, []string{dir})
	if err == nil {
		bytes, err = strconv.ParseInt(output, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return bytes, nil
}

// help gives this program, in a namespace with the user's ids, an order about directories. It returns the
// output. The helper ends early when canceled is closed; nil means never.
func help(canceled <-chan struct{}, order string, dirs []string) (string, error) {
	if !callsMain.Load() {
		return "", errors.New("this program cannot do it")
	}
	m, err := Find()
	if err != nil {
		return "", err
	}
	stdin, ready, err := os.Pipe()
	if err != nil {
		return "", err
	}
	attributes := &syscall.SysProcAttr{}
	m.Prepare(attributes)
	p, err := start("/proc/self/exe", append([]string{Command, order}, dirs...), stdin, attributes)
	_ = stdin.Close() // the helper has its own
	if err != nil {
		_ = ready.Close() // nothing was written
		return "", err
	}
	background.Detach(func() { // ends with the helper
		select {
		case <-canceled:
			p.kill()
		case <-p.ended:
		}
	})
	if err = m.Apply(p.pid); err == nil {
		_, err = ready.Write([]byte{'\n'})
	}
	_ = ready.Close() // it ends now at the latest
	output, failed := p.wait()
	if err == nil {
		err = failed
	}
	return output, err
}

// measure adds up the sizes of the files below a directory. It omits files that vanish.
func measure(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone, or another user's
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// ReclaimInside is Reclaim in a process that is root in a namespace with the user's map. The owner
// becomes that root, which is the user outside.
func ReclaimInside(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		if err := reclaimEntry(unix.AT_FDCWD, dir); err != nil {
			errs = append(errs, fmt.Errorf("reclaim %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// reclaimEntry reclaims one entry of an open directory and everything below it. It returns the first error,
// and omits files of users outside of the map, which no container made.
func reclaimEntry(at int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) { // another process removes it
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Uid != 0 || st.Gid != 0 {
		if err = unix.Fchownat(at, name, 0, 0, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.EPERM) {
			return nil
		}
	}
	if err != nil {
		return &fs.PathError{Op: "chown", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	d := os.NewFile(uintptr(fd), name)
	defer func() { _ = d.Close() }() // it was only read
	for {
		const some = 1024
		names, readErr := d.Readdirnames(some)
		for _, n := range names {
			if failed := reclaimEntry(fd, n); err == nil {
				err = failed
			}
		}
		if errors.Is(readErr, io.EOF) {
			return err
		}
		if readErr != nil {
			return errors.Join(err, readErr)
		}
	}
}
