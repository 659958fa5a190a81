package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
)

// dial connects to the site's server over TCP and begins a chunked upload.
func (s *site) dial(user, path, header string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	web := httptest.NewServer(s.handler)
	s.t.Cleanup(web.Close)
	var d net.Dialer
	c, err := d.DialContext(s.t.Context(), "tcp", web.Listener.Addr().String())
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "PUT /rest%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\n%s\r\n", path, s.tokens[user], header)
	must(s.t, err)
	return c, bufio.NewReader(c)
}

// answerTo reads an answer.
func answerTo(t *testing.T, in *bufio.Reader) answer {
	t.Helper()
	r, err := http.ReadResponse(in, nil)
	must(t, err)
	body, err := io.ReadAll(r.Body)
	must(t, err)
	must(t, r.Body.Close())
	return answer{t, "the answer", r.StatusCode, r.Header, string(body)}
}

// TestRefusedUploadsGetTheirReason sends all of a body before it reads the answer, as CodaLab's
// client does.
func TestRefusedUploadsGetTheirReason(t *testing.T) {
	t.Parallel()
	s := newSite(t) // with a quota of 1 MiB
	data := "/bundles/" + s.dataset("data") + "/contents/blob/"
	done := "/bundles/" + s.upload("done", "x") + "/contents/blob/?filename=x"
	for _, test := range []struct {
		user, path string
		status     int
		sentence   string
	}{
		{"alice", data + "?filename=x&unpack=2", 400, "unpack must be 0 or 1"},
		{"alice", done, 403, "already finalized"},
		{"bob", data + "?filename=x", 403, "sufficient permissions"},
		{"nobody", data + "?filename=x", 401, "not authenticated"},
		{"alice", "/bundles/0x" + strings.Repeat("0", 32) + "/contents/blob/?filename=x", 404, "Could not find bundle"},
		{"alice", "/nosuch", 404, "Not found"},
		{"alice", data + "?filename=x&unpack=0", 400, "user disk quota exceeded"},
	} {
		c, in := s.dial(test.user, test.path, "")
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
		for range 160 { // more than the buffers of a connection hold
			_, err := io.WriteString(c, chunk)
			must(t, err)
		}
		_, err := io.WriteString(c, "0\r\n\r\n")
		must(t, err)
		answerTo(t, in).says(test.status, test.sentence)
	}
}

func TestWaitingClientGetsItsRefusalAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, in := s.dial("bob", "/bundles/"+s.dataset("data")+"/contents/blob/?filename=x", "Expect: 100-continue\r\n")
	answerTo(t, in).says(http.StatusForbidden, "sufficient permissions")
}

func TestSlowBodiesEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.TransferTimeout = 200 * time.Millisecond })
	uuid := s.dataset("data")
	c, in := s.dial("alice", "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_failure=1", "")
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a byte now and then does not help
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = io.WriteString(c, "1\r\nx\r\n")
			}
		}
	}()
	answerTo(t, in).says(http.StatusInternalServerError, "came too slowly")
	s.await(uuid, codalab.StateFailed)
	_, in = s.dial("alice", "/bundles/"+s.dataset("more")+"/netcat/80/", "") // a JSON body that never comes
	if a := answerTo(t, in); a.status < 400 || a.status > 499 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestSteadyBodiesHaveAnyTime sends for longer than the time limit, and then waits on the same
// connection.
func TestSteadyBodiesHaveAnyTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second // a busy machine is silent for less
	s := newSite(t, func(c *server.Config) { c.TransferTimeout = limit })
	c, in := s.dial("alice", "/bundles/"+s.dataset("data")+"/contents/blob/?filename=x&unpack=0", "")
	for range 11 {
		_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
		must(t, err)
		time.Sleep(limit / 10)
	}
	_, err := io.WriteString(c, "0\r\n\r\n")
	must(t, err)
	answerTo(t, in).ok()
	time.Sleep(limit + limit/10)
	_, err = fmt.Fprintf(c, "GET /rest/user HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.tokens["alice"])
	must(t, err)
	answerTo(t, in).ok()
}

func TestDownloadThatNobodyTakesEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.TransferTimeout = 200 * time.Millisecond })
	s.setQuota(1<<30, 1<<40)
	uuid := s.upload("large", strings.Repeat("x", 64<<20))
	over := make(chan struct{})
	inner := s.handler
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		inner.ServeHTTP(w, r)
	}))
	defer web.Close()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", web.Listener.Addr().String())
	must(t, err)
	_, err = fmt.Fprintf(c, "GET /rest/bundles/%s/contents/blob/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", uuid, s.tokens["alice"])
	must(t, err)
	<-over
	must(t, c.Close())
}
