package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// resultsEntry is an entry of a request with results.
type resultsEntry struct{ name, data string }

// resultsTar is a tar stream. A fuzz target may call it, as the functions below.
func resultsTar(entries ...resultsEntry) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var err error
	for _, e := range entries {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o600, Size: int64(len(e.data))}))
		_, failed := io.WriteString(w, e.data)
		err = errors.Join(err, failed)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return &b
}

// resultsIndex is the list of a request.
func resultsIndex(of ...codalab.ResultsOf) resultsEntry {
	data, err := json.Marshal(codalab.ResultsList{Bundles: of})
	if err != nil {
		panic(err)
	}
	return resultsEntry{codalab.ResultsIndex, string(data)}
}

// resultsBody is a request whose archives have one file, stdout, with the bundle's UUID.
func resultsBody(of ...codalab.ResultsOf) string {
	entries := []resultsEntry{resultsIndex(of...)}
	for _, one := range of {
		entries = append(entries, resultsEntry{codalab.ResultsName(one.UUID), archiveOf(one.UUID)})
	}
	return resultsTar(entries...).String()
}

// archiveOf is a gzipped archive with a file stdout.
func archiveOf(text string) string {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	_, err := zw.Write(resultsTar(resultsEntry{"./stdout", text}).Bytes())
	if err = errors.Join(err, zw.Close()); err != nil {
		panic(err)
	}
	return b.String()
}

// claimsOf makes a site with a worker of alice's that has claimed n runs, and returns what a request with their results lists.
func claimsOf(t *testing.T, n int) (s *site, w *testWorker, of []codalab.ResultsOf) {
	t.Helper()
	s = newSite(t)
	s.setQuota(1<<30, 1<<40)
	w = s.worker("alice", "w", "cpu")
	w.info.CPUs, w.info.MemoryBytes = 1<<20, 1<<60
	for range n {
		s.run("x", cpuQueue)
	}
	told := map[string]bool{}
	for range 2000 {
		for _, m := range w.checkIn() {
			if m.Type == codalab.MessageRun && !told[m.Bundle.UUID] {
				told[m.Bundle.UUID] = true
				of = append(of, codalab.ResultsOf{UUID: m.Bundle.UUID, Identity: m.Bundle.Identity().Lasting()})
				if !w.startBundle(m.Bundle.UUID) {
					t.Fatal("the run is not the worker's")
				}
			}
		}
		if len(of) == n {
			return s, w, of
		}
	}
	t.Fatalf("the worker was offered %d runs, want %d", len(of), n)
	return nil, nil, nil
}

// sendsResults sends a request, and returns the statuses of its answers.
func (w *testWorker) sendsResults(body any) (statuses []int) {
	w.t.Helper()
	var got codalab.ResultsAnswers
	w.call(w.user, http.MethodPost, "/workers/"+w.id+"/results", body).ok().decode(&got)
	for _, one := range got.Bundles {
		statuses = append(statuses, one.Status)
		if (one.Status == 0) != (one.Message == "") {
			w.t.Errorf("%+v", one)
		}
	}
	return statuses
}

// stdout returns the standard output that the server has of a bundle; empty if it has none.
func (s *site) stdout(uuid string) string {
	s.t.Helper()
	b, err := s.store.Bundle(s.t.Context(), uuid)
	must(s.t, err)
	if b.Contents == "" {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "bundles", b.Contents, store.ContentsPath, "stdout"))
	must(s.t, err)
	return string(data)
}

func TestResultsInOneRequestAreStoredAsByUploads(t *testing.T) {
	t.Parallel()
	s, w, of := claimsOf(t, 3)
	s.put(of[2].UUID, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "x"})).ok()
	for range 2 { // its answer may be lost
		if got := w.sendsResults(resultsBody(of[0], of[1])); !cmp.Equal(got, []int{0, 0}) {
			t.Errorf("answers %v", got)
		}
	}
	for _, one := range of[:2] {
		if got := s.stdout(one.UUID); got != one.UUID {
			t.Errorf("%s has %q", one.UUID, got)
		}
	}
	sent, alone := s.bundle("alice", of[0].UUID), s.bundle("alice", of[2].UUID)
	if sent.State != alone.State || sent.Metadata.Int("data_size") == 0 || sent.Metadata.Int("data_size") != alone.Metadata.Int("data_size")+33 {
		t.Errorf("%s %v, and by an upload %s %v", sent.State, sent.Metadata, alone.State, alone.Metadata)
	}
	if diff := cmp.Diff(s.history("alice", of[2].UUID), s.history("alice", of[0].UUID)[:len(s.history("alice", of[2].UUID))]); diff != "" {
		t.Errorf("history (-upload +together):\n%s", diff)
	}
}

