package export

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

const someUUID = "0x00000000000000000000000000000001"

// writeTar writes entries as a server sends the contents of a directory.
func writeTar(w io.Writer, entries ...tar.Header) error {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	noise := rand.NewChaCha8([32]byte{})
	for _, h := range entries {
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := io.CopyN(tw, noise, h.Size); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// newContents returns an exporter from a server that sends a bundle with these entries, and of a part only the text "again".
// It writes to out.
func newContents(t *testing.T, out io.Writer, entries ...tar.Header) *Exporter {
	t.Helper()
	var ended atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/contents/blob/") {
			if !ended.Load() {
				t.Errorf("%s is read while the other contents are", r.URL.Path)
			}
			w.Header().Set("Target-Type", "file")
			_, _ = io.WriteString(w, "again") // the test sees it
			return
		}
		w.Header().Set("Target-Type", "directory")
		if err := writeTar(w, entries...); err != nil {
			t.Error(err)
		}
		ended.Store(true)
	}))
	t.Cleanup(site.Close)
	from, err := client.New(site.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := newExporter(from, client.Worksheet{}, Options{})
	e.archive = newArchive(out)
	return e
}

func ready() *Bundle {
	return &Bundle{UUID: someUUID, Type: codalab.TypeDataset, State: codalab.StateReady, Metadata: codalab.Metadata{"name": "d"}}
}

// TestHardLinksAreCopiedAtTheEnd: while a file is copied, nobody reads the other contents. Pipes are named.
func TestHardLinksAreCopiedAtTheEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := newContents(t, &out,
		tar.Header{Typeflag: tar.TypeReg, Name: "./a", Size: 5}, tar.Header{Typeflag: tar.TypeLink, Name: "./twin", Linkname: "./a"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "./l", Linkname: "/etc"}, tar.Header{Typeflag: tar.TypeLink, Name: "./m", Linkname: "./l"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "./p"}, tar.Header{Typeflag: tar.TypeLink, Name: "./q", Linkname: "./p"},
		tar.Header{Typeflag: tar.TypeReg, Name: "./large", Size: 32 << 20})
	b := ready()
	if err := e.contents(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := e.archive.close(e.at); err != nil {
		t.Fatal(err)
	}
	if b.LeftOut != "" || b.Note != `"p" and 1 more are left out: they are pipes or devices` {
		t.Errorf("left out %q, note %q", b.LeftOut, b.Note)
	}
	z, err := tarstream.OpenZip(bytes.NewReader(out.Bytes()), int64(out.Len()), mostDirectory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, strings.TrimPrefix(f.Name, contentsName+someUUID))
	}
	if got := strings.Join(names, " "); got != "/ /a /l /m /large /twin "+manifestName {
		t.Errorf("the archive has %s", got)
	}
}

// TestArchiveHasNoMoreNamesThanAreRead: the bytes of the directory are counted as package zip writes them, at least, and a
// bundle beyond the bound is left out.
func TestArchiveHasNoMoreNamesThanAreRead(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := newContents(t, &out, tar.Header{Typeflag: tar.TypeReg, Name: "a"}, tar.Header{Typeflag: tar.TypeReg, Name: "b"}, tar.Header{Typeflag: tar.TypeReg, Name: "c"})
	e.mostDirectory = 300 // the directory and two files
	for range 2 {
		b := ready()
		if err := e.contents(t.Context(), b); err != nil || b.Contents != nil || !strings.Contains(b.LeftOut, "names of all files") {
			t.Errorf("%+v, %v", b, err)
		}
	}
	if err := e.archive.close(e.at); err != nil {
		t.Fatal(err)
	}
	if e.archive.entries != 4 {
		t.Errorf("%d entries", e.archive.entries)
	}
	if n := int64(out.Len() - bytes.Index(out.Bytes(), []byte("PK\x01\x02"))); n > e.archive.index+22 {
		t.Errorf("the directory has %d bytes, and was counted as %d", n, e.archive.index)
	}
}

// TestPathsOnThePageStayInTheBundle: what leads out of a bundle leads nowhere else in the archive.
func TestPathsOnThePageStayInTheBundle(t *testing.T) {
	t.Parallel()
	for subpath, want := range map[string]string{"": "", "/": "", "/a/b": "a/b", "../../index.html": "index.html", "/a/../../..": "", "a//b/": "a/b"} {
		if got := inside(subpath); got != want {
			t.Errorf("%q is %q", subpath, got)
		}
	}
}

// TestWorksheetsThatNobodyCouldReadAreRefused: Write does not begin with one that Open refuses.
func TestWorksheetsThatNobodyCouldReadAreRefused(t *testing.T) {
	t.Parallel()
	text := func(n, size int) (d Description) {
		for range n {
			d.Items = append(d.Items, Item{Type: codalab.ItemMarkup, Value: strings.Repeat("a", size)})
		}
		return d
	}
	for name, test := range map[string]struct {
		Description
		large bool
	}{
		"many items":     {text(mostItems, 1), false},
		"too many items": {text(mostItems+1, 1), true},
		"too many bytes": {text(65, 1<<20), true},
		"too many values": {Description{Bundles: []Bundle{
			{UUID: someUUID, Metadata: codalab.Metadata{"a": make([]int, mostValues)}},
		}}, true},
	} {
		err := test.checkRoom()
		if _, large := errors.AsType[*TooLargeError](err); large != test.large || err != nil && !large {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRemarksAreBounded: a worksheet that has room before its contents are read has room afterwards, whatever their names are.
func TestRemarksAreBounded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"p", strings.Repeat("p", 4000), strings.Repeat("\x00", 20), strings.Repeat("\\", 90), "\u2028\u2028\u2028"} {
		for n := range 3 {
			u := unpacker{skipped: map[string]bool{}}
			for i := range n {
				u.skip(name + strings.Repeat("0", i))
			}
			text, err := json.Marshal(u.note())
			if err != nil || len(text) > mostRemark || (n > 0) == (u.note() == "") {
				t.Errorf("%d bytes, %v: %s", len(text), err, text)
			}
		}
	}
}

// TestProgressHasATotal: what is told of a bundle is the size that the server states, whatever the files have.
func TestProgressHasATotal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		metadata    codalab.Metadata
		total, sum  int64
		state       codalab.State
		withoutData bool
	}{
		"more than its files":      {codalab.Metadata{"data_size": 4096 + 300}, 4396, 4396, codalab.StateReady, false},
		"less than its files":      {codalab.Metadata{"data_size": 10}, 10, 10, codalab.StateReady, false},
		"a size that is not known": {codalab.Metadata{}, -1, 300, codalab.StateReady, false},
		"a run without results":    {codalab.Metadata{}, 0, 0, codalab.StateFailed, false},
		"nothing is wanted":        {codalab.Metadata{"data_size": 10}, 0, 0, codalab.StateReady, true},
	} {
		e := newContents(t, io.Discard, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 100}, tar.Header{Typeflag: tar.TypeReg, Name: "b", Size: 200})
		e.options.NoContents = test.withoutData
		b := Bundle{UUID: someUUID, Type: codalab.TypeRun, State: test.state, Metadata: test.metadata}
		e.Bundles = []Bundle{b}
		if got := e.Size(); got != test.total {
			t.Errorf("%s: the total is %d", name, got)
		}
		var sum int64
		e.tell = func(n int64) { sum += n }
		if err := e.contents(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if sum != test.sum {
			t.Errorf("%s: %d bytes came", name, sum)
		}
	}
}
