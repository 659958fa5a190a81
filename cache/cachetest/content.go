package cachetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/cache"
)

// content is what a key stands for: a file, or a directory of files. All bytes
// of it follow from n and seed, but for the stamps: each file begins and ends
// with the number of the fill that made it.
//
//	stamp  body …  stamp
type content struct {
	seed uint64
	n    int
	size int64 // of all files, with their stamps
	dir  bool
}

const (
	stampLen  = 64
	stampWord = "cachetest"
	chunkLen  = 64 << 10
)

// What is wrong with a content.
var (
	// errWrong says that a file is not what its key stands for.
	errWrong = errors.New("wrong bytes")
	// errMixed says that files of several fills are in one directory. That is
	// right where one was replaced by the other while they were read.
	errMixed = errors.New("files of two fills")
)

// contents are n contents of 4 KiB to 1 MiB, a third of them directories.
func contents(seed uint64, n int) []content {
	rng := rand.New(rand.NewPCG(seed, 0xc0)) //nolint:gosec // repeatable by design
	all := make([]content, n)
	for i := range all {
		size := int64(4096 * math.Exp(rng.Float64()*math.Log(256)))
		all[i] = content{seed: seed, n: i, size: size, dir: i%3 == 2}
	}
	return all
}

func (c content) key() cache.Key {
	kind := "file"
	if c.dir {
		kind = "directory"
	}
	return cache.Key{Kind: kind, ID: fmt.Sprintf("content %d of %d", c.n, c.seed)}
}

// files are the names of its files below the path, each of the same size.
func (c content) files() []string {
	if !c.dir {
		return []string{""}
	}
	names := make([]string, 2+c.n%5)
	for i := range names {
		names[i] = filepath.Join(fmt.Sprint("d", i%2), fmt.Sprint("f", i))
	}
	return names
}

// body is the size of a file without its stamps.
func (c content) body() int64 { return c.size/int64(len(c.files())) - 2*stampLen }

// bytes are those of a file's body.
func (c content) bytes(file string) io.Reader {
	seed := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", c.seed, c.n, file))
	return io.LimitReader(rand.NewChaCha8(seed), c.body())
}

func stamp(fill string) []byte {
	return fmt.Appendf(nil, "%s %-*s\n", stampWord, stampLen-len(stampWord)-2, fill)
}

// readStamp returns the number of the fill that stamped a file.
func readStamp(b []byte) (fill string, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(stampWord+" "))
	return strings.TrimSpace(string(rest)), ok && len(b) == stampLen && b[stampLen-1] == '\n'
}

// make writes the content to tmp as the given fill does. It goes on with what
// is there, and returns how many bytes of bodies it found. It calls pause
// between two writes.
func (c content) make(tmp, fill string, pause func() error) (found int64, err error) {
	for _, name := range c.files() {
		n, err := c.makeFile(filepath.Join(tmp, name), name, fill, pause)
		found += n
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (c content) makeFile(path, name, fill string, pause func() error) (found int64, err error) {
	if c.dir {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return 0, fmt.Errorf("make content: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make content: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("make content: %w", cerr)
		}
	}()
	if _, err := f.WriteAt(stamp(fill), 0); err != nil {
		return 0, fmt.Errorf("make content: %w", err)
	}
	body, there, want := c.bytes(name), make([]byte, chunkLen), make([]byte, chunkLen)
	at, going := int64(stampLen), true
	for {
		n, rerr := io.ReadFull(body, want)
		if n > 0 {
			if going {
				m, _ := f.ReadAt(there[:n], at) // what cannot be read is written
				going = m == n && bytes.Equal(there[:n], want[:n])
			}
			if going {
				found += int64(n)
			} else if err := c.write(f, want[:n], at, pause); err != nil {
				return found, err
			}
			at += int64(n)
		}
		if rerr != nil { // the body's end
			return found, c.write(f, stamp(fill), at, pause)
		}
	}
}

func (c content) write(f *os.File, b []byte, at int64, pause func() error) error {
	if _, err := f.WriteAt(b, at); err != nil {
		return fmt.Errorf("make content: %w", err)
	}
	return pause()
}

// check reads all of the content at path, and returns the fill that made it.
// Bytes that are not what they should be are errWrong; other errors are those
// of the file system. It calls pause between two reads.
func (c content) check(path string, pause func()) (fill string, read int64, err error) {
	for i, name := range c.files() {
		by, n, err := c.checkFile(filepath.Join(path, name), name, pause)
		read += n
		if err != nil {
			return fill, read, err
		}
		if i > 0 && by != fill {
			return fill, read, fmt.Errorf("%w: %s is of fill %s, and the files before it are of %s", errMixed, name, by, fill)
		}
		fill = by
	}
	return fill, read, nil
}

func (c content) checkFile(path, name string, pause func()) (fill string, read int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, fmt.Errorf("read content: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	var head, tail [stampLen]byte
	if err := readFull(f, head[:], &read); err != nil {
		return "", read, err
	}
	fill, ok := readStamp(head[:])
	if !ok {
		return "", read, fmt.Errorf("%w: %s begins with %q", errWrong, path, head)
	}
	body, got, want := c.bytes(name), make([]byte, chunkLen), make([]byte, chunkLen)
	for {
		n, rerr := io.ReadFull(body, want)
		if n > 0 {
			pause()
			at := read
			if err := readFull(f, got[:n], &read); err != nil {
				return fill, read, err
			}
			if !bytes.Equal(got[:n], want[:n]) {
				return fill, read, fmt.Errorf("%w: %s after byte %d, made by fill %s", errWrong, path, at, fill)
			}
		}
		if rerr != nil {
			break
		}
	}
	if err := readFull(f, tail[:], &read); err != nil {
		return fill, read, err
	}
	if by, ok := readStamp(tail[:]); !ok || by != fill {
		return fill, read, fmt.Errorf("%w: %s begins with fill %s and ends with %q", errWrong, path, fill, tail)
	}
	switch n, err := f.Read(tail[:1]); {
	case n > 0:
		return fill, read, fmt.Errorf("%w: %s is too long", errWrong, path)
	case !errors.Is(err, io.EOF):
		return fill, read, fmt.Errorf("read content: %w", err)
	default:
		return fill, read, nil
	}
}

// readFull fills b. A file that ends too early is wrong.
func readFull(f *os.File, b []byte, read *int64) error {
	n, err := io.ReadFull(f, b)
	*read += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %s ends at byte %d", errWrong, f.Name(), *read)
	default:
		return fmt.Errorf("read content: %w", err)
	}
}

// madeBy returns the fill whose stamp the content at path begins with.
func (c content) madeBy(path string) (string, error) {
	f, err := os.Open(filepath.Join(path, c.files()[0]))
	if err != nil {
		return "", fmt.Errorf("read content: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	var head [stampLen]byte
	var read int64
	if err := readFull(f, head[:], &read); err != nil {
		return "", err
	}
	fill, ok := readStamp(head[:])
	if !ok {
		return "", fmt.Errorf("%w: %s begins with %q", errWrong, path, head)
	}
	return fill, nil
}

// gone says that a content that nobody pins may have been removed meanwhile.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || kind(err) == "ESTALE"
}
