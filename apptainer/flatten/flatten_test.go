package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
			flat, _, err := flattened(streams(t, tt.layers)...)
			must(t, err)
			got, err := listing(flat)
			must(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLayersThatCannotBeFlattenedAreRefusedInWords(t *testing.T) {
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
			if _, _, err := flattened(streams(t, tt.layers)...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestAttributesOfTheImageAreKept(t *testing.T) {
	t.Parallel()
	const capability = attributePrefix + "security.capability"
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o1777, Uid: 3_000_000_000, Gid: 7},
		{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600},
		{
			Typeflag: tar.TypeReg, Name: "ping", Mode: 0o4755,
			PAXRecords: map[string]string{capability: "\x01\x00\x00\x02", attributePrefix + "user.overlay.opaque": "y", attributePrefix + "user.note": "a=b\n"},
		},
	}
	for _, hdr := range headers {
		must(t, w.WriteHeader(&hdr))
	}
	must(t, w.Close())
	flat, _, err := flattened(layer.Bytes())
	must(t, err)
	became := map[string]*tar.Header{}
	r := tar.NewReader(bytes.NewReader(flat))
	for range headers {
		hdr, err := r.Next()
		must(t, err)
		became[hdr.Name] = hdr
	}
	for _, want := range headers {
		got := became[want.Name]
		if got == nil || got.Mode != want.Mode || got.Uid != want.Uid || got.Gid != want.Gid || got.Devmajor != want.Devmajor || got.Devminor != want.Devminor {
			t.Fatalf("%+v became %+v", want, got)
		}
		for _, name := range []string{"security.capability", "user.note"} {
			if record := attributePrefix + name; got.PAXRecords[record] != want.PAXRecords[record] {
				t.Errorf("%s has the attribute %s %q", got.Name, name, got.PAXRecords[record])
			}
		}
		if got.PAXRecords[attributePrefix+"user.overlay.opaque"] != "" {
			t.Errorf("%s has an attribute that overlayfs obeys", got.Name)
		}
	}
}

func TestLayersAreReadOnceWhereThePredictionHolds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		layers   [][]string
		opened   []int
		attempts int
	}{
		{"ordinary layers", [][]string{{"d/", "d/a=1", "b=1", "e=1", "c=>e"}, {"d/.wh.a=", "b=2", "n/m=2"}, {"d/", "d/.wh..wh..opq=", "d/x=3"}}, []int{1, 1, 1}, 1},
		{"a hidden file that a link shows", [][]string{{"a=1", "b=>a"}, {"a=2"}}, []int{2, 1}, 1},
		{"a link to a lower file", [][]string{{"a=1"}, {"b=>a"}}, []int{1, 1}, 1},
		{"a link to a lower file that is replaced", [][]string{{"a=1"}, {"b=>a"}, {"a=3"}}, []int{2, 1, 1}, 1},
		{"the same name twice", [][]string{{"x=1"}, {"a=1", "a=2"}}, []int{2, 2}, 2},
		{"names that lead through a lower link", [][]string{{"usr/", "bin->usr"}, {"bin/x=1"}}, []int{1, 2}, 2},
		{"a root of another mode", [][]string{{"./", "a=1"}}, []int{2}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, got, err := flattened(streams(t, tt.layers)...)
			must(t, err)
			if diff := cmp.Diff(tt.opened, got.opened); diff != "" || got.attempts != tt.attempts {
				t.Errorf("%d attempts, want %d; layers opened (-want +got):\n%s", got.attempts, tt.attempts, diff)
			}
		})
	}
}

func TestFileNewerThanPredictedIsFlattenedAgain(t *testing.T) {
	t.Parallel()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	must(t, errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "new", ModTime: time.Unix(2_000_000_001, 0)}), w.Close()))
	f, _ := flattenerOf(smallLimits(), layer.Bytes())
	if err := f.Write(context.Background(), io.Discard); !errors.Is(err, ErrAgain) || f.Root().Newest != 2_000_000_001 {
		t.Fatalf("error %v, root %+v", err, f.Root())
	}
	must(t, f.Write(context.Background(), io.Discard))
}

func TestLimitsBoundTheUnpackedImage(t *testing.T) {
	t.Parallel()
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("f%d=", i)
	}
	for name, tt := range map[string]struct {
		limits Limits
		layer  []byte
	}{
		"entries":        {Limits{100, 1 << 30, 1 << 30, 1 << 20}, stream(t, many...)},
		"bytes":          {Limits{1 << 30, 100, 1 << 30, 1 << 20}, stream(t, "a="+strings.Repeat("x", 101))},
		"names":          {Limits{1 << 30, 1 << 30, 100, 1 << 20}, stream(t, strings.Repeat("x", 101)+"=")},
		"implied names":  {Limits{100, 1 << 30, 1 << 30, 1 << 20}, stream(t, strings.Repeat("x/", 200)+"y=1")},
		"padding":        {Limits{1 << 30, 1 << 30, 1 << 30, 1 << 20}, append(stream(t, "a=1"), make([]byte, maxPadding+1<<20)...)},
		"in both layers": {Limits{1 << 30, 7, 1 << 30, 1 << 20}, stream(t, "a=1234")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := flattenerOf(tt.limits, tt.layer, tt.layer)
			if err := f.Write(context.Background(), io.Discard); !errors.Is(err, ErrTooLarge) {
				t.Errorf("error %v, want ErrTooLarge", err)
			}
		})
	}
}

// An error may wrap io.EOF, as net/http's do.
func TestLayerThatBreaksOffIsNotAtItsEnd(t *testing.T) {
	t.Parallel()
	whole := stream(t, "a=1")
	for name, sent := range map[string]int{"in its tar": 700, "behind its tar": len(whole)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broke := fmt.Errorf("ask for the rest: %w", io.EOF)
			f := New(Layers{Number: 1, Open: func(context.Context, int) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(bytes.NewReader(whole[:sent]), iotest.ErrReader(broke))), nil
			}}, smallLimits(), Root{Mode: 0o755})
			if err := f.Write(context.Background(), io.Discard); !errors.Is(err, broke) {
				t.Errorf("error %v, want %v", err, broke)
			}
		})
	}
}
