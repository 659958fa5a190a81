package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// numbered returns n lines of a format with a number.
func numbered(n int, format string) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(format, i)
	}
	return lines
}

// A few hostile kilobytes must cost neither gigabytes nor hours.
func TestHostileLayerIsRefusedEarly(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("/d", 2000)
	chain := numbered(40, "l%[1]d->"+strings.Repeat("./", 2000)+"m%[1]d")
	for i := range chain {
		chain[i] = strings.Replace(chain[i], fmt.Sprintf("m%d", i), fmt.Sprintf("l%d", i+1), 1)
	}
	roomy := smallLimits()
	roomy.NameBytes = 1 << 30
	for _, test := range []struct {
		name   string
		limits Limits
		layer  []string
		words  string
	}{
		{"names that imply many directories", roomy, numbered(20, "%d"+deep+"="), ErrTooLarge.Error()},
		{"many names along long links", roomy, append(chain, numbered(100, "l1/%d=")...), "along symbolic links"},
		{"long paths by short names", smallLimits(), append([]string{"l->" + strings.Repeat("x", 200)}, numbered(9000, "l/%d=")...), ErrTooLarge.Error()},
		{"a path that no system takes", roomy, []string{"l->" + deep, "l" + deep + "/x="}, "a path longer than 4095 bytes"},
		{"a link to nothing", roomy, []string{"l->"}, "symbolic link to nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f, _ := flattenerOf(test.limits, stream(t, test.layer...))
			err := f.Write(t.Context(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v; want %q in it", err, test.words)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("the error is of %d bytes", len(err.Error()))
			}
		})
	}
}

