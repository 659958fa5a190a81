package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Users have fewer places to change something than these tests have slow requests. In their bubbles
// time passes only while everybody waits.

func TestSlowBodyKeepsNoPlaceToWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		slow := make(chan int)
		for range 40 {
			body, client := io.Pipe()
			defer client.Close()
			go func() { slow <- s.call("alice", "POST", "/worksheets", body).status }()
		}
		synctest.Wait()
		s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "quick"})).ok()
		go func() {
			for range 40 {
				<-slow
			}
		}()
	})
}

func TestWritesToASilentWorkerKeepNoPlaceToWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		other, done := s.run("y", map[string]any{"request_queue": "none"}), make(chan int)
		for range 40 {
			go func() {
				write := map[string]string{"type": "write", "uuid": uuid, "subpath": "f", "string": "x"}
				done <- s.call("alice", "POST", "/bundle-actions", object("bundle-actions", write)).status
			}()
		}
		synctest.Wait()
		begun := time.Now()
		s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": other})).ok()
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("the kill waited %s", waited)
		}
		for range 40 {
			if status := <-done; status != http.StatusNotFound { // nobody took the file
				t.Errorf("a write was answered with %d", status)
			}
		}
	})
}

func TestSlowReaderOfAnAnswerKeepsNoPlaceToWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		reads, done := make(chan struct{}), make(chan struct{})
		for i := range 40 {
			r := s.request("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "w" + strconv.Itoa(i)}))
			go func() {
				s.handler.ServeHTTP(slowReader{httptest.NewRecorder(), reads}, r)
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "quick"})).ok()
		close(reads)
		for range 40 {
			<-done
		}
	})
}

// slowReader is the answer to a client that does not read for a while.
type slowReader struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (w slowReader) WriteHeader(status int) {
	<-w.reads
	w.ResponseRecorder.WriteHeader(status)
}
