package source

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
	"sync/atomic"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

// archive is a tar file. Its files can be read at any offset. If it is compressed with gzip, as by
// docker save | gzip, each reading unpacks it up to that offset.
type archive struct {
	f       *os.File
	size    int64
	packed  bool
	entries map[string]archived
	names   int64        // bytes in entries
	read    atomic.Int64 // unpacked bytes of a compressed archive, in all readings
}

// archived is the position of a file in an unpacked archive, or the target of a link.
type archived struct {
	offset, size int64
	link         string
}

// maxArchived and maxNames limit the files of an archive and the bytes of their names, whose list is
// kept in memory. maxUnpacked limits the bytes of a compressed archive, and maxRead those that are
// unpacked in all readings: a reading unpacks the archive from its begin.
const (
	maxArchived = 100_000
	maxNames    = 32 << 20
	maxUnpacked = 256 << 30
	maxRead     = 16 * maxUnpacked
)

// openArchive opens a tar file and lists it. Of files with the same name the last one counts.
func (src Source) openArchive(ctx context.Context, path string) (_ *archive, err error) {
	f, err := src.openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, fileError(err)
	}
	a := &archive{f: f, size: info.Size(), entries: map[string]archived{}}
	magic := make([]byte, 2)
	n, _ := f.ReadAt(magic, 0) // readList finds its error
	a.packed = n == 2 && magic[0] == 0x1f && magic[1] == 0x8b
	if err := a.readList(ctx); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

func (a *archive) readList(ctx context.Context) error {
	stream, err := a.unpack(ctx)
	if err != nil {
		return err
	}
	for tr := tar.NewReader(stream); ; {
		header, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &plainError{}):
			return err
		case err != nil && len(a.entries) == 0:
			return plainError{text: "it is not a tar file, or compressed otherwise than with gzip", cause: err}
		case err != nil:
			return fileError(err)
		case len(a.entries) == maxArchived:
			return fmt.Errorf("there are more than %d files in it", maxArchived)
		}
		// tar.Reader has read to the end of the header, and no further.
		if err := a.add(header, stream.at); err != nil {
			return err
		}
	}
}

func (a *archive) add(header *tar.Header, offset int64) error {
	name := path.Clean("/" + header.Name)
	if a.names += int64(len(header.Name) + len(header.Linkname)); a.names > maxNames {
		return fmt.Errorf("the names of the files in it have more than %d MiB", maxNames>>20)
	}
	_, sparse := header.PAXRecords["GNU.sparse.major"]
	switch {
	case sparse, header.Typeflag == tar.TypeGNUSparse:
		return fmt.Errorf("%s in it is sparse", header.Name)
	case header.Typeflag == tar.TypeReg:
		a.entries[name] = archived{offset: offset, size: header.Size}
	case header.Typeflag == tar.TypeSymlink:
		a.entries[name] = archived{link: path.Join(path.Dir(name), header.Linkname)} //nolint:gosec // nothing is extracted
	case header.Typeflag == tar.TypeLink:
		a.entries[name] = archived{link: path.Clean("/" + header.Linkname)}
	}
	return nil
}

func (a *archive) open(ctx context.Context, name string, offset int64) (file, error) {
	const links = 8 // an old docker save wrote a link for a repeated layer
	at := path.Clean("/" + name)
	for range links {
		e, ok := a.entries[at]
		switch {
		case !ok:
			return file{}, plainError{text: fmt.Sprintf("there is no %s in it", name), cause: fs.ErrNotExist}
		case e.link != "":
			at = e.link
		default:
			return a.openEntry(ctx, e, offset)
		}
	}
	return file{}, fmt.Errorf("%s in it is a link that leads nowhere", name)
}

func (a *archive) openEntry(ctx context.Context, e archived, offset int64) (file, error) {
	stream, err := a.unpack(ctx)
	if err == nil {
		_, err = stream.Seek(e.offset+offset, io.SeekStart)
	}
	if err != nil {
		return file{}, fileError(err)
	}
	return file{io.LimitReader(stream, e.size-offset), io.NopCloser(nil), e.size}, nil
}

func (a *archive) seekable() bool { return !a.packed }
func (a *archive) close()         { _ = a.f.Close() }

func (a *archive) unpack(ctx context.Context) (*tarFile, error) {
	whole := io.NewSectionReader(a.f, 0, a.size)
	if !a.packed {
		return &tarFile{Reader: interruptible.Reader(ctx, whole), seek: whole}, nil
	}
	r, err := gzip.NewReader(bufio.NewReaderSize(whole, 256<<10))
	if err != nil {
		return nil, fileError(err)
	}
	return &tarFile{Reader: interruptible.Reader(ctx, r), read: &a.read}, nil
}

// tarFile reads an unpacked archive until a context ends. It can seek forward.
type tarFile struct {
	io.Reader

	seek io.Seeker     // nil for a compressed archive
	read *atomic.Int64 // of a compressed archive
	at   int64
}

func (t *tarFile) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.at += int64(n)
	if t.read == nil {
		return n, err
	}
	switch all := t.read.Add(int64(n)); {
	case t.at > maxUnpacked:
		return 0, plainError{text: fmt.Sprintf("it unpacks to more than %d GiB: unpack it first", maxUnpacked>>30)}
	case all > maxRead:
		return 0, plainError{text: fmt.Sprintf("it has so many layers that more than %d GiB would be unpacked: unpack it first", maxRead>>30)}
	}
	return n, err
}

// Seek seeks to an offset that is not before the current one.
func (t *tarFile) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekCurrent {
		offset += t.at
	} else if whence != io.SeekStart {
		return t.at, errors.ErrUnsupported
	}
	if offset < t.at {
		return t.at, errors.ErrUnsupported
	}
	if t.seek == nil {
		_, err := io.CopyN(io.Discard, t, offset-t.at)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return t.at, err
	}
	at, err := t.seek.Seek(offset, io.SeekStart)
	t.at = at
	return at, err
}
