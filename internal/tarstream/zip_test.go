package tarstream_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// zipped is an entry of a zip archive that a test makes.
type zipped struct {
	name, content string
	mode          fs.FileMode // 0 for that of a system without permissions
}

func zipOf(tb testing.TB, entries ...zipped) []byte {
	tb.Helper()
	var b bytes.Buffer
	zw := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		w, err := zw.CreateHeader(h)
		must(tb, err)
		_, err = io.WriteString(w, e.content)
		must(tb, err)
	}
	must(tb, zw.Close())
	return b.Bytes()
}

func unzip(tb testing.TB, archive []byte, limits tarstream.Limits) (dir string, size tarstream.Size, err error) {
	tb.Helper()
	dir = tb.TempDir()
	root, err := os.OpenRoot(dir)
	must(tb, err)
	size, err = tarstream.UnpackZip(tb.Context(), bytes.NewReader(archive), int64(len(archive)), root, limits)
	must(tb, root.Close())
	return dir, size, err
}

func TestZipIsUnpackedAsItIs(t *testing.T) {
	t.Parallel()
	dir, size, err := unzip(t, zipOf(t,
		zipped{"top/", "", fs.ModeDir | 0o755}, zipped{"top/run.sh", "#!\n", 0o755}, zipped{"top/.DS_Store", "x", 0o644},
		zipped{"__MACOSX/._a", "y", 0}, zipped{"implied/b", "z", 0o4644}, zipped{"link", "top/run.sh", fs.ModeSymlink | 0o777}), tarstream.Limits{})
	if err != nil || size.Bytes != 6 || size.Entries != 8 {
		t.Fatalf("%+v, %v", size, err)
	}
	for name, want := range map[string]struct {
		text string
		perm fs.FileMode
	}{"top/run.sh": {"#!\n", 0o755}, "top/.DS_Store": {"x", 0o644}, "__MACOSX/._a": {"y", 0o644}, "implied/b": {"z", 0o644}} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		info, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		if string(text) != want.text || info.Mode() != want.perm {
			t.Errorf("%s: %q, %s", name, text, info.Mode())
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); target != "top/run.sh" || err != nil {
		t.Errorf("link to %s, %v", target, err)
	}
}

func TestHostileZipsAreRefused(t *testing.T) {
	t.Parallel()
	ok := zipped{"ok", "x", 0o644}
	encrypted := zipOf(t, ok)
	for _, signature := range []string{"PK\x03\x04", "PK\x01\x02"} {
		at := bytes.Index(encrypted, []byte(signature)) + map[string]int{"PK\x03\x04": 6, "PK\x01\x02": 8}[signature]
		encrypted[at] |= 1
	}
	damaged := zipOf(t, zipped{"ok", strings.Repeat("text", 99), 0o644})
	damaged[bytes.Index(damaged, []byte("ok"))+4] ^= 0x55
	for name, test := range map[string]struct {
		archive []byte
		want    error
		says    string
	}{
		"upwards":       {zipOf(t, zipped{"../evil", "x", 0o644}), tarstream.ErrUnsafe, "leads upwards"},
		"absolute":      {zipOf(t, zipped{"/evil", "x", 0o644}), tarstream.ErrUnsafe, "begins with a slash"},
		"zero byte":     {zipOf(t, zipped{"a\x00b", "x", 0o644}), tarstream.ErrUnsafe, ""},
		"backslashes":   {zipOf(t, zipped{`dir\f`, "x", 0}), tarstream.ErrUnsafe, "backslashes"},
		"through link":  {zipOf(t, zipped{"l", "/tmp", fs.ModeSymlink | 0o777}, zipped{"l/evil", "x", 0o644}), tarstream.ErrUnsafe, "a path through"},
		"over link":     {zipOf(t, zipped{"l", "/tmp", fs.ModeSymlink | 0o777}, zipped{"l", "x", 0o644}), tarstream.ErrUnsafe, "there twice"},
		"twice":         {zipOf(t, ok, ok), tarstream.ErrUnsafe, "there twice"},
		"file, then in": {zipOf(t, ok, zipped{"ok/f", "x", 0o644}), tarstream.ErrUnsafe, ""},
		"pipe":          {zipOf(t, zipped{"p", "", fs.ModeNamedPipe | 0o644}), tarstream.ErrUnsafe, "device, pipe"},
		"long link":     {zipOf(t, zipped{"l", strings.Repeat("x", 5000), fs.ModeSymlink | 0o777}), tarstream.ErrTooLarge, "a link of more"},
		"encrypted":     {encrypted, tarstream.ErrUnsafe, "encrypted"},
		"damaged":       {damaged, tarstream.ErrFormat, ""},
		"cut":           {damaged[:len(damaged)-9], tarstream.ErrFormat, ""},
		"none":          {[]byte("no zip"), tarstream.ErrFormat, ""},
		"empty":         {zipOf(t), tarstream.ErrFormat, "no entries"},
		"many":          {zipOf(t, zipped{"a/b/c/d/e", "", 0o644}), tarstream.ErrTooLarge, "more than 4 entries"},
		"bomb":          {zipOf(t, zipped{"zeros", strings.Repeat("\x00", 1<<20), 0o644}), tarstream.ErrTooLarge, "more than 1000 bytes"},
		"overlapping":   {overlapping(t, 3), tarstream.ErrFormat, "its entries overlap"},
	} {
		_, _, err := unzip(t, test.archive, tarstream.Limits{Bytes: 1000, Entries: 4})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("full")
	_, _, err := unzip(t, zipOf(t, ok), tarstream.Limits{Reserve: func(int64) error { return full }})
	if !errors.Is(err, full) {
		t.Errorf("reservation refused: %v", err)
	}
}

// noise returns text that does not compress.
func noise(n int) string {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text) // never fails
	return string(text)
}

// overlapping returns an archive of n entries that are all the same bytes.
func overlapping(tb testing.TB, n int) []byte {
	tb.Helper()
	one := zipOf(tb, zipped{"a", noise(900), 0o644})
	begin, end := bytes.Index(one, []byte("PK\x01\x02")), bytes.Index(one, []byte("PK\x05\x06"))
	out, entry := bytes.Clone(one[:begin]), one[begin:end]
	for i := range n {
		next := bytes.Clone(entry)
		next[bytes.IndexByte(next, 'a')] = byte('a' + i) // its name
		out = append(out, next...)
	}
	tail := bytes.Clone(one[end:]) // APPNOTE.TXT, 4.3.16
	for _, at := range []int{8, 10} {
		binary.LittleEndian.PutUint16(tail[at:], uint16(n))
	}
	binary.LittleEndian.PutUint32(tail[12:], uint32(n*len(entry)))
	return append(out, tail...)
}

func FuzzUnpackZip(f *testing.F) {
	f.Add(zipOf(f, zipped{"a/b", "text", 0o644}, zipped{"l", "a", fs.ModeSymlink | 0o777}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		must(t, os.Mkdir(filepath.Join(outer, "in"), 0o700))
		root, err := os.OpenRoot(filepath.Join(outer, "in"))
		must(t, err)
		_, _ = tarstream.UnpackZip(t.Context(), bytes.NewReader(archive), int64(len(archive)), root, tarstream.Limits{Bytes: 1 << 16, Entries: 64}) // only what it writes matters
		must(t, root.Close())
		if left, err := os.ReadDir(outer); err != nil || len(left) != 1 {
			t.Errorf("outside: %v, %v", left, err)
		}
	})
}
