package tarstream_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// newTree makes files of these names below a new directory; a name that ends in a slash is a
// directory's, and "a -> b" is a link's.
func newTree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, link, isLink := strings.Cut(name, " -> ")
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(link, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		default:
			err = os.WriteFile(p, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// listed returns the names in an archive, as tar prints them, and with -> for links.
func listed(t *testing.T, archive io.Reader) []string {
	t.Helper()
	zr, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			h.Name += " -> " + h.Linkname
		}
		names = append(names, h.Name)
	}
}

func packPaths(t *testing.T, inputs []tarstream.Input, o tarstream.PathOptions) []string {
	t.Helper()
	var archive bytes.Buffer
	if err := tarstream.PackPaths(t.Context(), &archive, inputs, o); err != nil {
		t.Fatal(err)
	}
	return listed(t, &archive)
}

func TestPathsFromSeveralPlacesBecomeOneArchive(t *testing.T) {
	t.Parallel()
	one, other := newTree(t, "x", "d/link -> ../x"), newTree(t, "deep/y")
	inputs := []tarstream.Input{{Name: "x", Path: one + "/x"}, {Name: "d", Path: one + "/d"}, {Name: "y", Path: other + "/deep/y"}}
	want := []string{"./d/", "./d/link -> ../x", "./x", "./y"}
	if diff := cmp.Diff(want, packPaths(t, inputs, tarstream.PathOptions{})); diff != "" {
		t.Error(diff)
	}
	want[1] = "./d/link"
	if diff := cmp.Diff(want, packPaths(t, inputs, tarstream.PathOptions{Follow: true})); diff != "" {
		t.Error("followed:", diff)
	}
	size, err := tarstream.MeasurePaths(t.Context(), inputs, tarstream.PathOptions{Follow: true})
	if want := (tarstream.Size{Bytes: int64(len("x" + "x" + "deep/y")), Entries: 4}); err != nil || size != want {
		t.Errorf("measured %+v, %v, want %+v", size, err, want)
	}
}

func TestEachPipeAndSocketThatIsLeftOutIsTold(t *testing.T) {
	t.Parallel()
	dir := newTree(t, "a", "d/b")
	if err := syscall.Mkfifo(filepath.Join(dir, "d/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	inputs := []tarstream.Input{{Name: ".", Path: dir}}
	var left, begun []string
	o := tarstream.PathOptions{PackOptions: tarstream.PackOptions{
		LeftOut: func(path string) { left = append(left, path) },
		Entry:   func(path string) { begun = append(begun, path) },
	}}
	if diff := cmp.Diff([]string{"./", "./a", "./d/", "./d/b"}, packPaths(t, inputs, o)); diff != "" {
		t.Error(diff)
	}
	if _, err := tarstream.MeasurePaths(t.Context(), inputs, o); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"d/pipe", "sock", "d/pipe", "sock"}, left); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "d", "d/b", "a", "d", "d/b"}, begun); diff != "" {
		t.Error(diff)
	}
}

func TestLinksThatCannotBeFollowedAreErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		link string
		want error
	}{"nowhere": {"gone", fs.ErrNotExist}, "above": {"..", syscall.ELOOP}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inputs := []tarstream.Input{{Name: ".", Path: newTree(t, "d/link -> "+test.link)}}
			_, err := tarstream.MeasurePaths(t.Context(), inputs, tarstream.PathOptions{Follow: true})
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "/d/link") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFilesThatChangeWhileTheyArePackedAreNamed(t *testing.T) {
	t.Parallel()
	dir := newTree(t, "a", "b", "c", "d")
	got := map[string]error{}
	o := tarstream.PathOptions{PackOptions: tarstream.PackOptions{
		Changed: func(path string, err error) { got[path] = err },
		Entry: func(path string) {
			if path == "b" {
				if err := os.Remove(filepath.Join(dir, "c")); err != nil {
					t.Error(err)
				}
			}
		},
		Read: func(int64) {
			if len(got) == 1 { // d is being read
				if err := os.WriteFile(filepath.Join(dir, "d"), []byte("longer than before"), 0o644); err != nil {
					t.Error(err)
				}
			}
		},
	}}
	names := packPaths(t, []tarstream.Input{{Name: ".", Path: dir}}, o)
	if diff := cmp.Diff([]string{"./", "./a", "./b", "./d"}, names); diff != "" {
		t.Error(diff)
	}
	if len(got) != 2 || !errors.Is(got["c"], fs.ErrNotExist) || !errors.Is(got["d"], tarstream.ErrChanged) {
		t.Errorf("got %v", got)
	}
}

// TestPatternsMeanWhatTheyMeanToTar packs a tree with GNU tar and with PackPaths.
func TestPatternsMeanWhatTheyMeanToTar(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "tar", "--version").Output(); err != nil || !bytes.Contains(out, []byte("GNU tar")) {
		t.Skip("GNU tar is not installed")
	}
	dir := newTree(t, "a.o", "b.txt", "#h", "build/x", "sub/a.o", "sub/b.txt", "sub/build", "sub/deep/a.o", "sub/deep/sub/b.txt", "other/!x", "other/x", "other/[")
	for _, pattern := range []string{
		"sub", "./sub", "sub/", "/sub", "s*o", "*.o", "sub/*.o", "[!a].txt", "[^a].txt", "sub?a.o", `\*.o`, "", "deep/a.o", "./deep", "*/x", "[", "s*b*b*", "b.txt", "./*.o", "other/[!x]",
	} {
		t.Run("exclude "+pattern, func(t *testing.T) {
			t.Parallel()
			got := packPaths(t, []tarstream.Input{{Name: ".", Path: dir}}, tarstream.PathOptions{PackOptions: tarstream.PackOptions{
				Exclude: func(below string, _ fs.DirEntry) bool { return tarstream.ExcludedBy(pattern, below) },
			}})
			if diff := cmp.Diff(byTar(t, dir, "--exclude="+pattern), got); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("ignore "+pattern, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "patterns")
			if err := os.WriteFile(file, []byte("# comment\n\n  "+pattern+"\t \n\\#h"), 0o644); err != nil {
				t.Fatal(err)
			}
			patterns, err := tarstream.ReadIgnoreFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := packPaths(t, []tarstream.Input{{Name: ".", Path: dir}}, tarstream.PathOptions{PackOptions: tarstream.PackOptions{
				Exclude: func(below string, _ fs.DirEntry) bool {
					return slices.ContainsFunc(patterns, func(p string) bool { return tarstream.IgnoredBy(p, below) })
				},
			}})
			if diff := cmp.Diff(byTar(t, dir, "--exclude-ignore="+file), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func byTar(t *testing.T, dir string, options ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tar", append(append([]string{"czf", "-", "-C", dir}, options...), ".")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return listed(t, bytes.NewReader(out))
}
