package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// site is the root into which an archive is unpacked, and files outside of it that must
// not change.
type site struct {
	dir, root string
	before    map[string]string
}

func newSite(t *testing.T) site {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, root: filepath.Join(dir, "root")}
	must(t, os.Mkdir(s.root, 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "neighbour"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "neighbour", "file"), []byte("precious"), 0o640))
	must(t, os.WriteFile(filepath.Join(dir, "victim"), []byte("precious"), 0o640))
	s.before = s.outside(t)
	return s
}

// outside describes everything outside of the root: kinds, modes, numbers of links, times,
// contents.
func (s site) outside(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(s.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == s.root {
			return fs.SkipDir
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		out[p] = fmt.Sprintf("mode %o, %d links, owner %d, times %v %v", st.Mode, st.Nlink, st.Uid, st.Mtim, st.Ctim)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			out[p] += ", " + string(data)
			return err
		}
		return nil
	}))
	return out
}

// unpack unpacks an archive into the root and checks the promises for all archives:
// nothing outside of the root was changed, the limits hold, the root has only plain files,
// directories and links that their owner can remove, and an error is one of the known
// kinds.
func (s site) unpack(t *testing.T, data []byte, limits tarstream.Limits) error {
	t.Helper()
	size, err := tarstream.Unpack(t.Context(), bytes.NewReader(data), openRoot(t, s.root), limits)
	if diff := cmp.Diff(s.before, s.outside(t)); diff != "" {
		t.Errorf("outside of the root (-before +after):\n%s", diff)
	}
	var held, entries int64
	must(t, filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == s.root {
			return err
		}
		entries++
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode&^(fs.ModePerm|fs.ModeDir|fs.ModeSymlink) != 0:
			t.Errorf("%q has mode %v", p, mode)
		case mode.IsDir() && mode&0o700 != 0o700, mode.IsRegular() && mode&0o400 == 0:
			t.Errorf("%q is closed to its owner: %v", p, mode)
		case mode.IsRegular() && info.Sys().(*syscall.Stat_t).Nlink == 1:
			held += info.Size()
		}
		return nil
	}))
	if over(max(held, size.Bytes), limits.Bytes) || over(max(entries, size.Entries), limits.Entries) {
		t.Errorf("unpacked %d bytes and %d entries, said %+v, limits %+v", held, entries, size, limits)
	}
	if err != nil && !errors.Is(err, tarstream.ErrFormat) && !errors.Is(err, tarstream.ErrUnsafe) && !errors.Is(err, tarstream.ErrTooLarge) {
		t.Errorf("error %v is of no known kind", err)
	}
	return err
}

func over(n, limit int64) bool { return limit > 0 && n > limit }

// raw makes an entry as no program would write it: the header's checksum is right, and all
// else is as given.
func raw(kind byte, name string, size int64, content string, change ...func(block []byte)) []byte {
	block := make([]byte, 512, 512+len(content)+512)
	copy(block[0:100], name)
	copy(block[100:], "0000644\x000000000\x000000000\x00")
	copy(block[124:136], fmt.Sprintf("%011o ", size))
	copy(block[136:148], "00000000000 ")
	block[156] = kind
	copy(block[257:], "ustar\x0000")
	for _, f := range change {
		f(block)
	}
	checksum(block)
	block = append(block, content...)
	return append(block, make([]byte, -len(content)&511)...)
}

func checksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block[:512] {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// pax makes an extended header of records, "key=value" each.
func pax(kind byte, records ...string) []byte {
	var b strings.Builder
	for _, r := range records {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n = len(fmt.Sprint(n)) + len(r) + 2
		}
		fmt.Fprintf(&b, "%d %s\n", n, r)
	}
	return raw(kind, "pax", int64(b.Len()), b.String())
}

func file(name string) []byte         { return raw(tar.TypeReg, name, 3, "xxx") }
func dir(name string) []byte          { return raw(tar.TypeDir, name, 0, "") }
func link(name, to string) []byte     { return raw(tar.TypeSymlink, name, 0, "", linkname(to)) }
func hard(name, to string) []byte     { return raw(tar.TypeLink, name, 0, "", linkname(to)) }
func linkname(to string) func([]byte) { return func(block []byte) { copy(block[157:257], to) } }
func mode(m string) func([]byte)      { return func(block []byte) { copy(block[100:108], m) } }

// gnuSparse is the header of a file of a tebibyte, all of it one hole.
func gnuSparse(block []byte) {
	copy(block[257:], "ustar  \x00")
	copy(block[386:], "20000000000\x0000000000000\x00")
	copy(block[483:], "20000000000\x00")
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	_, _ = zw.Write(data)
	_ = zw.Close()
	return b.Bytes()
}

func times(n int, entry []byte) []byte { return bytes.Repeat(entry, n) }
