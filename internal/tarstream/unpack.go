package tarstream

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// Limits bounds what Unpack writes; 0 means no bound.
type Limits struct {
	// Bytes is the most that all files may hold together.
	Bytes int64
	// Entries is the most files, directories and links there may be.
	Entries int64
}

// Watch is told how far Unpack is, from one goroutine at a time. Functions that
// are nil are not called.
type Watch struct {
	// Wrote is told of n more bytes in files.
	Wrote func(n int64)
	// Entry is told of an entry that is whole: written and closed. Its name is
	// relative to the root.
	Entry func(name string, header *tar.Header)
}

// Size says what a stream held.
type Size struct {
	Bytes   int64 // in all files together
	Entries int64
}

// Why Unpack refuses a stream; its errors say which entry.
var (
	// ErrFormat means that the stream is no tar archive, or broken.
	ErrFormat = errors.New("not a whole tar archive")
	// ErrUnsafe means an entry that no bundle may hold: a device, or a name
	// that leads elsewhere.
	ErrUnsafe = errors.New("not allowed in an archive")
	// ErrTooLarge means that the stream holds more than its Limits.
	ErrTooLarge = errors.New("archive is too large")
)

// maxTail is how much may follow the end of an archive: tar pads to its
// record size.
const maxTail = 1 << 20

// maxName is the longest path in an archive, in bytes: that of Linux.
const maxName = 4096

// Unpack reads a tar stream, gzipped or plain, to its end and writes what it
// holds into root. Symbolic links are made as given, and are followed only to
// places inside root; hard links are made to entries inside root; names that
// begin with "/" are taken as below root; a later entry replaces an earlier
// file of its name. Times of files are kept, their owners are not; the owner
// may always read files and change directories.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, limits Limits) (Size, error) {
	return UnpackWatched(ctx, r, root, limits, Watch{})
}

// UnpackWatched is Unpack that says how far it is, so that what was unpacked of
// a stream that broke off is known.
func UnpackWatched(ctx context.Context, r io.Reader, root *os.Root, limits Limits, watch Watch) (Size, error) {
	plain, err := decompress(interruptible{ctx, r})
	if err != nil {
		return Size{}, fmt.Errorf("unpack: %w", err)
	}
	u := unpacker{root: root, limits: limits, watch: watch, buf: make([]byte, 128<<10)}
	tr := tar.NewReader(plain)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return u.size, u.end(plain)
		}
		if err != nil {
			return u.size, fmt.Errorf("unpack: %w", broken(err))
		}
		if err := u.entry(header, tr); err != nil {
			return u.size, fmt.Errorf("unpack %s: %w", printable(header.Name), err)
		}
	}
}

// decompress returns the archive in r, whether it is gzipped or not.
func decompress(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	magic, err := br.Peek(2)
	if errors.Is(err, io.EOF) {
		return nil, ErrFormat
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // the source's own error
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

// broken marks the errors of the tar and gzip readers that tell of bad input.
func broken(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, tar.ErrInsecurePath) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return err
}

// unpacker is one call of Unpack.
type unpacker struct {
	root   *os.Root
	limits Limits
	watch  Watch
	size   Size
	buf    []byte
}

// end reads what follows the archive, so that a cut or damaged compression is
// noticed.
func (u *unpacker) end(plain io.Reader) error {
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(plain, maxTail+1), u.buf)
	if err != nil {
		return fmt.Errorf("unpack: %w", broken(err))
	}
	if n > maxTail {
		return fmt.Errorf("unpack: %w: more data after its end", ErrFormat)
	}
	return nil
}

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	u.size.Entries++
	if u.limits.Entries > 0 && u.size.Entries > u.limits.Entries {
		return fmt.Errorf("%w: more than %d entries", ErrTooLarge, u.limits.Entries)
	}
	name, err := inside(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if header.Typeflag == tar.TypeDir {
			return nil // the root itself is the caller's
		}
		return fmt.Errorf("%w: a file without a name", ErrUnsafe)
	}
	if err := u.write(name, header, content); err != nil {
		return err
	}
	if u.watch.Entry != nil {
		u.watch.Entry(name, header)
	}
	return nil
}

func (u *unpacker) write(name string, header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeDir {
		return u.directory(name, header)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(name, header, content)
	case tar.TypeSymlink:
		return u.root.Symlink(header.Linkname, name) //nolint:wrapcheck // Unpack wraps
	case tar.TypeLink:
		target, err := inside(header.Linkname)
		if err != nil {
			return fmt.Errorf("link to %s: %w", printable(header.Linkname), err)
		}
		return u.root.Link(target, name) //nolint:wrapcheck // Unpack wraps
	}
	return fmt.Errorf("%w: a device, pipe or unknown kind of entry", ErrUnsafe)
}

// inside brings an entry's name to a path below the root.
func inside(name string) (string, error) {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("%w: a name that leads upwards", ErrUnsafe)
	}
	if len(name) > maxName {
		return "", fmt.Errorf("%w: a path of more than %d bytes", ErrTooLarge, maxName)
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// clear makes place for an entry that is no directory: its parents exist
// after it, and no file of its name does. Writing into an old one could write
// through a link.
func (u *unpacker) clear(name string) error {
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err //nolint:wrapcheck // Unpack wraps
	}
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		return fmt.Errorf("%w: a file where a directory is", ErrUnsafe)
	}
	if err == nil {
		err = u.root.Remove(name)
	}
	return err //nolint:wrapcheck // Unpack wraps
}

func (u *unpacker) directory(name string, header *tar.Header) error {
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err //nolint:wrapcheck // Unpack wraps
	}
	return u.root.Chmod(name, header.FileInfo().Mode().Perm()|0o700) //nolint:wrapcheck // Unpack wraps
}

func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	if left := u.limits.Bytes - u.size.Bytes; u.limits.Bytes > 0 && header.Size > left {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, u.limits.Bytes)
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // Unpack wraps
	}
	n, err := io.CopyBuffer(counted{f, u.watch.Wrote}, struct{ io.Reader }{content}, u.buf)
	u.size.Bytes += n
	if err != nil {
		err = broken(err)
	} else {
		err = f.Chmod(header.FileInfo().Mode().Perm() | 0o400)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if header.ModTime.Unix() <= 0 {
		return nil
	}
	return u.root.Chtimes(name, header.ModTime, header.ModTime) //nolint:wrapcheck // Unpack wraps
}

// counted is a file whose bytes are told of. It hides the file's ReadFrom,
// which would not use the buffer.
type counted struct {
	f     *os.File
	wrote func(n int64)
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.f.Write(b)
	if c.wrote != nil {
		c.wrote(int64(n))
	}
	return n, err //nolint:wrapcheck // Unpack wraps
}

// printable is a name of an archive as it may stand in a message.
func printable(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}
