package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pipenet"
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
	return c, s.begin(c, user, path, header)
}

// dialInBubble connects to the site's server in memory and begins a chunked upload of alice. A connection's
// deadlines are then in the time of the test's bubble.
func (s *site) dialInBubble(path string) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	pipes, web := pipenet.Listen(), &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error)
	go func() { served <- web.Serve(pipes) }()
	c, err := pipes.Dial(s.t.Context(), "", "")
	must(s.t, err)
	s.t.Cleanup(func() {
		must(s.t, c.Close())
		must(s.t, web.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	})
	return c, s.begin(c, "alice", path, "")
}

// begin begins a chunked upload on a connection.
func (s *site) begin(c net.Conn, user, path, header string) *bufio.Reader {
	s.t.Helper()
	_, err := fmt.Fprintf(c, "PUT /rest%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer %s\r\n%s\r\n", path, s.tokens[user], header)
	must(s.t, err)
	return bufio.NewReader(c)
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
		{"alice", "/bundles/0x" + strings.Repeat("0", 32) + "/contents/blob/?filename=x", 403, "(have none, need all)"},
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
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(c *server.Config) { c.TransferTimeout = time.Minute })
		uuid, begun := s.dataset("data"), time.Now()
		c, in := s.dialInBubble("/bundles/" + uuid + "/contents/blob/?filename=x&unpack=0&finalize_on_failure=1")
		go func() { // a byte each second does not help
			for range 59 {
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		}()
		answerTo(t, in).says(http.StatusInternalServerError, "came too slowly")
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("the upload took %v", took)
		}
		s.await(uuid, codalab.StateFailed)
		_, in = s.dialInBubble("/bundles/" + s.dataset("more") + "/netcat/80/") // a JSON body that never comes
		answerTo(t, in).says(http.StatusBadRequest, "came too slowly")
	})
}

// A connection's deadlines are moments of the machine's clock, whatever the server's clock shows.
func TestWrongClockOfTheServerBreaksNoConnection(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"back": -time.Hour, "forward": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, func(c *server.Config) {
					c.TransferTimeout, c.Now = time.Minute, func() time.Time { return time.Now().Add(wrong) }
				})
				c, in := s.dialInBubble("/bundles/" + s.dataset("data") + "/contents/blob/?filename=x&unpack=0")
				time.Sleep(50 * time.Second)
				_, err := io.WriteString(c, "1\r\nx\r\n0\r\n\r\n")
				must(t, err)
				answerTo(t, in).ok()
				begun := time.Now()
				_, in = s.dialInBubble("/bundles/" + s.dataset("more") + "/contents/blob/?filename=x&unpack=0") // nothing comes
				answerTo(t, in).says(http.StatusInternalServerError, "came too slowly")
				if took := time.Since(begun); took != time.Minute {
					t.Errorf("the upload took %v", took)
				}
			})
		})
	}
}

// TestSteadyBodiesHaveAnyTime sends for longer than the time limit, and then waits on the same
// connection.
func TestSteadyBodiesHaveAnyTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		s := newSite(t, func(c *server.Config) { c.TransferTimeout = limit })
		c, in := s.dialInBubble("/bundles/" + s.dataset("data") + "/contents/blob/?filename=x&unpack=0")
		for range 11 {
			_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
			must(t, err)
			time.Sleep(limit - time.Second)
		}
		_, err := io.WriteString(c, "0\r\n\r\n")
		must(t, err)
		answerTo(t, in).ok()
		time.Sleep(2 * limit)
		_, err = fmt.Fprintf(c, "GET /rest/user HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.tokens["alice"])
		must(t, err)
		answerTo(t, in).ok()
	})
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
