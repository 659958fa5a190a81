package tarstream

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// levels is the number of directories in a path of these tests. A path may have three times as many.
const levels = 600

var deepest = strings.Repeat("d/", levels)

// emptyRoot is a new directory. A test's own directory cannot be removed with so many levels in it.
func emptyRoot(t *testing.T) *os.Root {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(root.Close(), filetree.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return root
}

// add adds empty files, or hard links, to an unpacker.
func add(u *unpacker, headers ...tar.Header) error {
	for _, h := range headers {
		h.Typeflag, h.Mode = tar.TypeReg, 0o600
		if h.Linkname != "" {
			h.Typeflag = tar.TypeLink
		}
		if err := u.entry(&h, bytes.NewReader(nil)); err != nil {
			return err
		}
	}
	return nil
}

// An entry's cost must not grow with its depth: a path of 1,900 directories takes 24 µs for each of them.
func TestEntriesOfADeepDirectoryOpenItOnce(t *testing.T) {
	t.Parallel()
	files, links := []tar.Header{{Name: deepest + "first"}}, []tar.Header{{Name: deepest + "first"}}
	var zipped bytes.Buffer
	zw := zip.NewWriter(&zipped)
	for i := range 200 {
		files = append(files, tar.Header{Name: deepest + fmt.Sprint(i)})
		links = append(links, tar.Header{Name: deepest + fmt.Sprint(i), Linkname: deepest + "first"})
		if _, err := zw.Create(deepest + fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	zr, err := zip.NewReader(bytes.NewReader(zipped.Bytes()), int64(zipped.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for name, unpack := range map[string]func(u *unpacker) error{
		"files":      func(u *unpacker) error { return add(u, files...) },
		"hard links": func(u *unpacker) error { return add(u, links...) },
		"zip": func(u *unpacker) (err error) {
			u.once = true
			for _, f := range zr.File {
				err = errors.Join(err, u.zipEntry(t.Context(), f))
			}
			return err
		},
	} {
		u := newUnpacker(t.Context(), emptyRoot(t), Limits{})
		if err := errors.Join(unpack(u), u.tree.close()); err != nil {
			t.Errorf("%s: %.300v", name, err)
		}
		const search = 12 // for the directories that are there
		if u.tree.opened > levels+search {
			t.Errorf("%s: %d directories were opened", name, u.tree.opened)
		}
	}
}

// unsupported is openBeneath of a system without such a call.
func unsupported(*os.Root, string) (*os.Root, error) { return nil, errors.ErrUnsupported }

// The order of a walk leads up again from each depth: the files of a directory come after its subdirectories. A walk
// back to each of them took seconds.
func TestArchiveInTheOrderOfAWalkMayHaveAnyDepth(t *testing.T) {
	t.Parallel()
	var headers []tar.Header
	for depth := levels; depth >= 0; depth-- {
		headers = append(headers, tar.Header{Name: strings.Repeat("d/", depth) + "file"})
	}
	for name, test := range map[string]struct {
		beneath func(*os.Root, string) (*os.Root, error)
		most    int64 // for each entry
	}{"in one call": {openBeneath, 2}, "by a walk": {unsupported, 6}} {
		u := newUnpacker(t.Context(), emptyRoot(t), Limits{})
		u.tree.beneath = test.beneath
		if err := errors.Join(add(u, headers...), u.tree.close()); err != nil {
			t.Fatalf("%s: %.300v", name, err)
		}
		if most := u.made + test.most*u.headers; u.tree.opened > most {
			t.Errorf("%s: %d directories were opened, want %d at most", name, u.tree.opened, most)
		}
	}
}

// 163 such entries are in 150 bytes of bzip2. They took 24 s of a processor.
func TestArchiveThatLeadsFromDepthToDepthIsCheap(t *testing.T) {
	t.Parallel()
	u := newUnpacker(t.Context(), emptyRoot(t), Limits{})
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = add(u, tar.Header{Name: "a/" + deepest + "file"}, tar.Header{Name: "b/" + deepest + "file"},
			tar.Header{Name: "link", Linkname: "a/" + deepest + "file"})
	}
	if err != nil {
		t.Errorf("%.300v", err)
	}
	if most := u.made + 20 + 2*u.headers; u.tree.opened > most {
		t.Errorf("%d directories were opened, want %d at most", u.tree.opened, most)
	}
	if err := u.tree.close(); err != nil {
		t.Error(err)
	}
}

// Each entry makes one more directory, in another deep place than the one before.
func TestNewDirectoriesInDeepPlacesAreCheap(t *testing.T) {
	t.Parallel()
	u := newUnpacker(t.Context(), emptyRoot(t), Limits{})
	u.must(t, add(u, tar.Header{Name: "a/" + deepest + "file"}, tar.Header{Name: "a/b/" + deepest + "file"}))
	before, made := u.tree.opened, u.made
	for i := range 50 {
		u.must(t, add(u, tar.Header{Name: fmt.Sprintf("a/%snew%d/file", deepest, i)}, tar.Header{Name: fmt.Sprintf("a/b/%snew%d/file", deepest, i)}))
	}
	const search = 14
	if opened := u.tree.opened - before; opened > 100*search+u.made-made {
		t.Errorf("%d directories were opened for 100 entries", opened)
	}
	u.must(t, u.tree.close())
}

func (*unpacker) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%.300v", err)
	}
}

// Where the system opens no path in one call, such an archive is refused.
func TestArchiveThatLeadsFromDepthToDepthIsRefusedByAWalk(t *testing.T) {
	t.Parallel()
	u := newUnpacker(t.Context(), emptyRoot(t), Limits{})
	u.tree.beneath = unsupported
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = add(u, tar.Header{Name: "a/" + deepest + "file"}, tar.Header{Name: "b/" + deepest + "file"})
	}
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%.300v", err)
	}
	if most := openedAtFirst + u.made + openedPerEntry*u.headers + 1; u.tree.opened > most {
		t.Errorf("%d directories were opened, want %d at most", u.tree.opened, most)
	}
	if err := u.tree.close(); err != nil {
		t.Error(err)
	}
}

// A client that has sent all of its small archive may leave. Nobody needs the files any more.
func TestUnpackingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	for _, name := range []string{"first", "second"} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	root := emptyRoot(t)
	ctx, leave := context.WithCancel(t.Context())
	watch := Watch{Entry: func(string, *tar.Header) { leave() }}
	size, err := UnpackWatched(ctx, &archive, root, Limits{}, watch)
	if !errors.Is(err, context.Canceled) || size.Entries != 1 {
		t.Errorf("%d entries, %v", size.Entries, err)
	}
	if _, err := root.Lstat("second"); err == nil {
		t.Error("the second file is there")
	}
}
