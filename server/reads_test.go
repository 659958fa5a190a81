package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// serve answers reads from dir, as a worker does that holds the bundle, until
// the test ends.
func (w *testWorker) serve(t *testing.T, dir string, run codalab.RunReport) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-done
		must(t, root.Close())
	})
	go func() {
		defer close(done)
		in := w.info
		in.Reports = []codalab.RunReport{run}
		for ctx.Err() == nil {
			rec := httptest.NewRecorder()
			w.handler.ServeHTTP(rec, w.request(w.user, http.MethodPost, "/workers/"+w.id+"/checkin", in).WithContext(ctx))
			messages, _, err := codalab.ParseMessages(rec.Body.Bytes())
			if err != nil {
				continue
			}
			for _, m := range messages {
				if m.Type == codalab.MessageRead {
					w.answer(ctx, root, m)
				}
			}
		}
	}()
}

func (w *testWorker) answer(ctx context.Context, root *os.Root, m codalab.Message) {
	reply, stream := contents.Reply(ctx, root, codalab.Target{BundleUUID: m.UUID, Subpath: m.Path}, *m.ReadArgs, nil)
	id := strconv.FormatInt(m.SocketID, 10)
	if stream == nil {
		w.call(w.user, http.MethodPost, "/workers/"+w.id+"/reply/"+id, reply).ok()
		return
	}
	w.call(w.user, http.MethodPost, "/workers/"+w.id+"/reply_data/"+id+"?header_message=%7B%7D", stream).ok()
	must(w.t, stream.Close())
}

func TestRunningBundleIsReadByItsWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := s.upload("data", "input")
	uuid := s.run("x", cpuQueue, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
	w := s.worker("alice", "w", "cpu")
	w.takes()
	s.get("alice", "/bundles/"+uuid+"/contents/info/").says(404, "hasn't started running yet, files not available")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "stdout"), []byte("0123456789\nend\n"), 0o644))
	w.serve(t, dir, reportOf(uuid, codalab.StateRunning))
	s.await(uuid, codalab.StateRunning)
	a := s.get("alice", "/bundles/"+uuid+"/contents/info/?depth=1").ok()
	if a.text("data", "name") != uuid || a.text("data", "contents", 0, "name") != "stdout" || a.text("data", "resolved_target", "bundle_uuid") != uuid {
		t.Errorf("%s", a.body)
	}
	for path, want := range map[string]string{"stdout": "0123456789\nend\n", "stdout?tail=1": "end\n", "in": "input"} {
		a := s.get("alice", "/bundles/"+uuid+"/contents/blob/"+path).ok()
		if a.body != want || a.header.Get("Content-Encoding") != "identity" {
			t.Errorf("%s: %q", path, a.body)
		}
	}
	r := s.request("alice", "GET", "/bundles/"+uuid+"/contents/blob/stdout", nil)
	r.Header.Set("Range", "bytes=3-5")
	r.Header.Set("Accept-Encoding", "gzip")
	if a := s.send(r).ok(); gunzip(t, a.body) != "345" || a.header.Get("Content-Encoding") != "gzip" || a.header.Get("X-Codalab-Target-Size") != "15" {
		t.Errorf("%v", a.header)
	}
	if got := entries(t, s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok().body); len(got) != 2 {
		t.Errorf("archive of %v", got)
	}
	s.get("alice", "/bundles/"+uuid+"/contents/info/nosuch").says(404, "Path 'nosuch' in bundle "+uuid+" not found")
}

func TestWorkerThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		got := make(chan answer)
		start := time.Now()
		go func() { got <- s.get("alice", "/bundles/"+uuid+"/contents/info/") }()
		for range 6 {
			w.checkIn(reportOf(uuid, codalab.StateRunning))
			time.Sleep(5 * time.Second)
		}
		(<-got).says(404, "Worker w, which has bundle "+uuid+", did not reply within 1m0s.")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// What needs a worker that is away fails early, and says so. CodaLab's own cl needs the status.
func TestWorkerThatIsAwayIsSaidToBeAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		seen := time.Now()
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		time.Sleep(6 * time.Second)
		fails := func(what string, within time.Duration, ask func() answer) {
			t.Helper()
			start := time.Now()
			a := ask()
			silent := time.Since(seen).Truncate(time.Second).String()
			a.says(404, "Worker w, which has bundle "+uuid+", has not been heard of for "+silent+". The run itself may go on. Its files can be read and written when the worker is back.")
			if took := time.Since(start); took != within || a.header.Get("Retry-After") == "" {
				t.Errorf("%s: it took %v, headers %v", what, took, a.header)
			}
		}
		list := func() answer { return s.get("alice", "/bundles/"+uuid+"/contents/info/") }
		write := func() answer {
			return s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"uuid": uuid, "type": "write", "subpath": "f", "string": "x"}))
		}
		netcat := func() answer {
			return s.call("alice", "PUT", "/bundles/"+uuid+"/netcat/80/", map[string]string{"message": "x"})
		}
		fails("list", 15*time.Second, list)
		fails("write", 15*time.Second, write)
		fails("netcat", 15*time.Second, netcat)
		time.Sleep(time.Until(seen.Add(time.Minute + time.Nanosecond)))
		fails("list", 0, list)
		fails("write", 0, write)
		fails("netcat", 0, netcat)
		s.await(uuid, codalab.StateWorkerOffline)
		fails("list of an offline run", 0, list)
	})
}

