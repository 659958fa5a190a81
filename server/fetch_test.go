package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

func TestUploadByURL(t *testing.T) {
	t.Parallel()
	archive := zipped(t, "a", "d/b")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/d.zip":
			_, _ = io.WriteString(w, archive)
		case "/moved":
			http.Redirect(w, r, "/d.zip", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://[::1]:1/x", http.StatusFound)
		case "/endless":
			for _, err := w.Write(make([]byte, 1<<16)); err == nil; _, err = w.Write(make([]byte, 1<<16)) { //nolint:revive // until the server hangs up
			}
		case "/slow":
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second):
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	allow, err := outbound.Parse([]string{"127.0.0.1"})
	must(t, err)
	s := newSite(t, func(c *server.Config) { c.FetchPrivate, c.TransferTimeout = allow, time.Second })
	for path, test := range map[string]struct {
		status   int
		sentence string
		kind     string
	}{
		"/d.zip?x=1.gz":      {200, "", "directory"},
		"/d.zip&unpack=0":    {200, "", "file"},
		"/moved":             {200, "", "file"}, // the name is that of the URL
		"/nosuch":            {400, "the URL's server answers 404 Not Found", ""},
		"/round":             {400, "more than 10 redirections", ""},
		"/elsewhere":         {400, "only http and https", ""},
		"/away":              {400, "not a public address", ""},
		"/endless":           {400, "user disk quota exceeded", ""},
		"/slow":              {500, "the connection broke", ""},
		"/a&urls=http://b/c": {400, "Exactly one url", ""},
		"/a.git&git=1":       {400, "not found", ""},
	} {
		uuid := s.dataset("data")
		where, query, _ := strings.Cut(path, "&")
		a := s.put(uuid, "finalize_on_failure=1&urls="+url.QueryEscape(web.URL+where)+"&"+query, "")
		a.says(test.status, test.sentence)
		switch b := s.bundle("alice", uuid); {
		case test.kind == "uploading" && b.State != codalab.StateUploading,
			test.kind == "" && (b.State != codalab.StateFailed || !strings.Contains(b.Metadata.String("failure_message"), test.sentence)):
			t.Errorf("%s: %s, %v", path, b.State, b.Metadata)
		case test.status == 200:
			if got := s.get("alice", "/bundles/"+uuid+"/contents/info/").ok().text("data", "type"); got != test.kind {
				t.Errorf("%s: a %s", path, got)
			}
		case test.kind == "":
			s.put(uuid, "filename=x", "").says(http.StatusForbidden, test.sentence) // CodaLab's client sends it again
		}
	}
}

func TestPrivateAddressesAreNotFetched(t *testing.T) {
	t.Parallel()
	reached := false
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer web.Close()
	s := newSite(t)
	port := web.URL[strings.LastIndex(web.URL, ":"):]
	for _, host := range []string{
		"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[::]", "2130706433", "10.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
		"255.255.255.255", "[fd00::1]", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
		r := s.request("alice", http.MethodPut, "/bundles/"+s.dataset("data")+"/contents/blob/?urls=http://"+url.QueryEscape(host+port+"/x"), nil).WithContext(ctx)
		if a := s.send(r); a.status != http.StatusBadRequest || !strings.Contains(a.body, "not a public address") && host != "2130706433" {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
		cancel()
	}
	if reached {
		t.Error("the server was reached")
	}
}
