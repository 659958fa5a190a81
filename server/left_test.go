package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// metric returns the value of a metric as the server shows it; empty if there is none.
func (s *site) metric(name string) string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.counters.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// answered returns how many requests of a route the server has answered with a status.
func (s *site) answered(route string, status int) string {
	return s.metric(fmt.Sprintf("codalab_requests_total{route=%q,status=\"%d\"}", route, status))
}

// leave makes a request of a user over TCP, and closes its connection when arrived returns.
func (s *site) leave(web *httptest.Server, user, method, path string, body any, arrived func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	made := s.request(user, method, path, body)
	r, err := http.NewRequestWithContext(ctx, method, web.URL+"/rest"+path, made.Body)
	must(s.t, err)
	r.Header, r.ContentLength = made.Header, made.ContentLength
	done := make(chan error)
	go func() {
		a, err := web.Client().Do(r)
		if err == nil {
			err = errors.Join(fmt.Errorf("answered: %s", a.Status), a.Body.Close())
		}
		done <- err
	}()
	arrived()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		s.t.Error(err)
	}
}

// A bridge that restarts leaves its check-ins, and a person leaves a download by Ctrl-C.
func TestClientThatLeavesIsNoFailureOfTheServer(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = time.Minute })
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	running := reportOf(uuid, codalab.StateRunning)
	path, begins := "/bundles/"+uuid, checkInOf(w, running)
	begins.IsTerminating = true // it is not held for long
	s.call("alice", "POST", "/workers/w/checkin", begins).ok()
	for _, one := range []struct {
		route, path string
		body        any
		arrived     func()
	}{
		{"POST /workers/{worker}/checkin", "/workers/other/checkin", w.info, func() {
			testenv.Await(t, "the check-in is held", func() bool { return s.metric("codalab_check_ins_held") == "1" })
		}},
		{"GET /bundles/{uuid}/contents/blob/{path...}", path + "/contents/blob/stdout", nil, func() { w.told(codalab.MessageRead, running) }},
		{"GET /bundles/{uuid}/contents/info/{path...}", path + "/contents/info/?depth=1", nil, func() { w.told(codalab.MessageRead, running) }},
		{"PUT /bundles/{uuid}/netcat/{port}/{$}", path + "/netcat/80/", map[string]string{"message": "x"}, func() { w.told(codalab.MessageNetcat, running) }},
	} {
		method, _, _ := strings.Cut(one.route, " ")
		s.leave(web, "alice", method, one.path, one.body, one.arrived)
		s.left(one.route)
	}
}

// left waits until the server has counted that the client of a request has left, and nothing as its own failure.
func (s *site) left(route string) {
	s.t.Helper()
	testenv.Await(s.t, route+" ends", func() bool { return s.answered(route, 499) == "1" })
	for _, status := range []int{500, 503} {
		if n := s.answered(route, status); n != "" {
			s.t.Errorf("%s: %s requests have status %d", route, n, status)
		}
	}
}

func TestUploadThatBreaksOffIsNoFailureOfTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("data")
	c, _ := s.dial("alice", "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_failure=1", "")
	_, err := fmt.Fprint(c, "5\r\nhello\r\n")
	must(t, err)
	must(t, c.Close())
	s.left("PUT /bundles/{uuid}/contents/blob/{$}")
	s.await(uuid, codalab.StateFailed)
}