// The message may have been lost in the answer to a check-in that was held when the worker went away.
func TestWorkerThatGoesWithItsMessageIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		held := w.checkInAside(reportOf(uuid, codalab.StateRunning))
		synctest.Wait()
		start := time.Now()
		s.get("alice", "/bundles/"+uuid+"/contents/info/").says(404, "Worker w, which has bundle "+uuid+", has not been heard of for 15s.")
		if took := time.Since(start); took != 15*time.Second || len((<-held).messages) != 1 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestReadOfAnEndingRunFindsTheResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		got := make(chan answer)
		go func() { got <- s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout") }()
		synctest.Wait()
		s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "done"})).ok()
		w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
		if a := (<-got).ok(); a.body != "done" {
			t.Errorf("read %q", a.body)
		}
	})
}

func TestAbandonedReadFreesItsWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		waiting := w.checkInAside(reportOf(uuid, codalab.StateRunning))
		s.await(uuid, codalab.StateRunning)
		ctx, hangUp := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.handler.ServeHTTP(httptest.NewRecorder(), s.request("alice", "GET", "/bundles/"+uuid+"/contents/info/", nil).WithContext(ctx))
		}()
		m := (<-waiting).messages[0]
		hangUp()
		<-over
		path := "/workers/w/reply_data/" + strconv.FormatInt(m.SocketID, 10) + "?header_message=%7B%7D"
		s.call("alice", "POST", path, "late").says(403, "Not your socket ID!")
	})
}

func TestErrorsOfTheWorkerAreItsWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		waiting := w.checkInAside(reportOf(uuid, codalab.StateRunning))
		s.await(uuid, codalab.StateRunning)
		got := make(chan answer)
		go func() { got <- s.get("alice", "/bundles/"+uuid+"/contents/info/f") }()
		m := (<-waiting).messages[0]
		reply := "/workers/w/reply/" + strconv.FormatInt(m.SocketID, 10)
		s.call("bob", "POST", reply, codalab.ReadReply{ErrorCode: 404, ErrorMessage: "evil"}).is(403)
		s.call("alice", "POST", reply, codalab.ReadReply{ErrorCode: 403, ErrorMessage: "the file is a link"}).ok()
		(<-got).says(403, "the file is a link")
		s.call("alice", "POST", reply, codalab.ReadReply{ErrorCode: 404}).says(403, "Not your socket ID!")

		go func() { got <- s.get("alice", "/bundles/"+uuid+"/contents/info/f") }()
		m = w.told(codalab.MessageRead, reportOf(uuid, codalab.StateRunning))
		s.call("alice", "POST", "/workers/w/reply/"+strconv.FormatInt(m.SocketID, 10), codalab.ReadReply{ErrorCode: 500, ErrorMessage: "Bundle no longer running"}).ok()
		m = w.told(codalab.MessageRead, reportOf(uuid, codalab.StateRunning)) // the server looks again
		s.call("alice", "POST", "/workers/w/reply_data/"+strconv.FormatInt(m.SocketID, 10)+"?header_message="+url.QueryEscape(`{"error_code":404,"error_message":"none"}`), "stream").ok()
		(<-got).says(404, "none")
	})
}

func TestBrokenStreamBreaksTheDownload(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	got := make(chan any)
	waiting := w.checkInAside(reportOf(uuid, codalab.StateRunning))
	s.await(uuid, codalab.StateRunning)
	go func() {
		defer func() { got <- recover() }()
		r := s.request("alice", "GET", "/bundles/"+uuid+"/contents/blob/f", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	}()
	w.answer(t.Context(), root, (<-waiting).messages[0])
	m := w.told(codalab.MessageRead, reportOf(uuid, codalab.StateRunning))
	body := io.MultiReader(strings.NewReader("half"), broken{})
	s.call("alice", "POST", "/workers/w/reply_data/"+strconv.FormatInt(m.SocketID, 10)+"?header_message=%7B%7D", body)
	if err, ok := (<-got).(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("the download ended with %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestBrokenDownloadFreesItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		s := newSite(t)
		r := s.request("alice", "GET", "/bundles/"+s.upload("data", strings.Repeat("x", 1<<20-codalab.BlockSize))+"/contents/blob/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		defer func() {
			if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("the download ended with %v", err)
			}
		}()
		s.handler.ServeHTTP(goneClient{httptest.NewRecorder()}, r)
	})
}

// goneClient is the answer to a client that has hung up.
type goneClient struct{ *httptest.ResponseRecorder }

func (goneClient) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
