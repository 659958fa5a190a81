package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func tarGz(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := io.WriteString(tw, files[name])
		must(t, err)
	}
	must(t, tw.Close())
	must(t, zw.Close())
	return &b
}

func TestStoredContents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file, tree := s.upload("a.json", `{"a": 1}`), s.dataset("tree")
	s.put(tree, "filename=tree.tar.gz&unpack=1", tarGz(t, map[string]string{"sub/f": "1\n2\n3\n4\n5\n", "page.html": "<p>"})).ok()
	odd := s.dataset("odd")
	s.put(odd, "filename=odd.tar.gz&unpack=1", tarGz(t, map[string]string{"say \"a\"\n.txt": "a"})).ok()
	a := s.get("alice", "/bundles/"+file+"/contents/info/").ok()
	if a.text("data", "name") != file || a.value("data", "size") != 8.0 || a.text("data", "type") != "file" || a.text("data", "resolved_target", "bundle_uuid") != file || a.text("meta", "version") != codalab.Version {
		t.Errorf("%s", a.body)
	}
	a = s.get("alice", "/bundles/"+tree+"/contents/info/?depth=1").ok()
	if a.text("data", "contents", 1, "name") != "sub" || strings.Contains(a.body, `"name":"f"`) {
		t.Errorf("%s", a.body)
	}
	for _, test := range []struct {
		path   string
		header map[string]string
		body   string
		want   map[string]string
	}{
		{file + "/contents/blob/?support_redirect=1", nil, `{"a": 1}`, map[string]string{
			"Content-Type": "application/json", "Content-Encoding": "identity", "Content-Disposition": `inline; filename="a.json"`,
			"Target-Type": "file", "X-Codalab-Target-Size": "8", "Access-Control-Allow-Origin": "*",
		}},
		{file + "/contents/blob/", map[string]string{"Accept-Encoding": "gzip"}, `{"a": 1}`, map[string]string{"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}},
		{file + "/contents/blob/", map[string]string{"Accept-Encoding": "br, GZIP; q=0.5"}, `{"a": 1}`, map[string]string{"Content-Encoding": "gzip"}},
		{file + "/contents/blob/", map[string]string{"Accept-Encoding": "gzip;q=0.000"}, `{"a": 1}`, map[string]string{"Content-Encoding": "identity"}},
		{file + "/contents/blob/", map[string]string{"Accept-Encoding": "gzip;q=x"}, `{"a": 1}`, map[string]string{"Content-Encoding": "identity"}},
		{file + "/contents/blob/", map[string]string{"Range": "bytes=2-3"}, `a"`, nil},
		{file + "/contents/blob/", map[string]string{"Range": "bytes=100-200", "Accept-Encoding": "gzip"}, ``, nil},
		{odd + "/contents/blob/say%20%22a%22%0A.txt", nil, "a", map[string]string{"Content-Disposition": `inline; filename="say _a__.txt"`}},
		{tree + "/contents/blob/sub/f?head=1&tail=1&truncation_text=...", nil, "1\n...5\n", map[string]string{"Content-Type": "text/plain", "Content-Disposition": `inline; filename="f"`}},
		{tree + "/contents/blob/sub/f?tail=2", map[string]string{"Accept-Encoding": "gzip"}, "4\n5\n", nil},
		{tree + "/contents/blob/page.html", nil, "<p>", map[string]string{"Content-Type": "text/html", "Content-Security-Policy": "sandbox"}},
	} {
		r := s.request("alice", "GET", "/bundles/"+test.path, nil)
		for k, v := range test.header {
			r.Header.Set(k, v)
		}
		a := s.send(r).ok()
		if a.header.Get("Content-Encoding") == "gzip" {
			a.body = gunzip(t, a.body)
		}
		if a.body != test.body {
			t.Errorf("%s %v: %q", test.path, test.header, a.body)
		}
		for k, v := range test.want {
			if a.header.Get(k) != v {
				t.Errorf("%s: %s is %q", test.path, k, a.header.Get(k))
			}
		}
	}
	a = s.get("alice", "/bundles/"+tree+"/contents/blob/").ok()
	if a.header.Get("Content-Type") != "application/gzip" || a.header.Get("Content-Encoding") != "identity" || a.header.Get("Target-Type") != "directory" ||
		a.header.Get("X-Codalab-Target-Size") != "8205" || a.header.Get("Content-Disposition") != `attachment; filename="tree.tar.gz"` {
		t.Errorf("%v", a.header)
	}
	if got := entries(t, a.body); !cmp.Equal(got, []string{"./", "./page.html", "./sub/", "./sub/f"}) {
		t.Errorf("archive of %v", got)
	}
	s.get("alice", "/bundles/"+tree+"/contents/blob/?head=2").says(400, "Head and tail not supported for directory blobs.")
	for header, sentence := range map[string]string{"bytes=1-2": "Range not supported for directory blobs.", "bytes=-5": "Range must be 'bytes=START-END'."} {
		r := s.request("alice", "GET", "/bundles/"+tree+"/contents/blob/", nil)
		r.Header.Set("Range", header)
		s.send(r).says(400, sentence)
	}
}

func gunzip(t *testing.T, data string) string {
	t.Helper()
	zr, err := gzip.NewReader(strings.NewReader(data))
	must(t, err)
	out, err := io.ReadAll(zr)
	must(t, err)
	return string(out)
}

func entries(t *testing.T, data string) (names []string) {
	t.Helper()
	for tr := tar.NewReader(strings.NewReader(gunzip(t, data))); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		must(t, err)
		names = append(names, h.Name)
	}
}

