package filetree_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var made = time.Date(2026, 11, 20, 8, 0, 0, 123456789, time.UTC)

// large is the text of a file that is compared in several steps.
var large = strings.Repeat("0123456789abcdef", 50_000)

// makeTwins makes two equal trees, and returns their paths.
func makeTwins(t *testing.T) (tree, other string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tree", "other"} {
		makeTree(t, filepath.Join(dir, name))
	}
	return filepath.Join(dir, "tree"), filepath.Join(dir, "other")
}

func makeTree(t *testing.T, top string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(top, name) }
	testenv.Must(t, errors.Join(
		os.MkdirAll(in("sub/deep"), 0o755), os.Mkdir(in("empty"), 0o755), os.Symlink("sub/large", in("link")),
		os.WriteFile(in("none"), nil, 0o644), os.WriteFile(in("run.sh"), []byte("echo hello\n"), 0o755),
		os.WriteFile(in("sub/large"), []byte(large), 0o644), os.WriteFile(in("sub/deep/small"), []byte("small"), 0o600),
	))
	for _, name := range []string{"none", "run.sh", "sub/large", "sub/deep/small"} {
		testenv.Must(t, os.Chtimes(in(name), made, made))
	}
}

// isWhole checks that a tree of makeTree has all that it had, and nothing else is beside it.
func isWhole(t *testing.T, tree string) {
	t.Helper()
	for name, want := range map[string]string{"none": "", "run.sh": "echo hello\n", "sub/large": large, "link": large, "sub/deep/small": "small"} {
		if got := text(t, filepath.Join(tree, name)); got != want {
			t.Errorf("%s has %d bytes", name, len(got))
		}
	}
	if _, err := os.Lstat(tree + ".shared"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves a file behind: %v", err)
	}
}

// same reports whether two trees have the same file at a path.
func same(t *testing.T, tree, other, name string) bool {
	t.Helper()
	a, err := os.Lstat(filepath.Join(tree, name))
	testenv.Must(t, err)
	b, err := os.Lstat(filepath.Join(other, name))
	testenv.Must(t, err)
	return os.SameFile(a, b)
}

func TestEqualTreesShareTheirFiles(t *testing.T) {
	t.Parallel()
	tree, other := makeTwins(t)
	for range 2 { // the second time they have the same files already
		equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: true})
		if !equal || err != nil {
			t.Fatalf("equal %v, %v", equal, err)
		}
		for name, want := range map[string]bool{
			"run.sh": true, "sub/large": true, "sub/deep/small": true, "none": false, "link": false, "sub": false, "empty": false,
		} {
			if same(t, tree, other, name) != want {
				t.Errorf("%s is shared: %v", name, !want)
			}
		}
	}
	isWhole(t, tree)
	testenv.Must(t, filetree.Remove(other))
	isWhole(t, tree)
}

func TestFilesThatDifferAreNotShared(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(name string) error{
		"its last byte": func(name string) error {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("X"), int64(len(large))-1)
			}
			return errors.Join(err, f.Close(), os.Chtimes(name, made, made))
		},
		"its size":  func(name string) error { return errors.Join(os.Truncate(name, 5), os.Chtimes(name, made, made)) },
		"its mode":  func(name string) error { return os.Chmod(name, 0o755) },
		"its time":  func(name string) error { return os.Chtimes(name, made, made.Add(time.Nanosecond)) },
		"its owner": func(name string) error { return os.Chown(name, 1, -1) },
		"its kind":  func(name string) error { return errors.Join(os.Remove(name), os.Symlink("deep/small", name)) },
		"no file":   os.Remove,
		"a pipe":    func(name string) error { return errors.Join(os.Remove(name), unix.Mkfifo(name, 0o600)) },
		"no directory": func(name string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(name)), os.WriteFile(filepath.Dir(name), nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tree, other := makeTwins(t)
			if err := change(filepath.Join(other, "sub/large")); errors.Is(err, fs.ErrPermission) {
				t.Skip(err) // the test is not root
			} else if err != nil {
				t.Fatal(err)
			}
			equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: true})
			if equal || err != nil {
				t.Errorf("equal %v, %v", equal, err)
			}
			if _, err := os.Lstat(filepath.Join(other, "sub/large")); err == nil && same(t, tree, other, "sub/large") {
				t.Error("it is shared")
			}
			isWhole(t, tree)
			equal, err = filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: true, Partly: true})
			if equal || err != nil || !same(t, tree, other, "run.sh") {
				t.Errorf("partly: equal %v, %v, and %v for a file that is equal", equal, err, same(t, tree, other, "run.sh"))
			}
			isWhole(t, tree)
		})
	}
}