// Implied directories count while layers are read, before there is a tree, so that memory is
// limited.
func TestImpliedDirectoriesCountWhileLayersAreRead(t *testing.T) {
	t.Parallel()
	c := newCover(nil, Limits{Entries: 3, Crowd: 100})
	add := func(name string) error { return c.add(entry{name: name, kind: '0'}) }
	for _, name := range []string{"a/b/c", "a/b/d", "a/e"} {
		must(t, add(name))
	}
	c.nextLayer()
	if err := add("a/b/c"); err != nil {
		t.Errorf("another layer has the same directories: %v", err)
	}
	if err := errors.Join(add("f/x"), add("g/x")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// The time of the programs that write a squashfs grows with the square of the names in a directory:
// a million would take three hours.
func TestNamesInOneDirectoryAreLimited(t *testing.T) {
	t.Parallel()
	const maxCrowd = 1000
	limits := Limits{Entries: 20_000, Bytes: 1, NameBytes: 1 << 20, Crowd: maxCrowd}
	write := func(line func(tw *tar.Writer, i int) error, n int) error {
		r, w := io.Pipe()
		go func() {
			tw := tar.NewWriter(w)
			err := error(nil)
			for i := 0; i < n && err == nil; i++ {
				err = line(tw, i)
			}
			_ = w.CloseWithError(errors.Join(err, tw.Close())) // always nil
		}()
		open := func(context.Context, int) (io.ReadCloser, error) { return r, nil }
		return New(Layers{Number: 1, Open: open}, limits, Root{Mode: 0o755, Newest: 2_000_000_000}).Write(t.Context(), io.Discard)
	}
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name} }
	for name, test := range map[string]struct {
		n     int
		line  func(tw *tar.Writer, i int) error
		words string
	}{
		"one directory":        {maxCrowd + 2, func(tw *tar.Writer, i int) error { return tw.WriteHeader(file(fmt.Sprintf("d/%d", i))) }, `1000 names in the directory "/d"`},
		"as many over several": {maxCrowd + 2, func(tw *tar.Writer, i int) error { return tw.WriteHeader(file(fmt.Sprintf("%d/%d", i%10, i))) }, ""},
		"one, by whiteouts and files": {2 * (maxCrowd + 2), func(tw *tar.Writer, i int) error {
			return tw.WriteHeader(file(fmt.Sprintf("d/%s%d", []string{".wh.", ""}[i%2], i/2)))
		}, `1000 names in the directory "/d"`},
		"one, by symbolic links": {maxCrowd + 101, func(tw *tar.Writer, i int) error {
			if i < 100 {
				return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: fmt.Sprintf("l%d", i), Linkname: "d"})
			}
			return tw.WriteHeader(file(fmt.Sprintf("l%d/%d", i%100, i)))
		}, `1001 names in the directory "/d"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := write(test.line, test.n)
			if (err == nil) != (test.words == "") || err != nil && !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v; want %q", err, test.words)
			}
		})
	}
}

// The program that writes a squashfs finds each directory of a path, and each target of a hard link, by reading the
// names of the directory around it, the newest first.
func TestNamesThatAreReadToFindOthersAreLimited(t *testing.T) {
	t.Parallel()
	limits := Limits{Entries: 10_000, Bytes: 1 << 20, NameBytes: 1 << 20, Crowd: 1000}
	crowd := numbered(800, "a/%d=")
	below, links := make([]string, 2000), make([]string, 2000)
	for i := range below {
		below[i] = fmt.Sprintf("a/s/%d/%d=", i/100, i)
		links[i] = fmt.Sprintf("l%d/%d=>a/0", i/100, i)
	}
	const words = `it would take hours to find the places of its names in such large directories, of which "/a" is one`
	for _, test := range []struct {
		name   string
		layers [][]string
		words  string
	}{
		{"below the oldest of many names", [][]string{slices.Concat([]string{"a/s/x="}, crowd, below)}, words},
		{"the same in two layers, the upper one first", [][]string{append([]string{"a/s/x="}, crowd...), below}, ""},
		{"the same, in the second writing", [][]string{append([]string{"a/s/x="}, crowd...), slices.Concat(below, []string{"new="})}, words},
		{"below the newest of many names", [][]string{slices.Concat(crowd, below)}, ""},
		{"links to one of many names", [][]string{slices.Concat(crowd, links)}, words},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f, _ := flattenerOf(limits, streams(t, test.layers)...)
			if strings.HasSuffix(test.name, "second writing") {
				f.root.Mode = 0o700 // as predicted, and wrong
			}
			err := f.Write(t.Context(), io.Discard)
			if errors.Is(err, ErrAgain) {
				err = f.Write(t.Context(), io.Discard)
			}
			if (err == nil) != (test.words == "") || err != nil && (!errors.Is(err, ErrTooLarge) || !strings.HasSuffix(err.Error(), test.words)) {
				t.Errorf("%v; want %q", err, test.words)
			}
		})
	}
}

func TestManyOpaqueWhiteoutsCostNoMoreThanOne(t *testing.T) {
	t.Parallel()
	layer := slices.Concat(numbered(4000, "d/%d="), slices.Repeat([]string{"d/", "d/.wh..wh..opq="}, 2000))
	out, _, err := flattened(stream(t, "d/", "d/hidden=", "d/k/hidden="), stream(t, layer...))
	must(t, err)
	if got := mustList(t, out); len(got) != 4001 {
		t.Errorf("%d names are left, want d and 4000 files", len(got))
	}
}

// Some tools accept these, and write results that others cannot read.
func TestAttributesThatNoFileCanHaveAreRefused(t *testing.T) {
	t.Parallel()
	attribute := func(name, value string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: "x", PAXRecords: map[string]string{attributePrefix + name: value}}
	}
	device := func(major, minor int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeChar, Name: "x", Devmajor: major, Devminor: minor}
	}
	many := attribute("user.n", "")
	for i := range 5000 {
		many.PAXRecords[fmt.Sprintf("%suser.some-long-name-%d", attributePrefix, i)] = "v"
	}
	for name, test := range map[string]struct {
		hdr     tar.Header
		refused string
	}{
		"name of most":   {attribute("user."+strings.Repeat("n", 250), "v"), ""},
		"longer name":    {attribute("user."+strings.Repeat("n", 251), "v"), "an extended attribute"},
		"no name":        {attribute("user.", "v"), "an extended attribute"},
		"dot at its end": {attribute("user.a.", "v"), ""},
		"value of most":  {attribute("user.a", strings.Repeat("v", 64<<10)), ""},
		"longer value":   {attribute("user.a", strings.Repeat("v", 64<<10+1)), "an extended attribute"},
		"many":           {many, "an extended attribute"},
		"last device":    {device(4095, 1<<20-1), ""},
		"major":          {device(4096, 0), "the device number 4096:0"},
		"minor":          {device(0, 1<<20), "the device number 0:1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			must(t, errors.Join(w.WriteHeader(&test.hdr), w.Close()))
			_, _, err := flattened(buf.Bytes())
			if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%v; want %q", err, test.refused)
			}
		})
	}
}
