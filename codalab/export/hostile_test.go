package export_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/export"
)

const (
	uuid = "0x00000000000000000000000000000001"
	root = "contents/" + uuid + "/"
)

// entry is an entry of an archive that a test writes.
type entry struct {
	name, text string
	mode       fs.FileMode
	// unlisted leaves it out of the manifest, and raw has its bytes in place of the packed text.
	unlisted bool
	raw      func(*zip.FileHeader) []byte
}

const description = `{"format":"codalab-worksheet","version":1,"worksheet":{"uuid":"` + uuid + `","name":"w"},
	"items":[{"type":"bundle","bundle":"` + uuid + `"}],
	"bundles":[{"uuid":"` + uuid + `","bundle_type":"dataset","state":"ready","metadata":{"name":"d"},"contents":{"type":"directory","path":"` + root + `"}}]}`

// build writes an archive with a description and these entries. Change changes its manifest.
func build(t *testing.T, change func(string) string, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	var lines strings.Builder
	add := func(e entry) {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o644)
		var to io.Writer
		var err error
		text := []byte(e.text)
		if e.raw != nil {
			text = e.raw(h)
			to, err = w.CreateRaw(h)
		} else {
			to, err = w.CreateHeader(h)
		}
		if err == nil {
			_, err = to.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.mode.IsRegular() && !e.unlisted {
			fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256([]byte(e.text)), e.name)
		}
	}
	add(entry{name: root, mode: fs.ModeDir})
	for _, e := range entries {
		add(e)
	}
	manifest := lines.String()
	if change != nil {
		manifest = change(manifest)
	}
	add(entry{name: "manifest-sha256.txt", text: manifest, unlisted: true})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read opens and verifies an archive.
func read(data []byte) (*export.Archive, error) {
	a, err := export.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return a, a.Verify(context.Background(), nil)
}

func described(entries ...entry) []entry {
	return append([]entry{{name: "worksheet.json", text: description}}, entries...)
}

// TestHostileArchivesAreRefused: each of them is refused before anything of it is used.
func TestHostileArchivesAreRefused(t *testing.T) {
	t.Parallel()
	link := entry{name: root + "l", text: "/etc", mode: fs.ModeSymlink}
	for name, test := range map[string]struct {
		entries []entry
		change  func(string) string
		want    string
	}{
		"no worksheet":           {nil, nil, "no worksheet.json"},
		"a name with dots":       {described(entry{name: root + "../../x"}), nil, "leads out"},
		"only dots":              {described(entry{name: ".."}), nil, "leads out"},
		"an absolute name":       {described(entry{name: "/etc/passwd"}), nil, "leads out"},
		"an empty part":          {described(entry{name: root + "a//b"}), nil, "leads out"},
		"a zero byte":            {described(entry{name: root + "a\x00b"}), nil, "leads out"},
		"a name twice":           {described(entry{name: root + "a"}, entry{name: root + "a", unlisted: true}), nil, "there twice"},
		"a file as a directory":  {described(entry{name: root + "a"}, entry{name: root + "a/b"}), nil, "no directory"},
		"a file below a link":    {described(link, entry{name: root + "l/passwd"}), nil, "no directory"},
		"a link in the page's":   {described(entry{name: "index.html", text: "/etc/passwd", mode: fs.ModeSymlink}), nil, "no file"},
		"a long link":            {described(entry{name: root + "l", text: strings.Repeat("x", 5000), mode: fs.ModeSymlink}), nil, "link of 5000 bytes"},
		"a device":               {described(entry{name: root + "d", mode: fs.ModeDevice}), nil, "no file"},
		"a file of no line":      {described(entry{name: root + "a", unlisted: true}), nil, "does not name"},
		"a line of no file":      {described(), func(m string) string { return m + strings.Repeat("0", 64) + "  " + root + "a\n" }, "not at all"},
		"a line twice":           {described(), func(m string) string { return m + m }, "there twice"},
		"a line that is none":    {described(), func(m string) string { return m + "hello\n" }, "has the line"},
		"a digest that lies":     {described(entry{name: root + "a", text: "1"}), func(m string) string { return strings.Replace(m, "6b86", "0000", 1) }, "another digest"},
		"two bundles of a uuid":  {[]entry{{name: "worksheet.json", text: strings.Replace(description, `"bundles":[`, `"bundles":[{"uuid":"`+uuid+`"},`, 1)}}, nil, "there twice"},
		"contents elsewhere":     {[]entry{{name: "worksheet.json", text: strings.Replace(description, `"path":"`+root, `"path":"`, 1)}}, nil, "contents are"},
		"a uuid that is none":    {[]entry{{name: "worksheet.json", text: strings.ReplaceAll(description, uuid, "../x")}}, nil, "is not a uuid"},
		"a run that has not run": {[]entry{{name: "worksheet.json", text: strings.Replace(description, "ready", "running", 1)}}, nil, "in state"},
		"another version":        {[]entry{{name: "worksheet.json", text: strings.Replace(description, `"version":1`, `"version":2`, 1)}}, nil, "has version 2"},
		"a file that is none":    {[]entry{{name: "worksheet.json", text: strings.Replace(description, `"directory","path":"`+root, `"file","path":"`+root+"f", 1)}}, nil, "is a file, but not"},
		"no JSON":                {[]entry{{name: "worksheet.json", text: "["}}, nil, "worksheet.json"},
		"a size that lies": {described(entry{name: root + "a", raw: func(h *zip.FileHeader) []byte {
			h.UncompressedSize64, h.CompressedSize64, h.Method = 1, 1000, zip.Store
			return make([]byte, 1000)
		}}), nil, "refused"},
		"a bomb that says it is small": {described(entry{name: root + "a", text: "", raw: func(h *zip.FileHeader) []byte {
			data := deflated(t, 8<<20)
			h.UncompressedSize64, h.CompressedSize64 = 5, uint64(len(data))
			return data
		}}), nil, "not a valid zip file"},
		"sizes without an end": {described(entry{name: root + "a", raw: func(h *zip.FileHeader) []byte {
			h.UncompressedSize64 = 1 << 63
			return nil
		}}), nil, "states a size"},
	} {
		if _, err := read(build(t, test.change, test.entries...)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v instead of %q", name, err, test.want)
		}
	}
	whole := build(t, nil, described(entry{name: root + "a", text: "1"})...)
	if _, err := read(whole); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		if _, err := read(whole[:n]); err == nil {
			t.Errorf("the first %d bytes of %d are an archive", n, len(whole))
		}
	}
}

