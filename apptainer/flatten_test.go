package apptainer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream makes a layer of lines such as
//
//	dir/              a directory
//	file=content      a file
//	link->target      a symbolic link
//	name=>target      a hard link
//	dir/.wh.name=     a whiteout
func stream(tb testing.TB, lines ...string) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, line := range lines {
		hdr, content := tar.Header{Mode: 0o644}, ""
		if name, target, ok := strings.Cut(line, "=>"); ok {
			hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeLink, name, target
		} else if name, target, ok := strings.Cut(line, "->"); ok {
			hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeSymlink, name, target
		} else if name, text, ok := strings.Cut(line, "="); ok {
			hdr.Typeflag, hdr.Name, hdr.Size, content = tar.TypeReg, name, int64(len(text)), text
		} else {
			hdr.Typeflag, hdr.Name, hdr.Mode = tar.TypeDir, line, 0o700
		}
		if err := w.WriteHeader(&hdr); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// flattened applies layers and returns the tar stream of what they show.
func flattened(layers ...[]byte) ([]byte, error) {
	t := newTree(10_000)
	room := &budget{}
	room.entries.Store(10_000)
	room.bytes.Store(1 << 20)
	room.nameBytes.Store(1 << 20)
	for _, l := range layers {
		entries, err := readEntries(bytes.NewReader(l), room)
		if err != nil {
			return nil, err
		}
		if err := t.apply(entries); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	err := t.plan().emit(&out, func(i int) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layers[i])), nil
	})
	return out.Bytes(), err
}

// listing reads a flat tar stream as a strict reader would, with the contents
// of hard links, into lines like stream's. Directories that no layer describes
// have a mark.
func listing(stream []byte) ([]string, error) {
	contents := map[string]string{}
	seen := map[string]bool{"": true}
	var lines []string
	r := tar.NewReader(bytes.NewReader(stream))
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(lines)
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		dir, _ := path.Split(name)
		switch {
		case seen[name]:
			return nil, fmt.Errorf("%q twice", name)
		case name != cleanName(name):
			return nil, fmt.Errorf("%q is not clean", name)
		case !seen[strings.TrimSuffix(dir, "/")]:
			return nil, fmt.Errorf("%q before its directory", name)
		}
		seen[name] = true
		switch hdr.Typeflag {
		case tar.TypeDir:
			mark := ""
			if hdr.Mode == 0o755 {
				mark = " implied"
			}
			lines = append(lines, name+"/"+mark)
		case tar.TypeSymlink:
			lines = append(lines, name+"->"+hdr.Linkname)
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			contents[name] = string(content)
			lines = append(lines, name+"="+contents[name])
		case tar.TypeLink:
			content, ok := contents[hdr.Linkname]
			if !ok && !seen[hdr.Linkname] {
				return nil, fmt.Errorf("link %q before its target %q", name, hdr.Linkname)
			}
			lines = append(lines, name+"=>"+hdr.Linkname+"="+content)
		default:
			lines = append(lines, fmt.Sprintf("%s of type %c", name, hdr.Typeflag))
		}
	}
}

