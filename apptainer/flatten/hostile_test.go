package flatten

import (
	"archive/tar"
	"bytes"
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
	c := newCover(nil, 3)
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
