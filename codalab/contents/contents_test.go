package contents_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

const uuid = "0x00000000000000000000000000000001"

var must = testenv.Must

// bundle returns a bundle's directory with an entry of each kind; the directory above it
// has a secret.
func bundle(t *testing.T) *os.Root {
	t.Helper()
	outer := t.TempDir()
	dir := filepath.Join(outer, "bundle")
	must(t, os.MkdirAll(filepath.Join(dir, "sub/empty"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "dep/inner"), 0o755))
	must(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "stdout"), []byte("hello\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "sub/f"), []byte("0123456789"), 0o600))
	must(t, os.Symlink("sub/f", filepath.Join(dir, "in")))
	must(t, os.Symlink("sub", filepath.Join(dir, "indir")))
	must(t, os.Symlink("../secret", filepath.Join(dir, "up")))
	must(t, os.Symlink(outer, filepath.Join(dir, "abs")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Symlink("nothing", filepath.Join(dir, "dangling")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return root
}

func TestInfoDescribesToItsDepth(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	file := codalab.TargetInfo{Name: "f", Size: 10, Perm: 0o600, Type: codalab.TargetFile}
	empty := codalab.TargetInfo{Name: "empty", Perm: 0o755, Type: codalab.TargetDirectory}
	emptyListed := empty
	emptyListed.Contents = []codalab.TargetInfo{}
	tests := map[string]struct {
		path  string
		depth int
		want  codalab.TargetInfo
	}{
		"file":          {"sub/f", 3, file},
		"untidy path":   {"/sub//./x/../f", 0, file},
		"directory":     {"sub", 0, codalab.TargetInfo{Name: "sub", Perm: 0o755, Type: codalab.TargetDirectory}},
		"its entries":   {"sub", 1, codalab.TargetInfo{Name: "sub", Perm: 0o755, Type: codalab.TargetDirectory, Contents: []codalab.TargetInfo{empty, file}}},
		"their entries": {"sub", 2, codalab.TargetInfo{Name: "sub", Perm: 0o755, Type: codalab.TargetDirectory, Contents: []codalab.TargetInfo{emptyListed, file}}},
		"link":          {"up", 1, codalab.TargetInfo{Name: "up", Size: 9, Perm: 0o777, Type: codalab.TargetLink, Link: "../secret"}},
		"behind a link": {"indir/f", 1, file},
	}
	ignoreSize := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Size" }, cmp.Comparer(func(a, b int64) bool {
		return a == b || max(a, b) >= 4096 || min(a, b) == 0 // a directory's is the file system's
	}))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := contents.Info(root, test.path, test.depth)
			must(t, err)
			if diff := cmp.Diff(test.want, got, ignoreSize); diff != "" {
				t.Error(diff)
			}
		})
	}
	whole, err := contents.Info(root, "", 1)
	must(t, err)
	var names []string
	for _, e := range whole.Contents {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"abs", "dangling", "dep", "in", "indir", "loop", "stdout", "sub", "up"}, names); diff != "" {
		t.Error(diff) // no pipe
	}
}

