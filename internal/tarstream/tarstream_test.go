package tarstream_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists what lies below dir: path, and content or kind.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		switch {
		case d.IsDir():
			out[name] = "directory"
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(p)
			out[name] = "-> " + link
			return err
		default:
			data, err := os.ReadFile(p)
			out[name] = string(data)
			return err
		}
		return nil
	}))
	return out
}

func pack(t *testing.T, dir string, opts tarstream.PackOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, tarstream.Pack(t.Context(), &b, openRoot(t, dir), ".", opts))
	return b.Bytes()
}

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "sub/empty"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("hello"), 0o640))
	must(t, os.WriteFile(filepath.Join(dir, "sub/tool"), []byte("#!"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "sub/bad\xff name"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, strings.Repeat("n", 250)), []byte("long"), 0o644))
	must(t, os.Symlink("sub/tool", filepath.Join(dir, "link")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub/same")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	want := map[string]string{
		"sub": "directory", "sub/empty": "directory", "a": "hello", "sub/tool": "#!", "sub/bad\xff name": "",
		strings.Repeat("n", 250): "long", "link": "-> sub/tool", "out": "-> /etc/passwd", "sub/same": "hello",
	}
	to := t.TempDir()
	size, err := tarstream.Unpack(t.Context(), bytes.NewReader(pack(t, dir, tarstream.PackOptions{})), openRoot(t, to), tarstream.Limits{})
	must(t, err)
	if diff := cmp.Diff(want, tree(t, to)); diff != "" {
		t.Error(diff)
	}
	if size.Bytes != int64(len("hello#!long")) || size.Entries != 10 { // ours and the directory itself
		t.Errorf("size %+v", size)
	}
	before, err := os.Stat(filepath.Join(dir, "sub/tool"))
	must(t, err)
	after, err := os.Stat(filepath.Join(to, "sub/tool"))
	must(t, err)
	if after.Mode() != before.Mode() || after.ModTime().Unix() != before.ModTime().Unix() {
		t.Errorf("tool: %v %v, was %v %v", after.Mode(), after.ModTime(), before.Mode(), before.ModTime())
	}
}

func TestNamesAreThoseOfGNUTar(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o644))
	zr, err := gzip.NewReader(bytes.NewReader(pack(t, dir, tarstream.PackOptions{})))
	must(t, err)
	var names []string
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s has an owner", h.Name)
		}
	}
	if diff := cmp.Diff([]string{"./", "./d/", "./d/f"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestExcludedAndUnreadableAreLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "dep/inner"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "keep"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "keep/dep"), nil, 0o644))
	data := pack(t, dir, tarstream.PackOptions{Exclude: func(path string, _ fs.DirEntry) bool { return path == "dep" }})
	to := t.TempDir()
	_, err := tarstream.Unpack(t.Context(), bytes.NewReader(data), openRoot(t, to), tarstream.Limits{})
	must(t, err)
	if diff := cmp.Diff(map[string]string{"keep": "directory", "keep/dep": ""}, tree(t, to)); diff != "" {
		t.Error(diff)
	}
}

// growing changes a file while the stream of which it is part is written.
type growing struct {
	bytes.Buffer
	change func()
}

func (g *growing) Write(b []byte) (int, error) {
	g.change()
	return g.Buffer.Write(b)
}

func TestChangingFilesKeepTheStreamWhole(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(string) error{
		"shrinks":  func(f string) error { return os.Truncate(f, 10) },
		"grows":    func(f string) error { return os.Truncate(f, 9<<20) },
		"vanishes": func(f string) error { return os.RemoveAll(f) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "b")
			random := make([]byte, 3<<20)
			for i := range random {
				random[i] = byte(i * i >> 7)
			}
			must(t, os.WriteFile(filepath.Join(dir, "a"), random, 0o644))
			must(t, os.WriteFile(file, random, 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "c"), []byte("after"), 0o644))
			g := &growing{}
			once := false
			g.change = func() {
				if !once && g.Len() > 0 {
					once = true
					must(t, change(file))
				}
			}
			must(t, tarstream.Pack(t.Context(), g, openRoot(t, dir), ".", tarstream.PackOptions{}))
			to := t.TempDir()
			_, err := tarstream.Unpack(t.Context(), &g.Buffer, openRoot(t, to), tarstream.Limits{})
			must(t, err)
			if got := tree(t, to)["c"]; got != "after" {
				t.Errorf("c holds %q", got)
			}
		})
	}
}

func TestPackOfAFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	err := tarstream.Pack(t.Context(), io.Discard, openRoot(t, dir), "a", tarstream.PackOptions{})
	if !errors.Is(err, syscall.ENOTDIR) {
		t.Fatalf("error %v", err)
	}
}

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		must(t, tw.WriteHeader(&h))
		_, err := tw.Write(bytes.Repeat([]byte("x"), int(h.Size)))
		must(t, err)
	}
	must(t, tw.Close())
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header { return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to} }
	tests := map[string]struct {
		headers []tar.Header
		err     error             // nil: any error will do if want is nil
		want    map[string]string // nil: refused
	}{
		"dotdot":               {[]tar.Header{file("../evil")}, tarstream.ErrUnsafe, nil},
		"dotdot inside":        {[]tar.Header{file("a/../../evil")}, tarstream.ErrUnsafe, nil},
		"absolute is rooted":   {[]tar.Header{file("/etc/evil")}, nil, map[string]string{"etc": "directory", "etc/evil": "xxx"}},
		"through link out":     {[]tar.Header{link("l", "/tmp"), file("l/evil")}, nil, nil},
		"through link up":      {[]tar.Header{link("l", ".."), file("l/evil")}, nil, nil},
		"through link within":  {[]tar.Header{{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755}, link("l", "d"), file("l/f")}, nil, map[string]string{"d": "directory", "l": "-> d", "d/f": "xxx"}},
		"file over link":       {[]tar.Header{link("l", "/etc/evil"), file("l")}, nil, map[string]string{"l": "xxx"}},
		"directory over link":  {[]tar.Header{link("l", "/tmp"), {Typeflag: tar.TypeDir, Name: "l", Mode: 0o777}}, nil, nil},
		"hard link out":        {[]tar.Header{hard("h", "../../../etc/passwd")}, tarstream.ErrUnsafe, nil},
		"hard link absolute":   {[]tar.Header{hard("h", "/etc/passwd")}, fs.ErrNotExist, nil},
		"hard link by link":    {[]tar.Header{link("l", "/etc"), hard("h", "l/passwd")}, nil, nil},
		"hard link to link":    {[]tar.Header{link("l", "/etc/evil"), hard("h", "l"), file("h")}, nil, map[string]string{"l": "-> /etc/evil", "h": "xxx"}},
		"write by hard link":   {[]tar.Header{file("a"), hard("h", "a"), {Typeflag: tar.TypeReg, Name: "h", Size: 1}}, nil, map[string]string{"a": "xxx", "h": "x"}},
		"device":               {[]tar.Header{{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}}, tarstream.ErrUnsafe, nil},
		"pipe":                 {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "p"}}, tarstream.ErrUnsafe, nil},
		"root as link":         {[]tar.Header{link("./", "/tmp")}, tarstream.ErrUnsafe, nil},
		"root as directory":    {[]tar.Header{{Typeflag: tar.TypeDir, Name: "./", Mode: 0}}, nil, map[string]string{}},
		"too long a name":      {[]tar.Header{file(strings.Repeat("d/", 3000) + "f")}, tarstream.ErrTooLarge, nil},
		"too many bytes":       {[]tar.Header{{Typeflag: tar.TypeReg, Name: "a", Size: 101}}, tarstream.ErrTooLarge, nil},
		"too many in sum":      {[]tar.Header{{Typeflag: tar.TypeReg, Name: "a", Size: 60}, {Typeflag: tar.TypeReg, Name: "a", Size: 60}}, tarstream.ErrTooLarge, nil},
		"too many entries":     {[]tar.Header{file("1"), file("2"), file("3"), file("4"), file("5")}, tarstream.ErrTooLarge, nil},
		"file where a tree is": {[]tar.Header{file("d/f"), file("d")}, tarstream.ErrUnsafe, nil},
		"tree where a file is": {[]tar.Header{file("d"), file("d/f")}, nil, nil},
		"closed directory":     {[]tar.Header{{Typeflag: tar.TypeDir, Name: "d", Mode: 0o100}, file("d/f")}, nil, map[string]string{"d": "directory", "d/f": "xxx"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			to := filepath.Join(outer, "root")
			must(t, os.Mkdir(to, 0o755))
			_, err := tarstream.Unpack(t.Context(), bytes.NewReader(archive(t, test.headers...)), openRoot(t, to), tarstream.Limits{Bytes: 100, Entries: 4})
			if (err == nil) != (test.want != nil) || (test.err != nil && !errors.Is(err, test.err)) {
				t.Fatalf("error %v", err)
			}
			if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
				t.Fatalf("outside the root: %v, %v", entries, err)
			}
			if test.want != nil {
				if diff := cmp.Diff(test.want, tree(t, to)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestSetuidBitsAreDropped(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	data := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755}, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o7555})
	_, err := tarstream.Unpack(t.Context(), bytes.NewReader(data), openRoot(t, to), tarstream.Limits{})
	must(t, err)
	for name, want := range map[string]fs.FileMode{"su": 0o755, "d": fs.ModeDir | 0o755} {
		info, err := os.Stat(filepath.Join(to, name))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	whole := func(t *testing.T) []byte {
		t.Helper()
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "a"), bytes.Repeat([]byte("some content "), 5000), 0o644))
		return pack(t, dir, tarstream.PackOptions{})
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"empty":       func([]byte) []byte { return nil },
		"text":        func([]byte) []byte { return []byte("no archive at all, only some words") },
		"cut":         func(b []byte) []byte { return b[:len(b)/2] },
		"no checksum": func(b []byte) []byte { return b[:len(b)-8] },
		"bad sum":     func(b []byte) []byte { b[len(b)-6] ^= 1; return b },
		"bad bits":    func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b },
		"only magic":  func([]byte) []byte { return []byte{0x1f, 0x8b} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tarstream.Unpack(t.Context(), bytes.NewReader(spoil(whole(t))), openRoot(t, t.TempDir()), tarstream.Limits{})
			if !errors.Is(err, tarstream.ErrFormat) {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestEndedContextStopsBoth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("hello"), 0o644))
	data := pack(t, dir, tarstream.PackOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tarstream.Pack(ctx, io.Discard, openRoot(t, dir), ".", tarstream.PackOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("pack: %v", err)
	}
	if _, err := tarstream.Unpack(ctx, bytes.NewReader(data), openRoot(t, t.TempDir()), tarstream.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("unpack: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "../.."},
		{Typeflag: tar.TypeLink, Name: "h", Linkname: "d/l"},
		{Typeflag: tar.TypeReg, Name: "d/l/f", Size: 4, Mode: 0o644},
	} {
		if err := tw.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		to := filepath.Join(outer, "root")
		must(t, os.Mkdir(to, 0o755))
		size, err := tarstream.Unpack(t.Context(), bytes.NewReader(data), openRoot(t, to), tarstream.Limits{Bytes: 1 << 16, Entries: 64})
		if size.Bytes > 1<<16 || (err == nil && size.Entries > 64) {
			t.Errorf("limits exceeded: %+v, %v", size, err)
		}
		if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
			t.Errorf("outside the root: %v, %v", entries, err)
		}
	})
}
