package apptainer

import (
	"bufio"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// maxWindow limits the memory that a layer can demand from its decompressor. It is zstd's own
// default (zstd(1): --memory), and twice as much as xz -9 needs.
const maxWindow = 128 << 20

// decompress unpacks a blob as Docker does, until ctx ends.
func (l *layers) decompress(ctx context.Context, blob *bufio.Reader) (io.ReadCloser, error) {
	first, err := blob.Peek(source.PackingBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch source.PackingOf(first) {
	case source.Gzip:
		content, err := gzip.NewReader(blob)
		if err != nil {
			return nil, unpackError(err)
		}
		content.Multistream(false)
		return io.NopCloser(&members{blob, content}), nil
	case source.Zstd:
		content, err := zstd.NewReader(blob, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, unpackError(err)
		}
		return content.IOReadCloser(), nil
	case source.Bzip2:
		return io.NopCloser(bzip2.NewReader(blob)), nil
	case source.XZ:
		return l.unxz(ctx, blob), nil
	case source.Plain:
	}
	return io.NopCloser(blob), nil
}

// unpackError describes a decompressor's error. If a pull has failed, the converter returns the
// pull's error instead.
func unpackError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("its content is cut short")
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("it takes more than %d MiB of memory to unpack, the most that is allowed", maxWindow>>20)
	}
	return fmt.Errorf("unpack: %w", err)
}

// members unpacks all members of a gzip file. It ignores other bytes behind them, as gzip does, and
// unpigz, with which Docker unpacks layers where it is installed. The diffID covers the result.
type members struct {
	blob    *bufio.Reader
	content *gzip.Reader // of one member
}

// Read reads the unpacked bytes.
func (m *members) Read(p []byte) (int, error) {
	n, err := m.content.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err //nolint:wrapcheck // unpackError describes it
	}
	next, err := m.blob.Peek(source.PackingBytes)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case source.PackingOf(next) != source.Gzip:
		return n, io.EOF
	}
	err = m.content.Reset(m.blob)
	m.content.Multistream(false)
	return n, err //nolint:wrapcheck // as above
}

// unxz unpacks a blob with the program xz, as Docker does (moby/go-archive
// compression/compression.go: xzDecompress).
func (l *layers) unxz(ctx context.Context, blob io.Reader) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	s := &xzStream{PipeReader: r, cancel: cancel}
	s.running.Go(func() {
		l.nicely(func() {
			program := command.Command{
				Args:  []string{"xz", "--decompress", "--stdout", "--quiet", "--threads=1", "--memlimit-decompress=" + strconv.Itoa(maxWindow)},
				Stdin: onlyReader{blob}, Stdout: w,
			}
			w.CloseWithError(xzError(program.Run(ctx))) // nil is io.EOF
		})
	})
	return s
}

// xzStream is the output of a program.
type xzStream struct {
	*io.PipeReader

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Close ends the program.
func (s *xzStream) Close() error {
	s.cancel()
	err := s.PipeReader.Close()
	s.running.Wait()
	return err
}

// xzError describes a failure of xz. xz itself names a layer's fault, such as "Memory usage limit
// reached".
func xzError(err error) error {
	failed, ok := errors.AsType[*command.Error](err)
	switch {
	case !ok:
		return err
	case errors.Is(failed.Err, exec.ErrNotFound):
		return errors.New("it is compressed with xz, which is not installed here (Debian's package xz-utils); layers with gzip or zstd need no program")
	case failed.Killed():
		return hostError{"unpack: xz was killed", err}
	case failed.Stderr != "":
		return errors.New(strings.Join(strings.Fields(failed.Stderr), " "))
	}
	return err
}