func TestResultsAreTakenFromTheRunsWorkerAlone(t *testing.T) {
	t.Parallel()
	s, w, of := claimsOf(t, 3)
	mine, another, ended := of[0], of[1], of[2]
	another.Identity = strings.Repeat("0", 16)
	code := 0
	done := reportOf(ended.UUID, codalab.StateFinalizing)
	done.ExitCode = &code
	w.told(codalab.MessageMarkFinalized, done)
	staged := codalab.ResultsOf{UUID: s.run("x", map[string]any{"request_queue": "none"})}
	staged.Identity = s.bundle("alice", staged.UUID).Identity().Lasting()
	missing := codalab.ResultsOf{UUID: "0x" + strings.Repeat("9", 32), Identity: mine.Identity}
	unknown := another
	unknown.Identity = ""
	if got, want := w.sendsResults(resultsBody(another, ended, missing, staged, mine)), []int{409, 403, 404, 403, 0}; !cmp.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	if got := w.sendsResults(resultsBody(unknown)); !cmp.Equal(got, []int{409}) {
		t.Errorf("without an identity: %v", got)
	}
	for _, one := range []codalab.ResultsOf{another, ended, staged} {
		if got := s.stdout(one.UUID); got != "" {
			t.Errorf("%s has %q", one.UUID, got)
		}
	}
	s.share("alice", "bundle", mine.UUID, "public", store.PermissionRead)
	for _, other := range []struct {
		worker *testWorker
		want   []int
	}{{s.worker("alice", "w2", "cpu"), []int{403, 403}}, {s.worker("bob", "w", "cpu"), []int{404, 403}}, {s.worker("root", "w", "cpu"), []int{403, 403}}} {
		unchanged := of[1]
		if got := other.worker.sendsResults(resultsBody(unchanged, mine)); !cmp.Equal(got, other.want) {
			t.Errorf("worker %s of %s: %v, want %v", other.worker.id, other.worker.user, got, other.want)
		}
	}
	if got := s.stdout(mine.UUID); got != mine.UUID {
		t.Errorf("it has %q", got)
	}
	if got := s.contentsOnDisk(s.dir); got != 1 {
		t.Errorf("%d contents on the disk, want 1", got)
	}
}

// Each has its own verdict: one archive that is broken, and one that is too large for the quota, are no fault of the others.
func TestResultsThatAreRefusedLeaveTheOthers(t *testing.T) {
	t.Parallel()
	s, w, of := claimsOf(t, 4)
	s.setQuota(25_000, 1<<40)
	body := resultsTar(resultsIndex(of...),
		resultsEntry{codalab.ResultsName(of[0].UUID), "not an archive"},
		resultsEntry{codalab.ResultsName(of[1].UUID), archiveOf("first")},
		resultsEntry{codalab.ResultsName(of[2].UUID), archiveOf(strings.Repeat("x", 30_000))},
		resultsEntry{codalab.ResultsName(of[3].UUID), archiveOf("last") + "more"})
	got := w.sendsResults(body)
	if want := []int{400, 0, 400, 400}; !cmp.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	for i, want := range []string{"", "first", "", ""} {
		if has := s.stdout(of[i].UUID); has != want {
			t.Errorf("%d has %q, want %q", i, has, want)
		}
	}
	if used := s.used("alice"); used <= 0 || used > 25_000 {
		t.Errorf("%d bytes are used", used)
	}
	s.setQuota(1<<30, 1<<40)
	if again := w.sendsResults(resultsBody(of[0], of[2])); !cmp.Equal(again, []int{0, 0}) {
		t.Errorf("later: %v", again)
	}
}

// hookedBody calls a function once, when the server wants more than the first bytes of a body.
type hookedBody struct {
	io.ReadCloser
	first int
	then  func()
}

func (b *hookedBody) Read(p []byte) (int, error) {
	if b.first == 0 && b.then != nil {
		b.then()
		b.then = nil
	}
	if b.then != nil {
		p = p[:min(len(p), b.first)]
	}
	n, err := b.ReadCloser.Read(p)
	b.first = max(0, b.first-n)
	return n, err
}