// A file alone has the time of its arrival, which nobody has chosen.
func TestTimesCountOnlyIfTheCallerSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, other := filepath.Join(dir, "tree"), filepath.Join(dir, "other")
	testenv.Must(t, errors.Join(os.WriteFile(tree, []byte("text"), 0o644), os.WriteFile(other, []byte("text"), 0o644), os.Chtimes(other, made, made)))
	for _, times := range []bool{true, false} {
		equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: times})
		if equal == times || equal != same(t, tree, other, "") || err != nil {
			t.Errorf("with times %v: equal %v, %v", times, equal, err)
		}
	}
}

// An owner of many large files that differ in their last bytes must not keep the disk busy.
func TestFewBytesAreReadInVain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, other := filepath.Join(dir, "tree"), filepath.Join(dir, "other")
	testenv.Must(t, errors.Join(os.WriteFile(tree, []byte(large+"a"), 0o644), os.WriteFile(other, []byte(large+"b"), 0o644)))
	vain := int64(len(large) + 1)
	for range 2 {
		equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Vain: &vain})
		if equal || err != nil || vain != 0 {
			t.Errorf("equal %v, %v, and %d bytes left", equal, err, vain)
		}
	}
	testenv.Must(t, os.WriteFile(other, []byte(large+"a"), 0o644))
	vain = 1
	if equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Vain: &vain}); !equal || err != nil || vain != 1 {
		t.Errorf("bytes that are equal are not in vain: %v, %v, %d", equal, err, vain)
	}
}

func TestFilesOfAnyDepthAreShared(t *testing.T) {
	t.Parallel()
	tree, other := makeDeep(t, 2000), makeDeep(t, 2000)
	equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{})
	if !equal || err != nil {
		t.Errorf("equal %v, %v", equal, err)
	}
}

func TestTreeOnAnotherDiskKeepsItsFiles(t *testing.T) {
	t.Parallel()
	tree, _ := makeTwins(t)
	disk := t.TempDir()
	testenv.SmallDisk(t, disk, "size=8m")
	other := filepath.Join(disk, "other")
	makeTree(t, other)
	equal, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: true})
	if equal || err != nil {
		t.Errorf("equal %v, %v", equal, err)
	}
	isWhole(t, tree)
}

// endsAfter is a context that ends at its nth question.
type endsAfter struct {
	context.Context

	left *int
}

func (c endsAfter) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestTreeIsWholeWhereverSharingEnds(t *testing.T) {
	t.Parallel()
	for steps := 0; ; steps++ {
		tree, other := makeTwins(t)
		left := steps
		equal, err := filetree.Share(endsAfter{t.Context(), &left}, tree, other, filetree.Sharing{Times: true})
		isWhole(t, tree)
		isWhole(t, other)
		if equal {
			if steps < 10 {
				t.Errorf("only %d steps", steps)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// The other tree may be removed meanwhile, and may itself be given the files of a third one.
func TestTreeIsWholeWhileTheOtherChanges(t *testing.T) {
	t.Parallel()
	for range 50 {
		tree, other := makeTwins(t)
		third := filepath.Join(t.TempDir(), "third")
		makeTree(t, third)
		var all errgroup.Group
		all.Go(func() error {
			_, err := filetree.Share(t.Context(), tree, other, filetree.Sharing{Times: true})
			return err
		})
		all.Go(func() error {
			_, err := filetree.Share(t.Context(), other, third, filetree.Sharing{Times: true})
			return errors.Join(err, filetree.Remove(other))
		})
		testenv.Must(t, all.Wait())
		isWhole(t, tree)
		isWhole(t, third)
	}
}
