package tarstream

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/internal/readahead"
)

// Limits bounds the files that Unpack writes; 0 means no bound.
type Limits struct {
	// Bytes is the most that all files may hold together; the holes of
	// sparse files count.
	Bytes int64
	// Entries is the most files, directories and links there may be.
	Entries int64
	// Reserve is called before n more bytes are written to files; an error of it ends the
	// unpacking. It may be nil.
	Reserve func(n int64) error
	// ReserveEntry is called before one more file, directory or link is made; an error of it ends the unpacking. It
	// may be nil.
	ReserveEntry func() error
}

// Watch has functions that Unpack calls as it unpacks, from one goroutine. Each may be nil.
type Watch struct {
	// Wrote is called for n more bytes in files.
	Wrote func(n int64)
	// Entry is called for an entry that is written and closed. Its name is relative to the
	// root.
	Entry func(name string, header *tar.Header)
	// Special is called for a device, a pipe or an entry of unknown kind, which Unpack leaves
	// out; if Special is nil, such an entry is an ErrUnsafe.
	Special func(name string)
}

// Size is the size of a stream's contents.
type Size struct {
	Bytes   int64 // in all files together
	Entries int64 // with directories that are named in the paths of others only
}

// The reasons for which Unpack rejects a stream. The errors name the entry.
var (
	// ErrFormat means that the stream is no archive of its kind, or broken.
	ErrFormat = errors.New("not a whole archive")
	// ErrUnsafe means an entry that no bundle may hold: a device, or a name
	// that leads elsewhere.
	ErrUnsafe = errors.New("not allowed in an archive")
	// ErrTooLarge means that the stream holds more than its Limits (then it is a
	// *LimitError), or a name that is too long for a disk.
	ErrTooLarge = errors.New("archive is too large")
)

// LimitError is an ErrTooLarge. The exceeded limit is the only field of Limits that is not 0.
type LimitError struct{ Limits Limits }

// Error names the limit.
func (e *LimitError) Error() string {
	if e.Limits.Bytes > 0 {
		return fmt.Sprintf("%v: more than %d bytes", ErrTooLarge, e.Limits.Bytes)
	}
	return fmt.Sprintf("%v: more than %d entries", ErrTooLarge, e.Limits.Entries)
}

// Unwrap returns ErrTooLarge.
func (e *LimitError) Unwrap() error { return ErrTooLarge }

const (
	// maxTail is the number of bytes allowed after an archive: tar pads to its record size.
	maxTail = 1 << 20
	// maxHeaders is the largest size of one entry's headers. archive/tar itself reads up to 1
	// MiB for each of four kinds of extended headers, and any number of them.
	maxHeaders = 8 << 20
)

// Unpack reads a tar stream, gzipped or plain, to its end and writes its entries into root. It
// makes symbolic links as given, and never follows them; hard links must lead to entries
// inside root; a leading "/" of a name is dropped; a later entry replaces an earlier file of
// the same name. Unpack keeps the times of files, but not their owners; the owner may always
// read files and change directories.
//
// An error that is not this package's is r's, ctx's or the disk's. Unpack does not read r
// after it has returned; to return, it may have to wait for a Read that has begun.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, limits Limits) (Size, error) {
	return UnpackWatched(ctx, r, root, limits, Watch{})
}

// UnpackWatched is Unpack with a Watch, which records the unpacked entries of a stream that
// breaks off.
func UnpackWatched(ctx context.Context, r io.Reader, root *os.Root, limits Limits, watch Watch) (Size, error) {
	ctx, stop := context.WithCancel(ctx)
	plain, err := decompress(source{interruptible.Reader(ctx, r)})
	if err != nil {
		stop()
		return Size{}, fmt.Errorf("unpack: %w", err)
	}
	ahead := readahead.New(plain, func(read func()) { read() })
	u := newUnpacker(ctx, root, limits)
	u.watch = watch
	err = u.unpack(&metered{r: ahead})
	stop()
	ahead.Stop()
	return u.size, errors.Join(err, u.tree.close())
}

// decompress returns the archive in r, whether it is gzipped or not.
func decompress(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	magic, err := br.Peek(2)
	if errors.Is(err, io.EOF) {
		return nil, ErrFormat
	}
	if err != nil {
		return nil, broken(err)
	}
	if magic[0] != 0x1f || magic[1] != 0x8b {
		return br, nil
	}
	zr, err := gzip.NewReader(br)
	if err != nil {
		return nil, broken(err)
	}
	return zr, nil
}

// source marks the errors of Unpack's reader, to distinguish them from those of bad input.
type source struct{ r io.Reader }

type sourceError struct{ error }

func (s source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		err = sourceError{err}
	}
	return n, err
}

// broken returns the error for a failure to read the archive: an ErrFormat, unless the source
// failed.
func broken(err error) error {
	var failed sourceError
	switch {
	case errors.As(err, &failed):
		return failed.error
	case errors.Is(err, ErrTooLarge):
		return err
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// metered bounds the bytes that may be read until the next entry or its content ends.
type metered struct {
	r    io.Reader
	left int64
}

// allow sets the bound to n bytes more than an entry's headers.
func (m *metered) allow(n int64) { m.left = min(n, math.MaxInt64-maxHeaders) + maxHeaders }

func (m *metered) Read(b []byte) (int, error) {
	if m.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, maxHeaders)
	}
	if int64(len(b)) > m.left {
		b = b[:m.left]
	}
	n, err := m.r.Read(b)
	m.left -= int64(n)
	return n, err
}

// unpacker is one call of Unpack.
type unpacker struct {
	ctx    context.Context //nolint:containedctx // of one call
	tree   *tree
	limits Limits
	watch  Watch
	once   bool // a second entry of the same name is an error
	size   Size
	// headers and made count the entries and the directories that are only in their paths.
	headers, made int64
	buf           []byte
}

func newUnpacker(ctx context.Context, root *os.Root, limits Limits) *unpacker {
	u := &unpacker{ctx: ctx, limits: limits, buf: make([]byte, 64<<10)}
	u.tree = newTree(root, u.checkOpened)
	return u
}

func (u *unpacker) unpack(plain *metered) error {
	tr := tar.NewReader(plain)
	plain.allow(0)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return u.end(plain)
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", broken(err))
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue // its bytes stay counted
		}
		plain.allow(header.Size)
		if err := u.entry(header, tr); err != nil {
			return fmt.Errorf("unpack %s: %w", printable(header.Name), err)
		}
		plain.allow(0)
	}
}

// end reads the bytes after the archive, to notice a truncated or damaged compression.
func (u *unpacker) end(plain *metered) error {
	plain.allow(0)
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(plain, maxTail+1), u.buf)
	if err != nil {
		return fmt.Errorf("unpack: %w", broken(err))
	}
	if n > maxTail {
		return fmt.Errorf("unpack: %w: more data after its end", ErrFormat)
	}
	return nil
}

func (u *unpacker) count() error {
	if u.limits.Entries > 0 && u.size.Entries >= u.limits.Entries {
		return &LimitError{Limits{Entries: u.limits.Entries}}
	}
	if u.limits.ReserveEntry != nil {
		if err := u.limits.ReserveEntry(); err != nil {
			return err
		}
	}
	u.size.Entries++
	return nil
}

func printable(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}
