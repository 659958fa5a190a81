package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// partialFile is a hidden file in the directory of a download, with the beginning of the downloaded file. Its
// name has a digest of the server, the bundle, the path and the size, so a download never continues
// another file's part. A lock keeps two processes from writing the same part.
type partialFile struct {
	path string
	file *os.File
	size int64
}

// partName returns the beginning of the names of parts for a destination.
func partName(final string) string {
	name := filepath.Base(final)
	return "." + name[:min(len(name), 200)] + ".part-"
}

// unwritable is the error for a directory in which nothing can be made.
func unwritable(dir string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return refusef("Nothing can be written to %s: %v. Choose another path with -o.", dir, err)
}

// openPart opens the part of a file. It continues an existing part only if the contents cannot change.
func (d *download) openPart() (*partialFile, error) {
	dir := filepath.Dir(d.final)
	identity := strings.Join([]string{d.at.Address(), d.target.BundleUUID, d.target.Subpath, strconv.FormatInt(d.info.Size, 10)}, "\x00")
	if !d.steady {
		identity = codalab.NewUUID() // nobody's
	}
	sum := sha256.Sum256([]byte(identity))
	path := filepath.Join(dir, partName(d.final)+hex.EncodeToString(sum[:8]))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o666) //nolint:gosec // as the user's umask says
	if err != nil {
		return nil, unwritable(dir, err)
	}
	p := &partialFile{path: path, file: f}
	if isTaken(f) {
		_ = f.Close() // another process has it
		return nil, refusef("Another cl is downloading this file to %s.", d.final)
	}
	// On a file system without locks, isTaken never reports a lock.
	if p.size, err = f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("continue %s: %w", path, err), f.Close())
	}
	return p, nil
}

// leavePart closes a part. After a failed download it keeps the part only if a later call can continue
// it.
func (d *download) leavePart(p *partialFile, failure error) error {
	_ = p.file.Close() // again, unless it has failed
	if failure == nil {
		return nil
	}
	if d.steady && p.size > 0 {
		d.warn("%s of %s are kept in %s: the same command goes on from there.", codalab.FormatSize(p.size), codalab.FormatSize(d.info.Size), p.path)
		return nil
	}
	return os.Remove(p.path)
}

// writeSize is the size of the writes to a part. The kernel makes large pages for large writes, and takes a third less time.
const writeSize = 1 << 20

// add adds a stream.
func (p *partialFile) add(r io.Reader) error {
	w := bufio.NewWriterSize(struct{ io.Writer }{p.file}, writeSize) // hides File.ReadFrom, which bufio would call with its 32 KiB
	n, err := w.ReadFrom(r)
	if flushed := w.Flush(); err == nil {
		err = flushed
	}
	p.size += n - int64(w.Buffered()) // what could not be written
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

// restart empties the part.
func (p *partialFile) restart() error {
	p.size = 0
	_, err := p.file.Seek(0, io.SeekStart)
	return errors.Join(err, p.file.Truncate(0))
}

// endsWith reports whether the part has these bytes from an offset to its end.
func (p *partialFile) endsWith(from int64, end []byte) (bool, error) {
	if from+int64(len(end)) != p.size {
		return false, nil
	}
	mine := make([]byte, len(end))
	if _, err := p.file.ReadAt(mine, from); err != nil {
		return false, fmt.Errorf("read the part that is there: %w", err)
	}
	return bytes.Equal(mine, end), nil
}
