package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzContentsRequest asks for parts of paths in a bundle's contents. No answer may hold more than the
// bundle, and none may be an internal error.
func FuzzContentsRequest(f *testing.F) {
	s := newSite(f)
	uuid := s.dataset("data")
	s.put(uuid, "filename=d.zip", zipped(f, "a", "d/b")).ok()
	for _, path := range []string{"a", "d/b", "../a", "d/../a", "/etc/passwd", "..%2f..", "\x00", "a/", "./d//b"} {
		f.Add(path, "bytes=0-0", "1")
	}
	f.Add("a", "bytes=5-1", "0")
	f.Add("a", "bytes=999999999999999999-999999999999999999", "-1")
	f.Fuzz(func(t *testing.T, path, part, head string) {
		s := &site{t: t, store: s.store, handler: s.handler, tokens: s.tokens}
		r := s.request("alice", http.MethodGet, "/bundles/"+uuid+"/contents/blob/", nil)
		r.URL.Path += path
		if len(part)%2 == 0 {
			r.Header.Set("Range", part)
		} else {
			r.URL.RawQuery = "head=" + url.QueryEscape(head)
		}
		a := s.send(r)
		if a.status >= 500 || a.status == http.StatusOK && a.header.Get("Target-Type") == "file" && strings.Trim(a.body, "x\n") != "" {
			t.Errorf("%q %q: %d %q", path, part, a.status, a.body)
		}
	})
}
