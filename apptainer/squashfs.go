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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// squashfsWriter writes a squashfs with an external program.
type squashfsWriter interface {
	// write writes the file system of flat into f at offset, and returns its size with padding. It
	// returns errors of flat.Write unchanged.
	write(ctx context.Context, f *os.File, offset int64, flat flattened) (int64, error)
}

// flattened is a flatten.Flattener.
type flattened interface {
	Root() flatten.Root
	Write(ctx context.Context, w io.Writer) error
}

// errNoProgram is the cause when no installed program can write a squashfs.
var errNoProgram error = hostError{text: "no program here can write an image: install squashfs-tools 4.5 or newer, or squashfs-tools-ng"}

// chooseWriter chooses the best installed program, in the order of the package comment.
func chooseWriter(ctx context.Context, c Converter) (squashfsWriter, error) {
	// Some versions exit with 1 after they print their version.
	out, err := command.Command{Args: []string{c.Mksquashfs, "-version"}}.Output(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("write the file system: %w", ctx.Err())
	case mksquashfsVersion(out) >= 4.5:
		return mksquashfs{c, mksquashfsVersion(out)}, nil
	}
	if _, tarErr := (command.Command{Args: []string{c.Tar2sqfs, "--version"}}).Output(ctx); tarErr == nil {
		return tar2sqfs{c}, nil
	}
	if failed, ok := errors.AsType[*command.Error](err); ok && !failed.Started() {
		return nil, fmt.Errorf("%w (%w)", errNoProgram, failed.Err)
	}
	if mksquashfsVersion(out) == 0 {
		return nil, fmt.Errorf("%w (%s -version names no version)", errNoProgram, c.Mksquashfs)
	}
	return nil, fmt.Errorf("%w (%s is too old)", errNoProgram, c.Mksquashfs)
}

// Ready returns an error if this host has no program that can write the file system of a SIF. Such
// a host can convert no image.
func (c Converter) Ready(ctx context.Context) error {
	_, err := chooseWriter(ctx, c.withDefaults())
	return err
}

var versionLine = regexp.MustCompile(`mksquashfs version ([0-9]+\.[0-9]+)`)

// mksquashfsVersion reads the output of "mksquashfs -version"; 0 means unknown.
func mksquashfsVersion(output []byte) float64 {
	found := versionLine.FindSubmatch(output)
	if found == nil {
		return 0
	}
	version, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0
	}
	return version
}

// squashfsSize reads the size of the file system at offset from its superblock (squashfs_fs.h:
// struct squashfs_super_block), and rounds it up to whole blocks, which block devices need.
func squashfsSize(r io.ReaderAt, offset int64) (int64, error) {
	const block = 4096
	super := make([]byte, 96)
	if _, err := r.ReadAt(super, offset); err != nil {
		return 0, fmt.Errorf("read the file system that was written: %w", err)
	}
	used := int64(binary.LittleEndian.Uint64(super[40:])) //nolint:gosec // checked below
	if !bytes.HasPrefix(super, []byte("hsqs")) || used <= 0 {
		return 0, errors.New("no file system was written")
	}
	return (used + block - 1) / block * block, nil
}

// errUnread means that the reader of a tar stream ended well before its end.
var errUnread = errors.New("not all of the image was read")

// stream calls consume with a pipe from which it reads the tar stream of flat.
func (c Converter) stream(ctx context.Context, flat flattened, consume func(context.Context, *os.File) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("write the file system: %w", err)
	}
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20) // faster, if the kernel grants it
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	var writing sync.WaitGroup
	var writeErr error
	writing.Go(func() {
		c.nicely(func() {
			buffered := bufio.NewWriterSize(w, 128<<10) // contents of files bypass it
			err := flat.Write(streaming, buffered)
			if err == nil {
				err = buffered.Flush()
			}
			if err != nil && !errors.Is(err, unix.EPIPE) {
				cancel() // a cut stream must not look complete to the consumer
			}
			writeErr = errors.Join(err, w.Close())
		})
	})
	err = consume(streaming, r)
	cancel() // stop flat.Write from waiting for layers
	unread := err == nil && !atTarEnd(r)
	_ = r.Close()
	writing.Wait()
	stopped := errors.Is(writeErr, unix.EPIPE) || errors.Is(writeErr, context.Canceled) // because consume returned
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("write the file system: %w", ctx.Err())
	case writeErr != nil && !stopped:
		return writeErr
	case err != nil:
		return err
	case unread || stopped:
		return errUnread
	}
	return nil
}

// streamTo runs a program that reads the tar stream of flat.
func (c Converter) streamTo(ctx context.Context, program command.Command, flat flattened) error {
	err := c.stream(ctx, flat, func(ctx context.Context, r *os.File) error {
		program.Stdin = r
		return programError(program.Run(ctx))
	})
	if errors.Is(err, errUnread) {
		return hostError{text: filepath.Base(program.Args[0]) + " ended before it had read all of the image"}
	}
	return err
}

// atTarEnd reports whether nothing is unread except for the end mark of a tar stream, two blocks of
// zeros.
func atTarEnd(r io.Reader) bool {
	const mark = 1024
	left, err := io.ReadAll(io.LimitReader(r, mark+1))
	return err == nil && len(left) <= mark && len(bytes.Trim(left, "\x00")) == 0
}

