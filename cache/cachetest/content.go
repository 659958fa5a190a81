package cachetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/cache"
)

// content is the content of a key: a file, or a directory of files. All its bytes follow from n and
// seed, except for the stamps: each file begins and ends with the number of the fill that made it.
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
	chunkLen  = 16 << 10
)

// Faults of a content.
var (
	// errWrong means that a file does not belong to its key.
	errWrong = errors.New("wrong bytes")
	// errMixed means that one directory has files of several fills. This is allowed where one fill
	// replaced the other during the reading.
	errMixed = errors.New("files of two fills")
)

// contents returns n contents of 4 KiB to 1 MiB, a third of them directories.
func contents(seed uint64, n int) []content {
	rng := rand.New(rand.NewPCG(seed, 0xc0))
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

// files returns the names of its files, relative to its path. All have the same size.
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

// text returns the text of a file that the given fill makes.
func (c content) text(file, fill string) []byte {
	text := make([]byte, c.size/int64(len(c.files())))
	_, _ = rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d %d %s", c.seed, c.n, file))).Read(text) // never fails
	copy(text, stamp(fill))
	copy(text[len(text)-stampLen:], stamp(fill))
	return text
}

func stamp(fill string) []byte {
	return fmt.Appendf(nil, "%s %-*s\n", stampWord, stampLen-len(stampWord)-2, fill)
}

// stampOf returns the number of the fill that made a file.
func stampOf(text []byte) (fill string, ok bool) {
	rest, ok := bytes.CutPrefix(text[:min(len(text), stampLen)], []byte(stampWord+" "))
	return strings.TrimSpace(string(rest)), ok
}

// make writes the content to tmp with the given fill's stamps. It keeps existing chunks, and
// returns their size. It calls pause after each chunk that it writes.
func (c content) make(tmp, fill string, pause func() error) (found int64, err error) {
	for _, name := range c.files() {
		n, err := makeFile(filepath.Join(tmp, name), c.text(name, fill), pause)
		found += n
		if err != nil {
			return found, fmt.Errorf("make content: %w", err)
		}
	}
	return found, nil
}

func makeFile(path string, text []byte, pause func() error) (found int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	old, _ := os.ReadFile(path) // an unreadable file is written anew
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for at := 0; at < len(text); at += chunkLen {
		end := min(at+chunkLen, len(text))
		if end <= len(old) && bytes.Equal(old[at:end], text[at:end]) {
			found += int64(end - at)
			continue
		}
		if _, err := f.WriteAt(text[at:end], int64(at)); err != nil {
			return found, err
		}
		if err := pause(); err != nil {
			return found, err
		}
	}
	return found, nil
}

// check reads all of the content at path, and returns the fill that made it. It returns errWrong or
// errMixed for wrong bytes, and otherwise errors of the file system.
func (c content) check(path string) (fill string, read int64, err error) {
	for i, name := range c.files() {
		file := filepath.Join(path, name)
		text, err := os.ReadFile(file)
		read += int64(len(text))
		if err != nil {
			return fill, read, fmt.Errorf("read content: %w", err)
		}
		by, ok := stampOf(text)
		if !ok || !bytes.Equal(text, c.text(name, by)) {
			return fill, read, fmt.Errorf("%w: %s, %d bytes, made by fill %q", errWrong, file, len(text), by)
		}
		if i > 0 && by != fill {
			return fill, read, fmt.Errorf("%w: %s is of fill %s, and the files before it are of %s", errMixed, name, by, fill)
		}
		fill = by
	}
	return fill, read, nil
}

// madeBy returns the fill whose stamp is at the begin of the content at path.
func (c content) madeBy(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path, c.files()[0]))
	if err != nil {
		return "", fmt.Errorf("read content: %w", err)
	}
	fill, ok := stampOf(text)
	if !ok {
		return "", fmt.Errorf("%w: %s begins with %.20q", errWrong, path, text)
	}
	return fill, nil
}

// gone reports whether an error means that a content without a pin was removed.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
}
