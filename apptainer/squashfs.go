package apptainer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// tool is a program that makes a squashfs, as this package uses it.
type tool interface {
	// write makes the file system of flat in f, at offset, and returns its size
	// with padding. What flat's Write returns is passed on.
	write(ctx context.Context, f *os.File, offset int64, flat *flatten.Flattener) (int64, error)
}

// errNoTool is the cause when there is nothing to make a squashfs with.
var errNoTool error = trouble{text: "neither mksquashfs nor tar2sqfs can be started here: install squashfs-tools 4.5 or newer"}

// findTool picks the best of what is installed: mksquashfs writes into the
// SIF itself where it reads tar streams (from 4.5 on), tar2sqfs
// (squashfs-tools-ng) reads them too and is copied from, and an older
// mksquashfs takes an unpacked tree.
func findTool(ctx context.Context, c Converter) (tool, error) {
	// It exits with 1 in some versions.
	said, err := command.Command{Args: []string{c.mksquashfsProgram(), "-version"}}.Output(ctx)
	version := mksquashfsVersion(said)
	var failed *command.Error
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("write the file system: %w", ctx.Err())
	case version >= tarSince:
		return mksquashfs{c}, nil
	}
	if _, tarErr := (command.Command{Args: []string{c.tar2sqfsProgram(), "--version"}}).Output(ctx); tarErr == nil {
		return tar2sqfs{c}, nil
	}
	if errors.As(err, &failed) && !failed.Started() {
		return nil, fmt.Errorf("%w (%w)", errNoTool, failed.Err)
	}
	return unpacked{c}, nil
}

// Ready fails where this host has no program that writes the file system of an
// image: then it can convert none.
func (c Converter) Ready(ctx context.Context) error {
	_, err := findTool(ctx, c)
	return err
}

// tarSince is the version of mksquashfs that reads tar streams first.
const tarSince = 4.5

var mksquashfsSays = regexp.MustCompile(`mksquashfs version ([0-9]+\.[0-9]+)`)

// mksquashfsVersion reads what "mksquashfs -version" prints; 0 is none that is
// known.
func mksquashfsVersion(said []byte) float64 {
	found := mksquashfsSays.FindSubmatch(said)
	if found == nil {
		return 0
	}
	version, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0
	}
	return version
}

// squashfsSize reads from its superblock how long the file system at offset is,
// padded for those who mount it from a block device. See squashfs_fs.h:
// struct squashfs_super_block.
func squashfsSize(r io.ReaderAt, offset int64) (int64, error) {
	const blockDevice = 4096
	super := make([]byte, 96)
	if _, err := r.ReadAt(super, offset); err != nil {
		return 0, fmt.Errorf("read the file system that was written: %w", err)
	}
	used := int64(binary.LittleEndian.Uint64(super[40:])) //nolint:gosec // checked below
	if !bytes.HasPrefix(super, []byte("hsqs")) || used <= 0 {
		return 0, errors.New("no file system was written")
	}
	return (used + blockDevice - 1) / blockDevice * blockDevice, nil
}

// stream runs a program, which reads the tar stream of flat.
func (c Converter) stream(ctx context.Context, program command.Command, flat *flatten.Flattener) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", program.Args[0], err)
	}
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20) // faster when it is granted
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	emitted := make(chan error, 1)
	go c.nicely(func() {
		buffered := bufio.NewWriterSize(w, 128<<10) // what files hold passes it by
		err := flat.Write(running, buffered)
		if err == nil {
			err = buffered.Flush()
		}
		if err != nil && !errors.Is(err, unix.EPIPE) {
			cancel() // half a stream must not look like a whole one
		}
		emitted <- errors.Join(err, w.Close())
	})
	program.Stdin = r
	err = program.Run(running)
	cancel() // Write need not wait for layers any more, nor for a program that is gone
	unread := err == nil && !endsWell(r)
	_ = r.Close()
	emitErr := <-emitted
	ended := errors.Is(emitErr, unix.EPIPE) || errors.Is(emitErr, context.Canceled) // by the program's end
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("write the file system: %w", ctx.Err())
	case emitErr != nil && !ended:
		return emitErr
	case err != nil:
		return toolError(err)
	case unread || ended:
		return trouble{text: filepath.Base(program.Args[0]) + " ended before it had read all of the image"}
	}
	return nil
}

// endsWell says whether a program has read a tar stream but, perhaps, for a part
// of the mark that ends it, two blocks of zeros.
func endsWell(r io.Reader) bool {
	const mark = 1024
	left, err := io.ReadAll(io.LimitReader(r, mark+1))
	return err == nil && len(left) <= mark && len(bytes.Trim(left, "\x00")) == 0
}

