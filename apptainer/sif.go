package apptainer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/uuid"
	"github.com/sylabs/sif/v2/pkg/sif"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Names and texts that Apptainer knows: pkg/image/sif.go and
// internal/pkg/build/assemblers/sif.go.
const (
	ociConfigName = "oci-config.json"
	launchScript  = "#!/usr/bin/env run-singularity\n"
)

// sifWriter writes one SIF. Its file system stands first, so that the squashfs
// writer can make the file and everything else is written after it.
type sifWriter struct {
	converter Converter
	image     Image
	config    *v1.ConfigFile
	plan      plan
	open      func(layer int) (io.ReadCloser, error)
	report    *reporter
}

// write makes the file at path, whole and flushed.
func (w sifWriter) write(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a SIF holds no secrets, and its directory is the caller's
	if err != nil {
		return fmt.Errorf("create the SIF: %w", err)
	}
	err = w.fill(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if removeErr := os.Remove(path); !errors.Is(removeErr, fs.ErrNotExist) { // mksquashfs may have done so
		err = errors.Join(err, removeErr)
	}
	return err
}

func (w sifWriter) fill(ctx context.Context, f *os.File) error {
	objects, err := w.objects(ctx, f.Name())
	if err != nil {
		return err
	}
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(w.image.Digest))
	image, err := sif.CreateContainer(f,
		sif.OptCreateWithID(id.String()),
		sif.OptCreateWithTime(w.config.Created.UTC()),
		sif.OptCreateWithLaunchScript(launchScript),
		sif.OptCreateWithCloseOnUnload(false),
		sif.OptCreateWithDescriptors(objects...))
	if err != nil {
		return fmt.Errorf("write the SIF: %w", err)
	}
	if err := image.UnloadContainer(); err != nil {
		return fmt.Errorf("write the SIF: %w", err)
	}
	return nil
}

// objects are what the SIF holds, the file system first.
func (w sifWriter) objects(ctx context.Context, path string) ([]sif.DescriptorInput, error) {
	config, err := json.Marshal(w.config.Config)
	if err != nil {
		return nil, fmt.Errorf("write the image's configuration: %w", err)
	}
	definition := fmt.Sprintf("bootstrap: docker\nfrom: %s\n", w.image.Pinned())
	root := &squashfs{ctx: ctx, sifWriter: w, path: path}
	var objects []sif.DescriptorInput
	for _, o := range []struct {
		kind sif.DataType
		data io.Reader
		opts []sif.DescriptorInputOpt
	}{
		{sif.DataPartition, root, []sif.DescriptorInputOpt{
			sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, w.image.Architecture),
			sif.OptObjectName("rootfs"),
		}},
		{sif.DataDeffile, strings.NewReader(definition), nil},
		{sif.DataGenericJSON, bytes.NewReader(config), []sif.DescriptorInputOpt{sif.OptObjectName(ociConfigName)}},
	} {
		in, err := sif.NewDescriptorInput(o.kind, o.data, o.opts...)
		if err != nil {
			return nil, fmt.Errorf("describe the SIF: %w", err)
		}
		objects = append(objects, in)
	}
	return objects, nil
}

// squashfs is the file system as an object of a SIF: the sif package copies
// its objects, which for an io.WriterTo means that it says where it wants to
// stand and is told what it got.
type squashfs struct {
	sifWriter

	ctx  context.Context //nolint:containedctx // carried over io.WriterTo
	path string
}