func TestLayersFlattenAsAContainerRuntimeUnpacksThem(t *testing.T) {
	t.Parallel()
	type layers [][]string
	for _, tt := range []struct {
		name   string
		layers layers
		want   []string
	}{
		{"upper file wins", layers{{"a=1", "b=1"}, {"a=2"}}, []string{"a=2", "b=1"}},
		{"last of one layer wins", layers{{"a=1", "a=2"}}, []string{"a=2"}},
		{"last kind of one layer wins", layers{{"a=1", "a/", "a/b=2", "a=3"}}, []string{"a=3"}},
		{"whiteout hides a file", layers{{"d/", "d/a=1", "d/b=1"}, {"d/.wh.a="}}, []string{"d/", "d/b=1"}},
		{"whiteout hides a directory", layers{{"d/", "d/a=1", "b=1"}, {".wh.d="}}, []string{"b=1"}},
		{"whiteout before the same layer's file", layers{{"a=1"}, {".wh.a=", "a=2"}}, []string{"a=2"}},
		{"whiteout after the same layer's file", layers{{"a=1"}, {"a=2", ".wh.a="}}, []string{"a=2"}},
		{"whiteout of a directory that the layer makes anew", layers{{"d/", "d/old=1"}, {"d/", "d/new=2", ".wh.d="}}, []string{"d/", "d/new=2"}},
		{"whiteout of a directory that the layer implies", layers{{"d/", "d/old=1"}, {".wh.d=", "d/new=2"}}, []string{"d/ implied", "d/new=2"}},
		{"whiteout of nothing", layers{{"a=1"}, {".wh.b=", "x/.wh.y="}}, []string{"a=1"}},
		{"whiteout is for lower layers only", layers{{"a=1"}, {".wh.a="}, {"a=3"}}, []string{"a=3"}},
		{"opaque hides what is below", layers{{"d/", "d/a=1", "d/s/", "d/s/b=1"}, {"d/", "d/c=2", "d/.wh..wh..opq="}}, []string{"d/", "d/c=2"}},
		{"opaque first", layers{{"d/", "d/a=1"}, {"d/.wh..wh..opq=", "d/a=2"}}, []string{"d/", "d/a=2"}},
		{"opaque keeps the layer's subdirectory, not its old content", layers{{"d/", "d/s/", "d/s/old=1"}, {"d/", "d/s/", "d/s/new=2", "d/.wh..wh..opq="}}, []string{"d/", "d/s/", "d/s/new=2"}},
		{"opaque root", layers{{"a=1"}, {".wh..wh..opq=", "b=2"}}, []string{"b=2"}},
		{"aufs's own names", layers{{".wh..wh.plnk/", ".wh..wh.aufs=x", "a=1"}}, []string{"a=1"}},
		{"file over directory", layers{{"d/", "d/a=1"}, {"d=2"}}, []string{"d=2"}},
		{"directory over file", layers{{"a=1"}, {"a/", "a/b=2"}}, []string{"a/", "a/b=2"}},
		{"implied directory over a lower file", layers{{"a=1"}, {"a/b=2"}}, []string{"a/ implied", "a/b=2"}},
		{"directory over link", layers{{"t/", "a->t"}, {"a/", "a/b=2"}}, []string{"a/", "a/b=2", "t/"}},
		{"directories merge", layers{{"d/", "d/a=1"}, {"d/", "d/b=2"}}, []string{"d/", "d/a=1", "d/b=2"}},
		{"implied directories", layers{{"x/y/z=1"}}, []string{"x/ implied", "x/y/ implied", "x/y/z=1"}},
		{"through a link", layers{{"usr/", "usr/bin/", "bin->usr/bin"}, {"bin/sh=2"}}, []string{"bin->usr/bin", "usr/", "usr/bin/", "usr/bin/sh=2"}},
		{"through an absolute link", layers{{"usr/", "bin->/usr"}, {"bin/sh=2"}}, []string{"bin->/usr", "usr/", "usr/sh=2"}},
		{"through a link that leaves the root", layers{{"up->../../../etc", "etc/"}, {"up/x=2"}}, []string{"etc/", "etc/x=2", "up->../../../etc"}},
		{"through a link to nothing", layers{{"a->gone/deep"}, {"a/x=2"}}, []string{"a->gone/deep", "gone/ implied", "gone/deep/ implied", "gone/deep/x=2"}},
		{"whiteout through a link", layers{{"usr/", "usr/sh=1", "bin->usr"}, {"bin/.wh.sh="}}, []string{"bin->usr", "usr/"}},
		{"names that leave the root", layers{{"../../etc/x=1", "/abs=2", "./rel=3", "a/../b=4"}}, []string{"abs=2", "b=4", "etc/ implied", "etc/x=1", "rel=3"}},
		{"hard link", layers{{"a=1", "b=>a"}}, []string{"a=1", "b=>a=1"}},
		{"hard link before its name in order", layers{{"z=1", "a=>z"}}, []string{"a=1", "z=>a=1"}},
		{"hard link to a lower layer", layers{{"a=1"}, {"b=>a"}}, []string{"a=1", "b=>a=1"}},
		{"hard link to a hidden file", layers{{"a=1", "b=>a"}, {".wh.a="}}, []string{"b=1"}},
		{"hard link to a replaced file", layers{{"a=1", "b=>a"}, {"a=2"}}, []string{"a=2", "b=1"}},
		{"hard link from above to a file that is replaced further above", layers{{"a=1"}, {"b=>a"}, {"a=3"}}, []string{"a=3", "b=1"}},
		{"hard link to what the same layer hides after", layers{{"a=1"}, {"b=>a", ".wh.a="}}, []string{"b=1"}},
		{"hard link through a link", layers{{"usr/", "usr/sh=1", "bin->usr"}, {"x=>bin/sh"}}, []string{"bin->usr", "usr/", "usr/sh=1", "x=>usr/sh=1"}},
		{"hard link to a symbolic link", layers{{"a->t", "b=>a"}}, []string{"a->t", "b=>a="}},
		{"hard link to itself", layers{{"a=1", "a=>a"}}, []string{"a=1"}},
		{"odd names", layers{{"we\nird=1", `back\slash=2`, " lead=3", "-dash=4", "caf\xe9=5", "*?[=6"}}, []string{" lead=3", "*?[=6", "-dash=4", `back\slash=2`, "caf\xe9=5", "we\nird=1"}},
		{"empty layer", layers{{"a=1"}, {}}, []string{"a=1"}},
		{"no layer", layers{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var streams [][]byte
			for _, lines := range tt.layers {
				streams = append(streams, stream(t, lines...))
			}
			flat, err := flattened(streams...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := listing(flat)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeFlattenedIsRefusedInWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for _, tt := range []struct {
		name   string
		layers [][]string
		want   string
	}{
		{"link to nothing", [][]string{{"a=>b"}}, `hard link to "b", which does not exist`},
		{"link to a directory", [][]string{{"d/", "a=>d"}}, "is a directory"},
		{"link to a hidden lower file", [][]string{{"a=1"}, {".wh.a=", "b=>a"}}, "does not exist"},
		{"link loop", [][]string{{"a->b", "b->a", "a/x=1"}}, "too many symbolic links"},
		{"file as a directory", [][]string{{"a=1", "a/b=2"}}, `the same layer has "a" as a file`},
		{"file as the root", [][]string{{".=1"}}, "the root is not a directory"},
		{"whiteout without a name", [][]string{{".wh.="}}, "names no file"},
		{"whiteout of the parent", [][]string{{"d/", "d/.wh...="}}, "names no file"},
		{"long name", [][]string{{long + "=1"}}, "longer than 255 bytes"},
		{"long path", [][]string{{strings.Repeat("x/", 2100) + "y=1"}}, "longer than 4095 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var streams [][]byte
			for _, lines := range tt.layers {
				streams = append(streams, stream(t, lines...))
			}
			if _, err := flattened(streams...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestAttributesAreTheImages(t *testing.T) {
	t.Parallel()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o1777, Uid: 3_000_000_000, Gid: 7},
		{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600},
		{
			Typeflag: tar.TypeReg, Name: "ping", Mode: 0o4755,
			PAXRecords: map[string]string{paxCapability: "\x01\x00\x00\x02", "SCHILY.xattr.user.overlay.opaque": "y"},
		},
	}
	for _, hdr := range headers {
		if err := w.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	flat, err := flattened(layer.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(bytes.NewReader(flat))
	for _, want := range headers {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != want.Name || got.Mode != want.Mode || got.Uid != want.Uid || got.Gid != want.Gid || got.Devmajor != want.Devmajor || got.Devminor != want.Devminor {
			t.Errorf("%+v became %+v", want, got)
		}
		if got.PAXRecords[paxCapability] != want.PAXRecords[paxCapability] || got.PAXRecords["SCHILY.xattr.user.overlay.opaque"] != "" {
			t.Errorf("%s has the attributes %q", got.Name, got.PAXRecords)
		}
	}
}

func TestBudgetBoundsWhatAnImageUnpacksTo(t *testing.T) {
	t.Parallel()
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("f%d=", i)
	}
	for _, tt := range []struct {
		name                      string
		entries, bytes, nameBytes int64
		layer                     []byte
	}{
		{"entries", 100, 1 << 30, 1 << 30, stream(t, many...)},
		{"bytes", 1 << 30, 100, 1 << 30, stream(t, "a="+strings.Repeat("x", 101))},
		{"names", 1 << 30, 1 << 30, 100, stream(t, strings.Repeat("x", 101)+"=")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			room := &budget{}
			room.entries.Store(tt.entries)
			room.bytes.Store(tt.bytes)
			room.nameBytes.Store(tt.nameBytes)
			if _, err := readEntries(bytes.NewReader(tt.layer), room); !errors.Is(err, errTooLarge) {
				t.Errorf("error %v, want errTooLarge", err)
			}
		})
	}
	deep := newTree(100)
	entries, err := readEntries(bytes.NewReader(stream(t, strings.Repeat("x/", 200)+"y=1")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := deep.apply(entries); !errors.Is(err, errTooLarge) {
		t.Errorf("a deep path: error %v, want errTooLarge", err)
	}
}

// Whatever two layers hold, they are refused or flattened to a sound stream,
// which flattens to itself.
func FuzzFlatten(f *testing.F) {
	f.Add(stream(f, "d/", "d/a=1", "l->d", "h=>d/a"), stream(f, "l/.wh.a=", "d/.wh..wh..opq=", "l/x=2"))
	f.Add(stream(f, "a->b", "b->a"), stream(f, "a/b/../c=1", ".wh.a="))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		flat, err := flattened(lower, upper)
		if err != nil {
			return
		}
		once, err := listing(flat)
		if err != nil {
			t.Fatal(err)
		}
		again, err := flattened(flat)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := listing(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("flattened again (-once +twice):\n%s", diff)
		}
	})
}