// toolError keeps the kind of a failure that a program tells in words only. One
// that somebody has killed may go well another time; one that has crashed has
// done so over what it read.
func toolError(err error) error {
	var failed *command.Error
	if !errors.As(err, &failed) {
		return fmt.Errorf("write the file system: %w", err)
	}
	var exit *exec.ExitError
	if errors.As(failed.Err, &exit) {
		switch status, ok := exit.Sys().(syscall.WaitStatus); {
		case !ok || !status.Signaled():
		case slices.Contains([]syscall.Signal{unix.SIGSEGV, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL}, status.Signal()):
		default:
			return trouble{fmt.Sprintf("write the file system: %v", err), err}
		}
	}
	if failed.Stderr == "" {
		return fmt.Errorf("write the file system: %w", err)
	}
	name := filepath.Base(failed.Args[0])
	for _, errno := range []syscall.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.EAGAIN, unix.ENOMEM, unix.EMFILE} {
		if strings.Contains(strings.ToLower(failed.Stderr), errno.Error()) {
			return fmt.Errorf("%s: %w", name, errno)
		}
	}
	return fmt.Errorf("%s: %s", name, strings.Join(strings.Split(failed.Stderr, "\n"), "; "))
}

// mksquashfsOptions are those of any use of mksquashfs. It does not look for
// files with the same content: that takes it time by the square of how many
// files have one size, minutes for a hundred thousand labels of a dataset, to
// make an ordinary root some hundredths smaller.
func (c Converter) mksquashfsOptions() []string {
	options := []string{
		"-noappend", "-comp", c.compression(), "-b", strconv.Itoa(c.blockSize()),
		"-processors", strconv.Itoa(c.processors()), "-mem", strconv.Itoa(c.memoryMiB()) + "M",
		"-no-progress", "-no-recovery", "-no-duplicates",
	}
	if c.levels() {
		options = append(options, "-Xcompression-level", strconv.Itoa(c.level()))
	}
	return options
}

// mksquashfs is the program of that name that reads tar streams.
type mksquashfs struct{ Converter }

// write has it make the file system in the SIF. The root directory belongs to
// this process's user whatever the image says, and its time stamp is bounded by the newest
// file's: mksquashfs 4.5 takes neither from a tar stream nor from its options
// there.
func (m mksquashfs) write(ctx context.Context, f *os.File, offset int64, flat *flatten.Flattener) (int64, error) {
	root := flat.Root()
	args := append([]string{m.mksquashfsProgram(), "-", f.Name(), "-tar"}, m.mksquashfsOptions()...)
	args = append(args,
		"-offset", strconv.FormatInt(offset, 10), "-root-mode", strconv.FormatInt(root.Mode, 8), "-quiet", "-exit-on-error")
	err := m.stream(ctx, command.Command{Args: args, Env: []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(root.Newest, 10)}}, flat)
	if err != nil {
		return 0, err
	}
	size, err := squashfsSize(f, offset)
	if err != nil {
		return 0, err
	}
	// What mksquashfs has written beyond it were duplicates.
	if err := f.Truncate(offset + size); err != nil {
		return 0, fmt.Errorf("write the file system: %w", err)
	}
	return size, nil
}

// tar2sqfs is the program of that name.
type tar2sqfs struct{ Converter }

func (t tar2sqfs) write(ctx context.Context, f *os.File, offset int64, flat *flatten.Flattener) (int64, error) {
	made := f.Name() + ".squashfs"
	root := flat.Root()
	args := []string{
		t.tar2sqfsProgram(), "--quiet", "--force", "--compressor", t.compression(),
		"--block-size", strconv.Itoa(t.blockSize()), "--num-jobs", strconv.Itoa(t.processors()),
		"--defaults", fmt.Sprintf("uid=0,gid=0,mode=0%o,mtime=%d", root.Mode, root.Newest),
	}
	if t.levels() {
		args = append(args, "--comp-extra", "level="+strconv.Itoa(t.level()))
	}
	err := t.stream(ctx, command.Command{Args: append(args, made)}, flat)
	return takeIn(f, offset, made, err)
}

// takeIn moves a squashfs from a file of its own into the SIF.
func takeIn(f *os.File, offset int64, made string, err error) (int64, error) {
	defer func() { _ = os.Remove(made) }() // in a directory of the caller's
	if err != nil {
		return 0, err
	}
	in, err := os.Open(made)
	if err != nil {
		return 0, fmt.Errorf("read the file system: %w", err)
	}
	defer func() { _ = in.Close() }()
	size, err := squashfsSize(in, 0)
	if err != nil {
		return 0, err
	}
	if _, err = f.Seek(offset, io.SeekStart); err == nil {
		_, err = io.Copy(f, io.LimitReader(in, size))
	}
	if err == nil {
		err = f.Truncate(offset + size)
	}
	if err != nil {
		return 0, fmt.Errorf("copy the file system: %w", err)
	}
	return size, nil
}
