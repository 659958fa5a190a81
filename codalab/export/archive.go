package export

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
)

// digest is the digest of a file.
type digest [sha256.Size]byte

// archive writes the entries of a ZIP archive, and notes their digests.
type archive struct {
	zip     *zip.Writer
	packer  *flate.Writer
	names   []string
	digests []digest
	buf     []byte
	// entries counts all entries, bytes those of files before they are packed, and index those of the ZIP's directory.
	entries int
	bytes   int64
	index   int64
}

// mostDirectory bounds the bytes of a ZIP's directory, for those that write and those that read it: some two million names.
// Package zip needs seven times as much memory to read it.
const mostDirectory = 256 << 20

// mostBytes is the size of an entry of the directory without its name: its own, a time, and sizes of more than 4 GiB.
const mostBytes = 46 + 9 + 28

func newArchive(w io.Writer) *archive {
	a := &archive{zip: zip.NewWriter(w), buf: make([]byte, 64<<10)}
	a.zip.RegisterCompressor(zip.Deflate, a.compress)
	return a
}

// compress returns the compressor for the next entry. There is one for all entries, which come one after the other.
func (a *archive) compress(w io.Writer) (io.WriteCloser, error) {
	if a.packer != nil {
		a.packer.Reset(w)
		return a.packer, nil
	}
	var err error
	a.packer, err = flate.NewWriter(w, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return a.packer, nil
}

// earliest is the first moment that a ZIP knows, and latest the last one.
func earliest() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }
func latest() time.Time   { return time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC) }

// create begins an entry.
func (a *archive) create(name string, mode fs.FileMode, at time.Time) (io.Writer, error) {
	if at.Before(earliest()) {
		at = earliest()
	}
	if at.After(latest()) {
		at = latest()
	}
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at.UTC()}
	if mode.IsDir() || mode&fs.ModeSymlink != 0 {
		h.Method = zip.Store
	}
	h.SetMode(mode)
	a.entries++
	a.index += int64(len(name)) + mostBytes
	w, err := a.zip.CreateHeader(h)
	if err != nil {
		return nil, fmt.Errorf("write %q: %w", name, err)
	}
	return w, nil
}

// directory adds a directory, whose name ends with a slash.
func (a *archive) directory(name string, perm fs.FileMode, at time.Time) error {
	_, err := a.create(name, fs.ModeDir|perm, at)
	return err
}

// link adds a symbolic link.
func (a *archive) link(name, target string, at time.Time) error {
	w, err := a.create(name, fs.ModeSymlink|0o777, at)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, target); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	return nil
}

// readError is an error of the reader of an entry's bytes.
type readError struct{ error }

// Unwrap returns the error.
func (e readError) Unwrap() error { return e.error }

// file adds a file. An error of r is a readError.
func (a *archive) file(name string, perm fs.FileMode, at time.Time, r io.Reader) error {
	w, err := a.create(name, perm, at)
	if err != nil {
		return err
	}
	sum := sha256.New()
	for {
		n, err := r.Read(a.buf)
		_, _ = sum.Write(a.buf[:n]) // never fails
		if _, err := w.Write(a.buf[:n]); err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
		a.bytes += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return readError{fmt.Errorf("read %q: %w", name, err)}
		}
	}
	a.names, a.digests = append(a.names, name), append(a.digests, digest(sum.Sum(nil)))
	return nil
}

// close adds the manifest, and ends the archive.
func (a *archive) close(at time.Time) error {
	w, err := a.create(manifestName, 0o644, at)
	if err != nil {
		return err
	}
	for i, name := range a.names {
		if _, err := io.WriteString(w, manifestLine(name, a.digests[i])); err != nil {
			return fmt.Errorf("write the manifest: %w", err)
		}
	}
	if err := a.zip.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// text adds a file with a text.
func (a *archive) text(name string, text []byte, at time.Time) error {
	return a.file(name, 0o644, at, bytes.NewReader(text))
}

// written adds a file that is made while it is written.
func (a *archive) written(name string, at time.Time, write func(w io.Writer) error) error {
	w, err := a.create(name, 0o644, at)
	if err != nil {
		return err
	}
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(w, sum), len(a.buf))
	if err = write(buf); err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	a.names, a.digests = append(a.names, name), append(a.digests, digest(sum.Sum(nil)))
	return nil
}

// escapes are those of sha256sum in names; a line with any begins with a backslash.
func escapes() *strings.Replacer {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
}

// manifestLine is a line of the manifest, in the form of sha256sum.
func manifestLine(name string, sum digest) string {
	mark, escaped := "", escapes().Replace(name)
	if escaped != name {
		mark = `\`
	}
	return mark + hex.EncodeToString(sum[:]) + "  " + escaped + "\n"
}

// readManifestLine reads a line of the manifest, without its end.
func readManifestLine(line string) (name string, sum digest, ok bool) {
	rest, escaped := strings.CutPrefix(line, `\`)
	text, name, ok := strings.Cut(rest, "  ")
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != len(sum) {
		return "", sum, false
	}
	if escaped {
		name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
	}
	return name, digest(raw), true
}
