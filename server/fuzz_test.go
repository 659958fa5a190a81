package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
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

// FuzzBody sends bodies to the routes that change something, as they come. None may be an internal
// error; a refusal says why, and an acceptance is JSON or empty.
func FuzzBody(f *testing.F) {
	s := newSite(f, func(c *server.Config) { c.Hold = time.Millisecond })
	s.makeReaders()
	x := s.subject()
	rows := slices.DeleteFunc(slices.Concat(routeRows(), fullRows()), func(r row) bool {
		return strings.HasPrefix(r.pattern, "GET ") || strings.HasPrefix(r.pattern, "DELETE ") || strings.Contains(r.pattern, "net") ||
			strings.HasPrefix(r.pattern, "PUT /bundles")
	})
	for i, row := range rows {
		_, body := row.call(x)
		text, isText := body.(string)
		if !isText {
			data, err := json.Marshal(body)
			must(f, err)
			text = string(data)
		}
		f.Add(uint8(i), text)
	}
	f.Fuzz(func(t *testing.T, n uint8, body string) {
		s := &site{t: t, store: s.store, handler: s.handler, tokens: s.tokens}
		row := rows[int(n)%len(rows)]
		method, _, _ := strings.Cut(row.pattern, " ")
		user := "alice"
		if row.statuses[3] >= 400 {
			user = "root"
		}
		path, _ := row.call(x)
		a := s.call(user, method, path, body)
		if a.status >= 500 || a.body == "" && a.status >= 400 || a.body != "" && a.status < 300 && !json.Valid([]byte(a.body)) {
			t.Errorf("%s: %d %s", row.pattern, a.status, a.body)
		}
	})
}

// FuzzSpec asks for bundles of a worksheet by specs. A bundle that is found is one that the spec means.
func FuzzSpec(f *testing.F) {
	s := newSite(f)
	byAge := []string{s.dataset("abc"), s.dataset("x.y"), s.dataset("abd"), s.dataset("abc")}
	names := []string{"abc", "x.y", "abd", "abc"}
	slices.Reverse(byAge)
	slices.Reverse(names)
	for _, spec := range []string{
		"^", "^1", "^4", "^5", "^0", "^1-^3", "abc", "abc^2", "abc^3", "ab%^3", "%", "x.y", "x_y", ".*", "0x", byAge[2], byAge[1][:12], "/abc", "home-alice/abc^2", " abc ", "abc^99999999999", "",
	} {
		f.Add(spec)
	}
	home := s.home("alice")
	f.Fuzz(func(t *testing.T, spec string) {
		s := &site{t: t, store: s.store, handler: s.handler, tokens: s.tokens}
		a := s.get("alice", "/bundles?worksheet="+home+"&specs="+url.QueryEscape(spec))
		if a.status >= 500 {
			t.Fatalf("%q: %d %s", spec, a.status, a.body)
		}
		if s := s.get("alice", "/worksheets?specs="+url.QueryEscape(spec)); s.status >= 500 {
			t.Fatalf("worksheet %q: %d %s", spec, s.status, s.body)
		}
		local := strings.TrimSpace(spec)
		if _, rest, found := strings.Cut(local, "/"); found { // behind a worksheet
			local = rest
		}
		name, n, _ := strings.Cut(local, "^")
		if a.status != http.StatusOK || codalab.IsUUID(local) {
			return
		}
		found := a.text("data", 0, "id")
		if codalab.IsUUIDPrefix(local) {
			if !strings.HasPrefix(found, local) {
				t.Errorf("%q is %s", spec, found)
			}
			return
		}
		form := regexp.MustCompile("(?i)^" + strings.NewReplacer("%", ".*", `\.\*`, ".*", `\*`, ".*").Replace(regexp.QuoteMeta(name)) + "$")
		var meant []string
		for i, uuid := range byAge {
			if name == "" || form.MatchString(names[i]) {
				meant = append(meant, uuid)
			}
		}
		at, err := strconv.Atoi(n)
		if n == "" {
			at, err = 1, nil
		}
		if err != nil || at < 1 || at > len(meant) || meant[at-1] != found {
			t.Errorf("%q is %s, of %v", spec, found, meant)
		}
	})
}