func TestUploadsByName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var gzipped bytes.Buffer
	zw := gzip.NewWriter(&gzipped)
	_, err := zw.Write([]byte("plain"))
	must(t, err)
	must(t, zw.Close())
	archive, err := io.ReadAll(tarGz(t, map[string]string{"f": "x"}))
	must(t, err)
	for query, test := range map[string]struct {
		body string
		kind string
		size int64
	}{
		"filename=f.gz":                               {gzipped.String(), "file", 5},
		"filename=f.gz&unpack=0":                      {gzipped.String(), "file", int64(gzipped.Len())},
		"filename=d.tgz":                              {string(archive), "directory", 4096 + 1},
		"filename=d.TGZ":                              {string(archive), "file", int64(len(archive))},
		"filename=d.zip":                              {zipped(t, "top/a.txt", "top/.DS_Store", "__MACOSX/._a"), "directory", 3*4096 + 3},
		"filename=d.zip&unpack=0":                     {"PK", "file", 2},
		"filename=d.tar.gz&unpack=0":                  {string(archive), "file", int64(len(archive))},
		"filename=contents&unpack=0":                  {"", "file", 0},
		"filename=x&state_on_success=failed&unpack=0": {"abc", "file", 3},
	} {
		uuid := s.dataset("data")
		s.put(uuid, query, test.body).ok()
		b := s.bundle("alice", uuid)
		if !b.State.Final() || b.Metadata.Int("data_size") != test.size {
			t.Errorf("%s: %s, %v", query, b.State, b.Metadata)
		}
		if got := s.get("alice", "/bundles/"+uuid+"/contents/info/").ok().text("data", "type"); got != test.kind {
			t.Errorf("%s: a %s", query, got)
		}
	}
}

// cut breaks off after its text.
type cut struct{ *strings.Reader }

func (c cut) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestFailedUploadsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	evil := func() io.Reader {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "../evil", Size: 0}))
		must(t, tw.Close())
		return &b
	}
	for name, test := range map[string]struct {
		query    string
		body     any
		status   int
		sentence string
		state    codalab.State
	}{
		"no archive":   {"filename=d.tar.gz", "no archive at all", 400, "not a whole archive", codalab.StateFailed},
		"leads out":    {"filename=d.tar.gz", evil(), 400, "not allowed in an archive", codalab.StateFailed},
		"zip":          {"filename=d.zip", "PK", 400, "not a whole archive", codalab.StateFailed},
		"no gzip":      {"filename=d.gz", "plain", 400, "not a whole packed file", codalab.StateFailed},
		"quota":        {"filename=x&unpack=0", strings.Repeat("x", 2<<20), 400, "disk quota", codalab.StateFailed},
		"cut":          {"filename=x&unpack=0&finalize_on_failure=1", cut{strings.NewReader("half")}, 500, "the connection broke", codalab.StateFailed},
		"cut, retried": {"filename=x&unpack=0&finalize_on_failure=0", cut{strings.NewReader("half")}, 500, "the connection broke", codalab.StateUploading},
	} {
		uuid := s.dataset("data")
		s.call("alice", "PATCH", "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": 100, "bundle_uuid": uuid})).ok()
		s.put(uuid, test.query, test.body).says(test.status, test.sentence)
		b := s.bundle("alice", uuid)
		if b.State != test.state || b.State == codalab.StateFailed && !strings.HasPrefix(b.Metadata.String("failure_message"), "Upload failed: ") {
			t.Errorf("%s: %s, %v", name, b.State, b.Metadata)
		}
		s.get("alice", "/bundles/"+uuid+"/contents/info/").is(404)
		if b.State == codalab.StateUploading {
			s.put(uuid, "filename=x&unpack=0", "whole").ok()
		}
	}
	if used := s.get("alice", "/user").ok().value("data", "attributes", "disk_used"); used != float64(len("whole")+codalab.BlockSize) {
		t.Errorf("%v bytes used", used)
	}
	s.awaitContents(1)
}

func TestUploadThatEndsWithoutContentsCountsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("data")
	s.call("alice", "PATCH", "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": 100, "bundle_uuid": uuid})).ok()
	s.put(uuid, "finalize_on_success=1", "").ok()
	if b := s.bundle("alice", uuid); b.State != codalab.StateReady || b.Metadata.Int("data_size") != 0 {
		t.Errorf("%s, %v", b.State, b.Metadata)
	}
	if used := s.get("alice", "/user").ok().value("data", "attributes", "disk_used"); used != 0.0 {
		t.Errorf("%v bytes used", used)
	}
}

// The worker reports the end of its run, also after an upload that failed.
func TestFailedUploadOfResultsDoesNotEndTheRun(t *testing.T) {
	t.Parallel()
	s, _, uuid := claimedRun(t)
	s.put(uuid, "filename=bundle.tar.gz&finalize_on_failure=1", cut{strings.NewReader("half")}).says(500, "the connection broke")
	if b := s.bundle("alice", uuid); b.State != codalab.StatePreparing {
		t.Errorf("state %s", b.State)
	}
}

func TestUsedUpQuotaStopsNewBundles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	count := func(uuid string) answer {
		return s.call("alice", "PATCH", "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": 1 << 20, "bundle_uuid": uuid}))
	}
	count(s.upload("whole", "x")).ok() // which counts nothing
	count(s.dataset("half")).ok()
	s.create("dataset", "more", "", nil).says(400, "Out of disk quota: ")
}

// A later upload of a run's results ends the earlier one, whose part goes. The earlier one cannot replace the later.
func TestLaterUploadOfResultsEndsTheEarlier(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	archive, err := io.ReadAll(tarGz(t, map[string]string{"stdout": "out", "model": strings.Repeat("m", 100<<10)}))
	must(t, err)
	whole := string(archive)
	for _, ends := range []func(*io.PipeWriter){
		func(send *io.PipeWriter) { _, _ = io.WriteString(send, whole[len(whole)/2:]); _ = send.Close() }, // the client had sent all
		func(send *io.PipeWriter) { _ = send.CloseWithError(io.ErrUnexpectedEOF) },
	} {
		body, send := io.Pipe()
		earlier := make(chan answer, 1)
		go func() {
			earlier <- s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", body)
			_ = body.Close()
		}()
		_, err := io.WriteString(send, whole[:len(whole)/2])
		must(t, err)
		s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "end"})).ok()
		ends(send)
		(<-earlier).says(409, "a later upload of the results of bundle "+uuid+" has begun")
		if used := s.diskUsed(); used != 4096+3+2*codalab.BlockSize {
			t.Errorf("%d bytes used", used)
		}
	}
	s.get("alice", "/bundles/"+uuid+"/contents/blob/model").is(404)
	w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout").ok().body; got != "end" {
		t.Errorf("read %q", got)
	}
}

// A bridge that did not get the answer sends the results again. Meanwhile the owner has used up the quota. If the server
// refused them, the bridge would send the end of the output in their place, and then they are gone.
func TestResultsThatAreSentAgainFitWhateverTheQuota(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	whole := map[string]string{"stdout": "out", "model": strings.Repeat("m", 100<<10)}
	put := func(files map[string]string) answer {
		var n int
		for _, text := range files {
			n += len(text)
		}
		return s.put(uuid, fmt.Sprintf("filename=bundle.tar.gz&finalize_on_success=0&size=%d&entries=%d", n, len(files)+1), tarGz(t, files))
	}
	_, err := s.store.Change(t.Context(), uuid, func(b *store.Bundle) error { b.DataSize = 1 << 20; return nil }) // as a worker's report
	must(t, err)
	s.setQuota(10_000, 1<<40)
	put(whole).says(400, "user disk quota exceeded") // what a worker reports is no reason to take more than the quota
	s.setQuota(1<<30, 1<<40)
	put(whole).ok()
	s.setQuota(10_000, 1<<40)
	put(whole).ok()
	put(map[string]string{"stdout": "out", "model": strings.Repeat("m", 100<<10+1)}).says(400, "user disk quota exceeded")
	w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/model").ok().body; got != whole["model"] {
		t.Errorf("it has %d bytes", len(got))
	}
}

func TestResultsAreReplacedAtOnce(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	for _, text := range []string{"first", "second, longer"} {
		s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0&store=", tarGz(t, map[string]string{"stdout": text})).ok()
	}
	if b := s.bundle("alice", uuid); b.State != codalab.StatePreparing {
		t.Errorf("state %s", b.State)
	}
	w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout").ok().body; got != "second, longer" {
		t.Errorf("read %q", got)
	}
	s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", "late").is(403)
	if used := s.get("alice", "/user").ok().value("data", "attributes", "disk_used"); used != 4096.0+14+2*codalab.BlockSize {
		t.Errorf("%v bytes used", used)
	}
	if n, err := s.store.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("%d directories were left over, %v", n, err)
	}
}
