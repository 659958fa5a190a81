package tarstream_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func openRoot(tb testing.TB, dir string) *os.Root {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	must(tb, err)
	tb.Cleanup(func() {
		if err := root.Close(); err != nil {
			tb.Error(err)
		}
	})
	return root
}

var must = testenv.Must

// tree lists the entries below dir: path, and content or kind.
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

func pack(tb testing.TB, dir string, opts tarstream.PackOptions) []byte {
	tb.Helper()
	var b bytes.Buffer
	must(tb, tarstream.Pack(tb.Context(), &b, openRoot(tb, dir), ".", opts))
	return b.Bytes()
}

func TestPackedTreeIsUnpackedAlike(t *testing.T) {
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

// growing changes a file while it is packed.
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

// long is a path of so many bytes.
func long(n int) string {
	return strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 99)+"/", n/100)+strings.Repeat("d", n%100), "/")
}

func TestPathThatIsPackedIsUnpackedAndALongerOneIsNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes int
		plant func(root *os.Root, path string) error
	}{
		"longest file":                    {4093, func(root *os.Root, path string) error { return root.WriteFile(path, []byte("x"), 0o644) }},
		"longest directory":               {4093, func(root *os.Root, path string) error { return root.Mkdir(path, 0o755) }},
		"too long a file":                 {4094, func(root *os.Root, path string) error { return root.WriteFile(path, nil, 0o644) }},
		"too long a directory":            {4094, func(root *os.Root, path string) error { return root.Mkdir(path, 0o755) }},
		"longer than a system call takes": {5099, func(root *os.Root, path string) error { return root.Mkdir(path, 0o755) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := openRoot(t, t.TempDir()), openRoot(t, t.TempDir())
			path := long(test.bytes)
			must(t, errors.Join(from.MkdirAll(filepath.Dir(path), 0o755), test.plant(from, path)))
			var stream bytes.Buffer
			err := tarstream.Pack(t.Context(), &stream, from, ".", tarstream.PackOptions{})
			if test.bytes > 4093 {
				if !errors.Is(err, tarstream.ErrTooLarge) || !strings.Contains(err.Error(), path[:200]) || len(err.Error()) > 400 {
					t.Errorf("packed: %v", err)
				}
				return
			}
			must(t, err)
			_, err = tarstream.Unpack(t.Context(), &stream, to, tarstream.Limits{})
			must(t, err)
			_, err = to.Lstat(path)
			must(t, err)
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

func TestWatchReportsCompleteEntries(t *testing.T) {
	t.Parallel()
	data := bytes.Join([][]byte{file("d/a"), link("l", "d"), dir("e"), file("cut")[:513]}, nil)
	var names []string
	var bytesIn int64
	_, err := tarstream.UnpackWatched(t.Context(), bytes.NewReader(data), openRoot(t, t.TempDir()), tarstream.Limits{}, tarstream.Watch{
		Wrote: func(n int64) { bytesIn += n },
		Entry: func(name string, _ *tar.Header) { names = append(names, name) },
	})
	if !errors.Is(err, tarstream.ErrFormat) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"d/a", "l", "e"}, names); diff != "" || bytesIn != 4 {
		t.Errorf("%d bytes, entries:\n%s", bytesIn, diff)
	}
}

// A stream that breaks off must not look whole to any reader. Nothing goes on once Pack or
// Unpack has returned: synctest would see it.
func TestFailureBreaksOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noise := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	must(t, os.WriteFile(filepath.Join(dir, "a"), noise, 0o644))
	for _, most := range []int{0, 1, 5 << 10, 1 << 20, 3 << 20} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &full{left: most}
				if err := tarstream.Pack(t.Context(), w, openRoot(t, dir), ".", tarstream.PackOptions{}); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("pack: %v", err)
				}
				_, err := tarstream.Unpack(t.Context(), &w.Buffer, openRoot(t, t.TempDir()), tarstream.Limits{})
				if !errors.Is(err, tarstream.ErrFormat) {
					t.Errorf("unpack: %v", err)
				}
				hostile := bytes.Join([][]byte{raw('0', "a", 1<<20, string(noise[:1<<20])), file("../b"), raw('0', "c", 4<<20, string(noise))}, nil)
				_, err = tarstream.Unpack(t.Context(), bytes.NewReader(hostile), openRoot(t, t.TempDir()), tarstream.Limits{})
				if !errors.Is(err, tarstream.ErrUnsafe) {
					t.Errorf("unpack what is hostile: %v", err)
				}
			})
		})
	}
}

// full accepts so many bytes.
type full struct {
	bytes.Buffer
	left int
}

func (f *full) Write(b []byte) (int, error) {
	n, err := f.Buffer.Write(b[:min(len(b), f.left)])
	f.left -= n
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

func TestSetGroupIDOfTheParentStays(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	must(t, os.Chmod(to, fs.ModeSetgid|0o770))
	_, err := tarstream.Unpack(t.Context(), bytes.NewReader(raw('5', "d", 0, "", mode("0000777"))), openRoot(t, to), tarstream.Limits{})
	must(t, err)
	info, err := os.Stat(filepath.Join(to, "d"))
	must(t, err)
	if info.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 {
		t.Errorf("mode %v", info.Mode())
	}
}