// programError recovers the kind of a failure that a program only prints. After a kill another try
// may succeed. After a crash the program would crash again.
func programError(err error) error {
	failed, ok := errors.AsType[*command.Error](err)
	if !ok {
		return err
	}
	if exit, ok := errors.AsType[*exec.ExitError](failed.Err); ok {
		switch status, ok := exit.Sys().(syscall.WaitStatus); {
		case !ok || !status.Signaled():
		case slices.Contains([]syscall.Signal{unix.SIGSEGV, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL}, status.Signal()):
		default:
			return hostError{fmt.Sprintf("write the file system: %v", err), err}
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

// mksquashfsOptions returns the options for every call of mksquashfs. They turn off the search for
// duplicate files, because its time is quadratic in the number of files of one size: minutes for
// the hundred thousand labels of a dataset. It would make an ordinary root only a few hundredths
// smaller.
func (c Converter) mksquashfsOptions() []string {
	options := []string{
		"-noappend", "-comp", c.Compression, "-b", strconv.Itoa(c.BlockSize),
		"-processors", strconv.Itoa(c.Processors), "-mem", strconv.Itoa(c.MemoryMiB) + "M",
		"-no-progress", "-no-recovery", "-no-duplicates",
	}
	if c.hasLevels() {
		options = append(options, "-Xcompression-level", strconv.Itoa(c.Level))
	}
	return options
}

// mksquashfs is a mksquashfs that reads tar streams and writes into the SIF.
type mksquashfs struct {
	Converter

	version float64
}

// write cannot set the root directory's owner, which becomes this process's user: mksquashfs 4.5
// reads it neither from a tar stream nor from its options.
func (m mksquashfs) write(ctx context.Context, f *os.File, offset int64, flat flattened) (int64, error) {
	root := flat.Root()
	args := append([]string{m.Mksquashfs, "-", f.Name(), "-tar"}, m.mksquashfsOptions()...)
	args = append(args,
		"-offset", strconv.FormatInt(offset, 10), "-root-mode", strconv.FormatInt(root.Mode, 8), "-quiet", "-exit-on-error")
	// Before version 4.6 the root directory gets the current time, or SOURCE_DATE_EPOCH if that is
	// earlier (squashfs-tools, tar.c: process_tar_file).
	future := m.version < 4.6 && root.Newest > time.Now().Unix() //nolint:forbidigo // mksquashfs reads this clock
	switch {
	case m.version >= 4.6:
		args = append(args, "-root-time", strconv.FormatInt(root.Newest, 10))
	case future:
		args = append(args, "-noI") // setRootTime needs it
	}
	program := command.Command{Args: args, Env: []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(root.Newest, 10)}}
	if err := m.streamTo(ctx, program, flat); err != nil {
		return 0, err
	}
	size, err := squashfsSize(f, offset)
	if err == nil && future {
		err = setRootTime(f, offset, root.Newest)
	}
	if err != nil {
		return 0, err
	}
	// mksquashfs may leave bytes beyond the end.
	if err := f.Truncate(offset + size); err != nil {
		return 0, fmt.Errorf("write the file system: %w", err)
	}
	return size, nil
}

// setRootTime sets the time stamp of the root directory in the file system at offset, whose inodes
// must not be compressed (squashfs_fs.h: struct squashfs_super_block, struct
// squashfs_base_inode_header). The inodes are in blocks of 8 KiB, each behind a header of two bytes.
func setRootTime(f *os.File, offset, seconds int64) error {
	const rootInode, inodeTable, timeStamp = 32, 64, 8
	const header, block, uncompressed = 2, 8 << 10, 1 << 15
	order := binary.LittleEndian
	super := make([]byte, 96)
	if _, err := f.ReadAt(super, offset); err != nil {
		return fmt.Errorf("read the file system that was written: %w", err)
	}
	inode := order.Uint64(super[rootInode:])                            // its block's position, and in the lower 16 bits its own in that block
	first := offset + int64(order.Uint64(super[inodeTable:])+inode>>16) //nolint:gosec // written by mksquashfs
	for i, b := range order.AppendUint32(nil, uint32(seconds)) {        //nolint:gosec // Root.Newest has 32 bits
		at := int64(inode&0xffff) + timeStamp + int64(i)
		start := first + at/block*(header+block)
		var head [header]byte
		if _, err := f.ReadAt(head[:], start); err != nil {
			return fmt.Errorf("read the file system that was written: %w", err)
		}
		if order.Uint16(head[:])&uncompressed == 0 {
			return errors.New("the file system that was written has compressed inodes")
		}
		if _, err := f.WriteAt([]byte{b}, start+header+at%block); err != nil {
			return fmt.Errorf("write the file system: %w", err)
		}
	}
	return nil
}

// tar2sqfs is the program of that name, which writes a separate file.
type tar2sqfs struct{ Converter }

// separateFile returns that file's path for the SIF at path.
func separateFile(path string) string { return path + ".squashfs" }

func (t tar2sqfs) write(ctx context.Context, f *os.File, offset int64, flat flattened) (int64, error) {
	made := separateFile(f.Name())
	root := flat.Root()
	const latest = 1<<31 - 1 // that tar2sqfs 1.2 takes for the root directory
	args := []string{
		t.Tar2sqfs, "--quiet", "--force", "--compressor", t.Compression,
		"--block-size", strconv.Itoa(t.BlockSize), "--num-jobs", strconv.Itoa(t.Processors),
		"--defaults", fmt.Sprintf("uid=0,gid=0,mode=0%o,mtime=%d", root.Mode, min(root.Newest, latest)),
	}
	if t.hasLevels() {
		args = append(args, "--comp-extra", "level="+strconv.Itoa(t.Level))
	}
	err := t.streamTo(ctx, command.Command{Args: append(args, made)}, flat)
	return moveInto(f, offset, made, err)
}

// moveInto moves a squashfs from a separate file into the SIF, unless err is set, which is the
// error of writing that file.
func moveInto(f *os.File, offset int64, made string, err error) (int64, error) {
	defer func() { _ = os.Remove(made) }() // the caller removes its directory anyway
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