// TestDescriptionsOfManyValuesAreRefused: an archive of some kB may state more values than the memory holds.
func TestDescriptionsOfManyValuesAreRefused(t *testing.T) { //nolint:paralleltest // it counts the memory of all
	in := func(metadata string) string { return strings.Replace(description, `{"name":"d"}`, metadata, 1) }
	text := in(`{"name":"` + strings.Repeat(`[[],{\"a\":`, 400_000) + `"}`) // no values
	if a, err := read(build(t, nil, entry{name: "worksheet.json", text: text})); err != nil || len(a.Bundles) != 1 {
		t.Errorf("a long text: %v", err)
	}
	for name, text := range map[string]string{
		"empty":   strings.Replace(description, `"bundles":[`, `"bundles":[`+strings.Repeat("{},", 1_000_000), 1),
		"arrays":  in(`{"a":[` + strings.Repeat("[],", 2_000_000) + `[]]}`),
		"objects": in(`{"a":[` + strings.Repeat("{},", 400_000) + `{}]}`),
		"items":   strings.Replace(description, `"items":[`, `"items":[`+strings.Repeat("{},", 100_000), 1),
		"bundles": strings.Replace(description, `"bundles":[`, `"bundles":[`+strings.Repeat("{},", 100_000), 1),
	} {
		data := build(t, nil, entry{name: "worksheet.json", text: text})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(data)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
			t.Errorf("%s: %d bytes of memory", name, n)
		}
	}
}

// deflated is a number of zeros, packed as an entry of a ZIP.
func deflated(t *testing.T, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	h := &zip.FileHeader{Name: "a", Method: zip.Deflate}
	to, err := w.CreateHeader(h)
	if err == nil {
		_, err = to.Write(make([]byte, n))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.File[0].OpenRaw()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(raw)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestManyEntries: an archive of 100,000 files is read in a moment, also with the deepest names.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	entries := described()
	for i := range 100_000 {
		entries = append(entries, entry{name: fmt.Sprintf("%s%d/%d", root, i%100, i)})
	}
	for i := range 200 {
		entries = append(entries, entry{name: root + strings.Repeat("d/", 2000) + fmt.Sprint(i)})
	}
	a, err := read(build(t, nil, entries...))
	if err != nil || len(a.Bundles) != 1 {
		t.Fatal(err)
	}
}

// TestLongDirectories: cl export writes more names than an upload of a ZIP may have.
func TestLongDirectories(t *testing.T) {
	t.Parallel()
	entries, comment := described(), strings.Repeat("c", 60_000) // of the directory, and nowhere else
	for i := range 1_200 {
		entries = append(entries, entry{name: fmt.Sprintf("%s%d", root, i), raw: func(h *zip.FileHeader) []byte {
			h.Comment, h.Method = comment, zip.Store
			return nil
		}})
	}
	if _, err := read(build(t, nil, entries...)); err != nil {
		t.Fatal(err)
	}
}

// TestLinksAreSentAsLinks: a link out of a bundle is no more than its text.
func TestLinksAreSentAsLinks(t *testing.T) {
	t.Parallel()
	names := map[string]string{"a": "1", `b\c`: "2", "line\nbreak": "3"}
	entries := described(entry{name: root + "l", text: "../../etc/passwd", mode: fs.ModeSymlink})
	change := func(m string) string {
		return strings.NewReplacer("  "+root+"line\nbreak", "  "+root+`line\nbreak`).Replace(m)
	}
	for name, text := range names {
		entries = append(entries, entry{name: root + name, text: text})
	}
	a, err := read(build(t, func(m string) string {
		var lines []string
		for _, line := range strings.Split(strings.TrimSuffix(change(m), "\n"), "\n") {
			if strings.Contains(line, `b\c`) {
				line = `\` + strings.Replace(line, `b\c`, `b\\c`, 1)
			}
			if strings.Contains(line, `line\n`) {
				line = `\` + line
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n") + "\n"
	}, entries...))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := a.OpenContents(t.Context(), codalab.Target{BundleUUID: uuid}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	plain, err := gzip.NewReader(stream)
	if err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(plain)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case h.Typeflag == tar.TypeSymlink && name == "l" && h.Linkname == "../../etc/passwd", h.Typeflag == tar.TypeDir && name == "":
		case h.Typeflag == tar.TypeReg && names[name] == string(text):
			delete(names, name)
		default:
			t.Errorf("%+v with %q", h, text)
		}
	}
	if len(names) > 0 {
		t.Errorf("missing: %v", names)
	}
	if _, err := a.OpenContents(t.Context(), codalab.Target{BundleUUID: "0x2"}, nil); !codalab.IsStatus(err, 404) {
		t.Errorf("contents of a bundle that is not there: %v", err)
	}
}
