package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// aside sends a request of alice while the test goes on.
func (s *site) aside(r *http.Request) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- s.send(r) }()
	return got
}

func TestWriteReachesTheWorkerOnceAndIsRecorded(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	write := func(subpath, text string) *http.Request {
		return s.request("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "write", "uuid": uuid, "subpath": subpath, "string": text}))
	}
	for _, text := range []string{"hello", ""} {
		got := s.aside(write("message", text))
		m := w.told(codalab.MessageWrite, reportOf(uuid, codalab.StateRunning))
		if want := (codalab.Message{Type: codalab.MessageWrite, UUID: uuid, Subpath: "message", String: text}); !cmp.Equal(m, want) {
			t.Errorf("told %+v", m)
		}
		(<-got).ok()
	}
	if b := s.bundle("alice", uuid); !cmp.Equal(b.Metadata.Strings("actions"), []string{"write\tmessage\thello", "write\tmessage\t"}) {
		t.Errorf("actions %q", b.Metadata.Strings("actions"))
	}
	for _, bad := range []string{"a/b", "..", "a\tb"} {
		s.send(write(bad, "x")).says(http.StatusBadRequest, "subpath must be")
	}
	waiting := s.run("x", nil)
	s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "write", "uuid": waiting, "subpath": "f", "string": "x"})).
		says(http.StatusBadRequest, "it is not running")
}

// reply answers a message with data.
func (w *testWorker) reply(id int64, data string) answer {
	w.t.Helper()
	return w.call(w.user, http.MethodPost, fmt.Sprintf("/workers/%s/reply_data/%d?header_message={}", w.id, id), data)
}

func TestNetcatAndNetcurl(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	run := reportOf(uuid, codalab.StateRunning)
	cat := func() *http.Request {
		return s.request("alice", http.MethodPut, "/bundles/"+uuid+"/netcat/5005/", map[string]string{"message": "hi"})
	}
	s.send(cat()).says(http.StatusForbidden, "Cannot netcat bundle, bundle not running.")
	w.checkIn(run)
	got := s.aside(cat())
	m := w.told(codalab.MessageNetcat, run)
	if m.Port != 5005 || m.Message != "hi" {
		t.Errorf("told %+v", m)
	}
	w.reply(m.SocketID, "raw\x00bytes").ok()
	if a := (<-got).ok(); a.body != "raw\x00bytes" {
		t.Errorf("answered %q", a.body)
	}
	got = s.aside(cat()) // the port sends nothing: CodaLab's worker replies without data
	s.call("alice", http.MethodPost, fmt.Sprintf("/workers/w/reply/%d", w.told(codalab.MessageNetcat, run).SocketID), map[string]any{}).ok()
	if a := (<-got).ok(); a.body != "" {
		t.Errorf("answered %q", a.body)
	}
	r := s.request("alice", http.MethodPost, "/bundles/"+uuid+"/netcurl/80/a%20b?q=1", "text")
	r.Header.Set("X-Mine", "yes")
	got = s.aside(r)
	m = w.told(codalab.MessageNetcat, run)
	if !strings.HasPrefix(m.Message, "POST /a%20b?q=1 HTTP/1.1\r\nHost: ") || !strings.HasSuffix(m.Message, "Content-Length: 4\r\nConnection: close\r\n\r\ntext") ||
		!strings.Contains(m.Message, "X-Mine: yes\r\n") || strings.Contains(m.Message, "Bearer") {
		t.Errorf("forwarded %q", m.Message)
	}
	w.reply(m.SocketID, "HTTP/1.0 418 Teapot\r\nSet-Cookie: a=b\r\nX-Theirs: 1\r\n\r\nshort").ok()
	if a := (<-got).is(http.StatusTeapot); a.body != "short" || a.header.Get("X-Theirs") != "1" || a.header.Get("Set-Cookie") != "" {
		t.Errorf("answered %q %v", a.body, a.header)
	}
	got = s.aside(s.request("alice", http.MethodGet, "/bundles/"+uuid+"/netcurl/80/", nil))
	w.reply(w.told(codalab.MessageNetcat, run).SocketID, "no HTTP").ok()
	(<-got).says(http.StatusBadGateway, "does not speak HTTP")
	s.get("bob", "/bundles/"+uuid+"/netcurl/80/").says(http.StatusForbidden, "sufficient permissions")
	s.get("alice", "/bundles/"+uuid+"/netcurl/99999/").says(http.StatusNotFound, "Not found")
}
