package tarstream

import (
	"archive/tar"
	"archive/zip"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

// maxDirectory is the largest size in bytes of the directory of a zip archive that UnpackZip unpacks. archive/zip keeps
// the directory in memory, in about seven times its size.
const maxDirectory = 64 << 20

// Values of zip.FileHeader (APPNOTE.TXT, 4.4.2, 4.4.4 and 4.4.5).
const (
	zipEncrypted = 1
	zipBzip2     = 12
	zipUnix      = 3
	zipDarwin    = 19
)

// UnpackZip is Unpack for a zip archive of size bytes, which must not change until UnpackZip
// returns. Like Info-ZIP's unzip, and unlike Unpack, it rejects duplicate names, names that begin
// with "/", and archives without entries (codalab/worker/file_util.py: unzip_directory).
func UnpackZip(ctx context.Context, r io.ReaderAt, size int64, root *os.Root, limits Limits) (Size, error) {
	zr, err := OpenZip(r, size, maxDirectory)
	if err != nil {
		return Size{}, fmt.Errorf("unpack: %w", err)
	}
	zr.RegisterDecompressor(zipBzip2, func(r io.Reader) io.ReadCloser { return io.NopCloser(bzip2.NewReader(r)) })
	u := newUnpacker(ctx, root, limits)
	u.once = true // one of two files would be lost
	for _, f := range zr.File {
		if err = u.zipEntry(ctx, f); err != nil {
			err = fmt.Errorf("unpack %s: %w", printable(f.Name), err)
			break
		}
	}
	return u.size, errors.Join(err, u.tree.close())
}

// OpenZip reads the directory of a zip archive of size bytes, if the directory has no more than most bytes. It refuses archives without entries and those
// whose entries share bytes.
func OpenZip(r io.ReaderAt, size, most int64) (*zip.Reader, error) {
	index := &indexReader{r: r, most: most, left: most}
	zr, err := zip.NewReader(index, size)
	if err != nil {
		return nil, brokenZip(err)
	}
	index.left = -1
	if len(zr.File) == 0 {
		return nil, fmt.Errorf("%w: it has no entries", ErrFormat)
	}
	return zr, checkOverlaps(zr.File, size)
}

// checkOverlaps refuses an archive of size bytes whose entries share bytes, as Info-ZIP's unzip
// does: in some, every entry is nearly all of the archive.
func checkOverlaps(entries []*zip.File, size int64) error {
	left := uint64(max(size, 0))
	for _, f := range entries {
		if f.CompressedSize64 > left {
			return fmt.Errorf("%w: its entries overlap, or are longer than the archive", ErrFormat)
		}
		left -= f.CompressedSize64
	}
	return nil
}

// indexReader bounds the bytes that zip.NewReader reads for the directory. A negative bound means
// none.
type indexReader struct {
	r          io.ReaderAt
	most, left int64
}

// ReadAt reads within the bound.
func (i *indexReader) ReadAt(b []byte, at int64) (int, error) {
	if i.left < 0 {
		return i.r.ReadAt(b, at)
	}
	if i.left -= int64(len(b)); i.left < 0 {
		i.left = 0
		return 0, fmt.Errorf("%w: more than %d bytes of names", ErrTooLarge, i.most)
	}
	return i.r.ReadAt(b, at)
}

func (u *unpacker) zipEntry(ctx context.Context, f *zip.File) error {
	header, err := zipHeader(f)
	if err != nil {
		return err
	}
	content, err := f.Open()
	if err != nil {
		return brokenZip(err)
	}
	stream := zipContent{interruptible.Reader(ctx, content)}
	if header.Typeflag == tar.TypeSymlink {
		target, err := io.ReadAll(io.LimitReader(stream, maxName+1))
		if err == nil && len(target) > maxName {
			err = fmt.Errorf("%w: a link of more than %d bytes", ErrTooLarge, maxName)
		}
		header.Linkname = string(target)
		if err != nil {
			return errors.Join(err, content.Close())
		}
	}
	return errors.Join(u.entry(header, stream), content.Close())
}

// zipHeader returns a zip archive's entry as one of a tar archive, or an error if no bundle may
// hold it.
func zipHeader(f *zip.File) (*tar.Header, error) {
	system := f.CreatorVersion >> 8
	unix := system == zipUnix || system == zipDarwin
	switch {
	case f.Flags&zipEncrypted != 0:
		return nil, fmt.Errorf("%w: it is encrypted", ErrUnsafe)
	case strings.Contains(f.Name, "\x00"):
		return nil, fmt.Errorf("%w: a name with a zero byte", ErrUnsafe)
	case strings.HasPrefix(f.Name, "/"):
		return nil, fmt.Errorf("%w: a name that begins with a slash", ErrUnsafe)
	case strings.Contains(f.Name, `\`) && !unix:
		return nil, fmt.Errorf("%w: a name with backslashes for slashes", ErrUnsafe)
	}
	mode := f.Mode()
	if !unix {
		mode &^= 0o022 // these systems have no permissions, and Mode gives all
	}
	header := &tar.Header{Name: f.Name, Mode: int64(mode.Perm()), ModTime: f.Modified}
	switch {
	case mode.IsDir() || strings.HasSuffix(f.Name, "/"):
		header.Typeflag = tar.TypeDir
	case mode.IsRegular():
		header.Typeflag = tar.TypeReg
		header.Size = int64(min(f.UncompressedSize64, 1<<62))
	case mode.Type() == fs.ModeSymlink:
		header.Typeflag = tar.TypeSymlink
	default:
		return nil, fmt.Errorf("%w: a device, pipe or unknown kind of entry", ErrUnsafe)
	}
	return header, nil
}

// zipContent is the content of an entry. Its errors are those of Unpack.
type zipContent struct{ r io.Reader }

func (c zipContent) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = brokenZip(err)
	}
	return n, err
}

// brokenZip returns the error for a failure of archive/zip: an ErrFormat, unless the disk failed.
func brokenZip(err error) error {
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk), errors.Is(err, ErrTooLarge), errors.Is(err, ErrFormat),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, zip.ErrAlgorithm):
		return fmt.Errorf("%w: a way of compression that is not supported", ErrFormat)
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}