// While a request comes, somebody else sends the results of one of its runs. The request goes on by its connection.
func TestLaterUploadOfOneRunLeavesTheOthersOfItsRequest(t *testing.T) {
	t.Parallel()
	s, _, of := claimsOf(t, 4)
	padding := make([]byte, 64<<10) // more than the server reads ahead
	_, _ = rand.Read(padding)
	entries := []resultsEntry{resultsIndex(of...)}
	for _, one := range of {
		entries = append(entries, resultsEntry{codalab.ResultsName(one.UUID), archiveOf("first" + string(padding))})
	}
	body := resultsTar(entries...)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &hookedBody{r.Body, body.Len() * 3 / 8, func() {
			for _, i := range []int{0, 1, 3} { // one that is unpacked, one that is being unpacked, and one that has not come
				s.put(of[i].UUID, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "later"})).ok()
			}
		}}
		s.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/rest/workers/w/results", bytes.NewReader(body.Bytes()))
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+s.tokens["alice"])
	a, err := web.Client().Do(r)
	must(t, err)
	var got codalab.ResultsAnswers
	must(t, errors.Join(json.NewDecoder(a.Body).Decode(&got), a.Body.Close()))
	for i, want := range []int{409, 409, 0, 409} {
		text := map[int]string{0: "first" + string(padding), 409: "later"}[want]
		if got.Bundles[i].Status != want || s.stdout(of[i].UUID) != text {
			t.Errorf("%d: %+v, want %d; %d bytes are stored", i, got.Bundles[i], want, len(s.stdout(of[i].UUID)))
		}
	}
}

// The client of a request may leave when it has sent all of it. The server may have to ask for the quota after that.
func TestResultsAreStoredWithoutTheirClient(t *testing.T) {
	t.Parallel()
	s, _, of := claimsOf(t, 2)
	body := resultsTar(resultsIndex(of...), // the second one's failure makes the server ask again
		resultsEntry{codalab.ResultsName(of[0].UUID), archiveOf("first")}, resultsEntry{codalab.ResultsName(of[1].UUID), "not an archive"})
	ctx, leave := context.WithCancel(t.Context())
	r := s.request("alice", http.MethodPost, "/workers/w/results", &hookedBody{io.NopCloser(body), body.Len() - 512, leave})
	s.send(r.WithContext(ctx))
	if got := s.stdout(of[0].UUID); got != "first" {
		t.Errorf("it has %q", got)
	}
}

func TestBrokenRequestsWithResultsStoreNothing(t *testing.T) {
	t.Parallel()
	s, w, of := claimsOf(t, 2)
	one, two := resultsEntry{codalab.ResultsName(of[0].UUID), archiveOf("x")}, resultsEntry{codalab.ResultsName(of[1].UUID), archiveOf("x")}
	index := resultsIndex(of...)
	whole := resultsTar(index, one, two).Bytes()
	many := make([]codalab.ResultsOf, codalab.MostResults+1)
	for i := range many {
		many[i].UUID = fmt.Sprintf("0x%032x", i)
	}
	for name, test := range map[string]struct {
		body   any
		status int
		says   string
	}{
		"no tar":        {strings.NewReader("x"), 400, "Invalid results"},
		"nothing":       {strings.NewReader(""), 400, "Invalid results"},
		"no list":       {resultsTar(one, two), 400, "in its order"},
		"a broken list": {resultsTar(resultsEntry{codalab.ResultsIndex, "{"}), 400, "Invalid results"},
		"twice":         {resultsTar(resultsIndex(of[0], of[0]), one, one), 400, "is given twice"},
		"another order": {resultsTar(index, two, one), 400, "in its order"},
		"too few":       {resultsTar(index, one), 400, "Invalid results"},
		"too many":      {resultsTar(resultsIndex(of[0]), one, two), 400, "in its order"},
		"cut off":       {bytes.NewReader(whole[:len(whole)-1500]), 400, "Invalid results"},
		"51":            {resultsBody(many...), 413, "A worker may send the results of 50 bundles at once"},
		"large":         {resultsTar(index, one, resultsEntry{two.name, strings.Repeat("x", codalab.MostResultsBytes)}), 413, "bytes of results at once"},
		"a large list":  {resultsTar(resultsEntry{codalab.ResultsIndex, strings.Repeat(" ", codalab.MostResultsBytes)}), 400, "Invalid results"},
	} {
		a := s.call("alice", http.MethodPost, "/workers/w/results", test.body)
		a.what = name
		a.says(test.status, test.says)
	}
	for _, run := range of {
		if got := s.stdout(run.UUID); got != "" {
			t.Errorf("%s has %q", run.UUID, got)
		}
	}
	if got := s.contentsOnDisk(s.dir); got != 0 {
		t.Errorf("%d contents on the disk", got)
	}
	if got := w.sendsResults(bytes.NewReader(whole)); !cmp.Equal(got, []int{0, 0}) {
		t.Errorf("the whole one: %v", got)
	}
	w.sendsResults(resultsTar(resultsIndex()))
}

func TestAsManyResultsAsARequestMayHave(t *testing.T) {
	t.Parallel()
	s, w, of := claimsOf(t, codalab.MostResults)
	if got := w.sendsResults(resultsBody(of...)); !cmp.Equal(got, make([]int, codalab.MostResults)) {
		t.Errorf("answers %v", got)
	}
	for _, one := range of {
		if got := s.stdout(one.UUID); got != one.UUID {
			t.Errorf("%s has %q", one.UUID, got)
		}
	}
}