func TestNothingOutsideIsRead(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	for path, want := range map[string]struct {
		err  error
		code int
	}{
		"up":                     {contents.ErrLink, http.StatusForbidden},
		"abs/secret":             {contents.ErrLink, http.StatusForbidden},
		"abs":                    {contents.ErrLink, http.StatusForbidden},
		"loop":                   {contents.ErrLink, http.StatusForbidden},
		"../secret":              {contents.ErrNotFound, http.StatusNotFound},
		"dangling":               {contents.ErrNotFound, http.StatusNotFound},
		"nosuch":                 {contents.ErrNotFound, http.StatusNotFound},
		"stdout/x":               {contents.ErrNotFound, http.StatusNotFound},
		"pipe":                   {contents.ErrNotFound, http.StatusNotFound},
		"a\x00b":                 {contents.ErrNotFound, http.StatusNotFound},
		"sub":                    {contents.ErrDirectory, http.StatusBadRequest},
		"":                       {contents.ErrDirectory, http.StatusBadRequest},
		"/../../../..":           {contents.ErrDirectory, http.StatusBadRequest},
		strings.Repeat("n", 300): {contents.ErrNotFound, http.StatusNotFound},
	} {
		_, err := contents.Section(root, path, 0, -1)
		if !errors.Is(err, want.err) {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if code, message := contents.Status(codalab.Target{BundleUUID: uuid, Subpath: path}, err); code != want.code || !strings.Contains(message, path) {
			t.Errorf("%q: %d %s", path, code, message)
		}
	}
}

func TestSectionsEndWithTheFile(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	for _, test := range []struct {
		path           string
		offset, length int64
		want           string
	}{
		{"sub/f", 0, -1, "0123456789"},
		{"sub/f", 3, 4, "3456"},
		{"sub/f", 8, 100, "89"},
		{"sub/f", 10, 5, ""},
		{"sub/f", 1 << 60, 5, ""},
		{"sub/f", 2, 0, ""},
		{"in", 5, -1, "56789"},
		{"indir/f", 9, 1, "9"},
	} {
		r, err := contents.Section(root, test.path, test.offset, test.length)
		must(t, err)
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(got) != test.want {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}

func TestExtentCountsDirectoriesAlikeAndEveryEntry(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	for path, want := range map[string]codalab.Extent{"sub": {Bytes: 2*4096 + 10, Entries: 3}, "sub/f": {Bytes: 10, Entries: 1}, "in": {Bytes: 5, Entries: 1}} {
		if got, err := contents.Measure(root, path); err != nil || got != want {
			t.Errorf("%s: %d, %v", path, got, err)
		}
	}
}

// Each name of a file with several names is an entry of a directory.
func TestHardLinksAndLinksAreEntries(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer func() { must(t, root.Close()) }()
	must(t, root.WriteFile("empty", nil, 0o600))
	must(t, root.Link("empty", "again"))
	must(t, root.Symlink("empty", "link"))
	if got, err := contents.Measure(root, "."); err != nil || got != (codalab.Extent{Bytes: 4096 + 5, Entries: 4}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Deep directories are opened one within the other, so that the time does not grow with the square of
// the depth.
func TestDeepContentsAreMeasuredAndDescribed(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	const depth = 100
	dir := strings.Repeat("d/", depth)
	must(t, root.MkdirAll(dir, 0o755))
	for _, name := range []string{"f", "g"} {
		must(t, root.WriteFile(dir+name, []byte("0123456789"), 0o600))
	}
	must(t, root.Symlink("../f", dir+"link"))
	if got, err := contents.Measure(root, "d"); err != nil || got != (codalab.Extent{Bytes: depth*4096 + 2*10 + 4, Entries: depth + 3}) {
		t.Errorf("%d, %v", got, err)
	}
	info, err := contents.Info(root, "d", depth)
	must(t, err)
	for range depth - 1 {
		if len(info.Contents) != 1 || info.Name != "d" {
			t.Fatalf("%+v", info)
		}
		info = info.Contents[0]
	}
	if len(info.Contents) != 3 || info.Contents[0].Name != "f" || info.Contents[0].Size != 10 || info.Contents[2].Link != "../f" {
		t.Errorf("%+v", info)
	}
}

// A directory with many files may lie deep, and each file would take as many system calls as its path has parts. The
// number of descriptors shows that a walk opens each directory once and closes it.
func TestDeepContentsOfAnyDepthAreMeasured(t *testing.T) {
	t.Parallel()
	const depth = 2200 // deeper than a path may be long
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(top, 0o700))
	t.Cleanup(func() { must(t, filetree.Remove(top)) }) // the test's own removal has too many directories open
	at, err := treewalk.OpenDir(unix.AT_FDCWD, top)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(at, "d", 0o700))
		below, err := treewalk.OpenDir(at, "d")
		must(t, err)
		must(t, unix.Close(at))
		at = below
	}
	must(t, unix.Close(at))
	root, err := os.OpenRoot(top)
	must(t, err)
	defer root.Close()
	if got, err := contents.Measure(root, ""); err != nil || got != (codalab.Extent{Bytes: (depth + 1) * 4096, Entries: depth + 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := contents.Info(root, "", 1<<30)
	must(t, err)
	levels := 0
	for ; len(info.Contents) == 1; info = info.Contents[0] {
		levels++
	}
	if levels != depth {
		t.Errorf("%d levels are described", levels)
	}
}

func TestSummaries(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 1000 {
		many += strings.Repeat(string(rune('a'+i%26)), 9) + "\n"
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"three": "1\n2\n3", "many": many, "binary": "\xff\xfe\x00", "empty": "", "wide": strings.Repeat("é", 1000) + "\nend",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	for _, test := range []struct {
		path       string
		head, tail int
		width      int
		want       string
	}{
		{"three", 5, 0, 128, "1\n2\n3\n"},
		{"three", 1, 0, 128, "1\n"},
		{"three", 0, 1, 128, "3\n"},
		{"three", 1, 1, 128, "1\n...\n3\n"},
		{"many", 2, 0, 128, "aaaaaaaaa\nbbbbbbbbb\n"},
		{"many", 1, 1, 15, "aaaaaaaaa\n...\nlllllllll\n"},
		{"many", 1, 0, 5, ""}, // no whole line in five characters
		{"binary", 1, 1, 128, "<binary>"},
		{"nosuch", 1, 1, 128, "<none>"},
		{"empty", 1, 1, 128, ""},
		{"wide", 1, 1, 5, "...\nend\n"}, // both cuts go through a character
	} {
		got, err := contents.Summarize(root, test.path, codalab.ReadArgs{HeadLines: test.head, TailLines: test.tail, MaxLineLength: test.width, TruncationText: "...\n"})
		if err != nil || string(got) != test.want {
			t.Errorf("%s head %d tail %d: %q, %v; want %q", test.path, test.head, test.tail, got, err, test.want)
		}
	}
	for _, args := range []codalab.ReadArgs{{}, {HeadLines: -1, TailLines: 2}, {HeadLines: 1 << 40}, {HeadLines: 1 << 20, MaxLineLength: 1 << 20}} {
		if _, err := contents.Summarize(root, "many", args); !errors.Is(err, contents.ErrSummary) {
			t.Errorf("%+v: %v", args, err)
		}
	}
}

func gunzip(t *testing.T, stream io.ReadCloser) io.Reader {
	t.Helper()
	t.Cleanup(func() { must(t, stream.Close()) })
	zr, err := gzip.NewReader(stream)
	must(t, err)
	return zr
}

func TestAnswersToReadMessages(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	hidden := []string{"dep", "sub/empty", ".", "/stdout", "/sub/f"} // absolute ones are not in the bundle's directory
	for name, test := range map[string]struct {
		path string
		args codalab.ReadArgs
		want string
		code int
	}{
		"file":        {"stdout", codalab.ReadArgs{Type: codalab.ReadFile}, "hello\n", 0},
		"section":     {"sub/f", codalab.ReadArgs{Type: codalab.ReadFileSection, Offset: 2, Length: 3}, "234", 0},
		"summary":     {"stdout", codalab.ReadArgs{Type: codalab.ReadSummary, HeadLines: 1, MaxLineLength: 128}, "hello\n", 0},
		"missing":     {"nosuch", codalab.ReadArgs{Type: codalab.ReadFile}, "", 404},
		"dependency":  {"dep/inner", codalab.ReadArgs{Type: codalab.ReadTargetInfo}, "", 404},
		"out":         {"up", codalab.ReadArgs{Type: codalab.ReadFile}, "", 403},
		"no archive":  {"stdout", codalab.ReadArgs{Type: codalab.ReadDirectory}, "", 404},
		"no lines":    {"stdout", codalab.ReadArgs{Type: codalab.ReadSummary}, "", 400},
		"unsupported": {"stdout", codalab.ReadArgs{Type: "zip"}, "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply, stream := contents.Reply(t.Context(), root, codalab.Target{BundleUUID: uuid, Subpath: test.path}, test.args, hidden)
			if reply.ErrorCode != test.code || (stream == nil) != (test.code != 0) {
				t.Fatalf("reply %+v, stream %v", reply, stream)
			}
			if stream == nil {
				return
			}
			got, err := io.ReadAll(gunzip(t, stream))
			if err != nil || string(got) != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	reply, _ := contents.Reply(t.Context(), root, codalab.Target{BundleUUID: uuid, Subpath: "dep"}, codalab.ReadArgs{Type: codalab.ReadTargetInfo}, hidden)
	if diff := cmp.Diff(codalab.ReadReply{ErrorCode: 404, ErrorMessage: "dep not found in bundle " + uuid}, reply); diff != "" {
		t.Error(diff)
	}
	reply, _ = contents.Reply(t.Context(), root, codalab.Target{BundleUUID: uuid, Subpath: "sub"}, codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: 1}, hidden)
	want := &codalab.TargetInfo{
		Name: "sub", Perm: 0o755, Type: codalab.TargetDirectory,
		Contents: []codalab.TargetInfo{{Name: "f", Size: 10, Perm: 0o600, Type: codalab.TargetFile}},
		Resolved: &codalab.Target{BundleUUID: uuid, Subpath: "sub"},
	}
	if diff := cmp.Diff(want, reply.TargetInfo, cmpopts.IgnoreFields(codalab.TargetInfo{}, "Size")); diff != "" {
		t.Error(diff)
	}
}

func TestArchiveLeavesDependenciesOut(t *testing.T) {
	t.Parallel()
	_, stream := contents.Reply(t.Context(), bundle(t), codalab.Target{BundleUUID: uuid}, codalab.ReadArgs{Type: codalab.ReadDirectory}, []string{"dep", "sub/empty"})
	tr := tar.NewReader(gunzip(t, stream))
	var names []string
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		names = append(names, h.Name)
	}
	want := []string{"./", "./abs", "./dangling", "./in", "./indir", "./loop", "./stdout", "./sub/", "./sub/f", "./up"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestAbandonedStreamEnds(t *testing.T) {
	t.Parallel()
	_, stream := contents.Reply(t.Context(), bundle(t), codalab.Target{BundleUUID: uuid}, codalab.ReadArgs{Type: codalab.ReadDirectory}, nil)
	must(t, stream.Close())
	if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read after close: %v", err)
	}
}
