//go:build linux

package subids

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
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
		err = measureInside(args[3])
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
	return ok && IsForeignID(st.Uid)
}

// IsForeignID is IsForeign for the owner of a file.
func IsForeignID(uid uint32) bool {
	if own := os.Getuid(); own == 0 || uid == uint32(own) { //nolint:gosec // an id
		return false
	}
	m, err := Find()
	return err == nil && m.has(uid)
}

// Reclaim makes the calling user the owner of everything in these directories, and of the directories
// themselves, that belongs to one of the user's subordinate ids. It follows no symbolic link. It starts
// this program in a namespace with these ids.
func Reclaim(dirs ...string) error {
	ids, err := Find()
	if err == nil {
		_, err = help(nil, ids, orderReclaim, dirs)
	}
	if err != nil {
		return fmt.Errorf("make this user the owner of %s: %w", strings.Join(dirs, ", "), err)
	}
	return nil
}

// Measure is [diskuse.Measure] for trees of which parts may be closed to the calling user. It starts this
// program as root in a namespace with the user's ids, or with the user's own id if there are no others.
func Measure(ctx context.Context, trees ...diskuse.Tree) (bytes int64, err error) {
	text, err := json.Marshal(trees)
	if err != nil {
		return 0, fmt.Errorf("measure closed directories: %w", err)
	}
	ids, err := Find()
	if err != nil {
		ids = nil
	}
	output, err := help(ctx.Done(), ids, orderMeasure, []string{string(text)})
	if err == nil {
		bytes, err = strconv.ParseInt(output, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("measure closed directories: %w", err)
	}
	return bytes, nil
}

// measureInside prints a measurement of trees.
func measureInside(text string) error {
	var trees []diskuse.Tree
	if err := json.Unmarshal([]byte(text), &trees); err != nil {
		return err
	}
	bytes, err := diskuse.Measure(context.Background(), trees...)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, bytes); err != nil {
		return fmt.Errorf("tell the size: %w", err)
	}
	return nil
}

// help gives this program, as root in a namespace with these ids, an order about directories. Nil ids are the
// user's own one alone. It returns the output. The helper ends early when canceled is closed; nil means
// never.
func help(canceled <-chan struct{}, ids *Map, order string, dirs []string) (string, error) {
	if !callsMain.Load() {
		return "", errors.New("this program cannot do it")
	}
	stdin, ready, err := os.Pipe()
	if err != nil {
		return "", err
	}
	attributes := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if ids != nil {
		ids.Prepare(attributes)
	}
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
	if ids != nil {
		err = ids.Apply(p.pid)
	}
	if err == nil {
		_, err = ready.Write([]byte{'\n'})
	}
	_ = ready.Close() // it ends now at the latest
	output, failed := p.wait()
	if err == nil {
		err = failed
	}
	return output, err
}

// ReclaimInside is Reclaim in a process that is root in a namespace with the user's map. The owner
// becomes that root, which is the user outside.
func ReclaimInside(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		if err := reclaimTree(unix.AT_FDCWD, dir); err != nil {
			errs = append(errs, fmt.Errorf("reclaim %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// reclaimTree reclaims one entry of an open directory and everything below it. It returns the first error,
// and omits files of users outside of the map, which no container made.
func reclaimTree(at int, name string) error {
	var failed error
	fail := func(op, name string, err error) {
		if failed == nil {
			failed = &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	entry := func(at int, name string) (enter bool, err error) {
		var st unix.Stat_t
		if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if !errors.Is(err, unix.ENOENT) { // another process removes it
				fail("stat", name, err)
			}
			return false, nil
		}
		if st.Uid != 0 || st.Gid != 0 {
			if err := unix.Fchownat(at, name, 0, 0, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				if !errors.Is(err, unix.EPERM) {
					fail("chown", name, err)
				}
				return false, nil
			}
		}
		return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
	}
	enter, _ := entry(at, name) // always nil
	if !enter {
		return failed
	}
	err := treewalk.Walk(at, name, treewalk.Visitor{
		Entry: entry,
		Failed: func(_ int, name string, err error) error {
			fail("open", name, err)
			return nil
		},
	})
	return errors.Join(failed, err)
}