// Read exists for io.Reader; the sif package never calls it.
func (s *squashfs) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTo makes the file system in the SIF itself, at the position that w is
// at.
func (s *squashfs) WriteTo(w io.Writer) (int64, error) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	offset, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, fmt.Errorf("write the file system: %w", err)
	}
	if err := s.make(offset); err != nil {
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

// squashfsSize reads from its superblock how long the file system at offset is,
// padded for those who mount it from a block device. See squashfs_fs.h:
// struct squashfs_super_block.
func squashfsSize(r io.ReaderAt, offset int64) (int64, error) {
	const blockDevice = 4096
	super := make([]byte, 96)
	if _, err := r.ReadAt(super, offset); err != nil {
		return 0, fmt.Errorf("read what mksquashfs has written: %w", err)
	}
	used := int64(binary.LittleEndian.Uint64(super[40:])) //nolint:gosec // checked below
	if !bytes.HasPrefix(super, []byte("hsqs")) || used <= 0 {
		return 0, errors.New("mksquashfs has not written a file system")
	}
	return (used + blockDevice - 1) / blockDevice * blockDevice, nil
}

// make streams the planned tree into mksquashfs.
func (s *squashfs) make(offset int64) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start mksquashfs: %w", err)
	}
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20) // faster when it is granted
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	emitted := make(chan error, 1)
	go func() {
		buffered := bufio.NewWriterSize(countingWriter{w, s.report}, 256<<10)
		err := s.plan.emit(buffered, s.open)
		if err == nil {
			err = buffered.Flush()
		}
		if err != nil && !errors.Is(err, unix.EPIPE) {
			cancel() // half a stream must not look like a whole one
		}
		emitted <- errors.Join(err, w.Close())
	}()
	err = s.command(offset, r).Run(ctx)
	_ = r.Close() // so that emit does not wait for a program that is gone
	emitErr := <-emitted
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("write the file system: %w", s.ctx.Err())
	case err == nil && errors.Is(emitErr, unix.EPIPE):
		return nil // mksquashfs stops reading in the midst of the mark that ends a tar stream
	case err != nil && (emitErr == nil || errors.Is(emitErr, unix.EPIPE)):
		return mksquashfsError(err)
	default:
		return emitErr
	}
}

// command is mksquashfs as this package uses it. The root directory belongs to
// root whatever the image says, and its time stamp is bounded by the newest
// file's: mksquashfs 4.5 takes neither from a tar stream nor from its options
// there.
func (s *squashfs) command(offset int64, stdin *os.File) command.Command {
	c := s.converter
	return command.Command{
		Args: []string{
			"mksquashfs", "-", s.path, "-tar", "-noappend", "-offset", strconv.FormatInt(offset, 10),
			"-comp", "zstd", "-Xcompression-level", "1", "-b", "128K",
			"-mem", strconv.Itoa(c.memoryMiB()) + "M", "-processors", strconv.Itoa(c.processors()),
			"-root-mode", strconv.FormatInt(s.plan.root.mode, 8),
			"-no-progress", "-quiet", "-no-recovery", "-exit-on-error",
		},
		Env:   []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(s.plan.newest, 10)},
		Stdin: stdin,
	}
}

// mksquashfsError keeps the kind of a failure that mksquashfs tells in words
// only.
func mksquashfsError(err error) error {
	var failed *command.Error
	switch {
	case errors.As(err, &failed) && !failed.Started():
		return fmt.Errorf("mksquashfs cannot be started (install squashfs-tools 4.5 or newer): %w", failed.Err)
	case failed != nil && containsFold(failed.Stderr, unix.ENOSPC):
		return fmt.Errorf("mksquashfs: %w", unix.ENOSPC)
	case failed != nil && containsFold(failed.Stderr, unix.EDQUOT):
		return fmt.Errorf("mksquashfs: %w", unix.EDQUOT)
	case failed != nil && failed.Stderr != "":
		return fmt.Errorf("mksquashfs: %s", strings.Join(strings.Split(failed.Stderr, "\n"), "; "))
	}
	return fmt.Errorf("write the file system: %w", err)
}

// containsFold looks for an errno's text as any program may print it.
func containsFold(text string, errno syscall.Errno) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(errno.Error()))
}

type countingWriter struct {
	io.Writer

	report *reporter
}

func (w countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.report.add(int64(n))
	return n, err //nolint:wrapcheck // a Writer's error is its own
}
