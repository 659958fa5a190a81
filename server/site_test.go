package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// site is a server on a fresh data directory, with the users alice, bob and
// root, whose passwords are their names. Their home worksheets are private. Its requests go straight to the
// handler, so that it works in a synctest bubble too.
type site struct {
	t       testing.TB
	dir     string
	store   *store.Store
	handler http.Handler
	// counters serves what the server counts.
	counters http.Handler
	tokens   map[string]string
}

func newSite(tb testing.TB, change ...func(*server.Config)) *site {
	tb.Helper()
	return newSiteAt(tb, tb.TempDir(), testenv.ServerDatabase(tb), change...)
}

// newSiteAt is newSite in a directory, with a database in PostgreSQL if url is not empty.
func newSiteAt(tb testing.TB, dir, url string, change ...func(*server.Config)) *site {
	tb.Helper()
	data, err := store.OpenDatabase(context.Background(), dir, url)
	must(tb, err)
	s := &site{t: tb, dir: dir, store: data, tokens: map[string]string{}}
	tb.Cleanup(func() { must(tb, data.Close()) })
	s.start(change...)
	for _, name := range []string{"alice", "bob", "root"} {
		s.addUser(name)
	}
	return s
}

// publicByDefault lets everybody read new worksheets, as CodaLab's own server does.
func publicByDefault(c *server.Config) { c.DefaultPermission = store.DefaultPublic }

// addUser adds a user, and signs them in. Ids repeat the first letter of the name.
func (s *site) addUser(name string) {
	s.t.Helper()
	must(s.t, s.store.AddUser(context.Background(), userNamed(name)))
	s.loginAgain(name)
	s.share(name, "worksheet", s.home(name), "public", store.PermissionNone)
}

// userNamed is a user whose password is the name.
func userNamed(name string) store.User {
	id := "0x" + strings.Repeat(name[:1], 32)
	if name == "root" {
		id = store.RootID
	}
	hashed := server.HashPassword(name, server.PasswordCost{Passes: 1, KiB: 8})
	return store.User{ID: id, Name: name, Password: hashed, TimeQuota: 1 << 40, DiskQuota: 1 << 20, ParallelRunQuota: 9}
}

// start starts a server on the site's data; the one before it, if there is
// one, has stopped.
func (s *site) start(change ...func(*server.Config)) (stop func()) {
	config := server.Config{Store: s.store, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}}
	for _, c := range change {
		c(&config)
	}
	service := server.New(config)
	s.handler, s.counters = service.Handler(), service.MetricsHandler()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := service.Run(ctx); ctx.Err() == nil {
			s.t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(stop)
	return stop
}

// loginAgain gets new tokens for users.
func (s *site) loginAgain(names ...string) {
	s.t.Helper()
	for _, name := range names {
		form := url.Values{"grant_type": {"password"}, "username": {name}, "password": {name}}
		s.tokens[name] = s.grant("codalab_cli_client", form).ok().text("access_token")
	}
}

var must = testenv.Must

// answer is what a request got.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   string
}

func (s *site) send(r *http.Request) answer {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return answer{s.t, r.Method + " " + r.URL.Path, w.Code, w.Header(), w.Body.String()}
}

func (s *site) grant(client string, form url.Values) answer {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(client, "")
	return s.send(r)
}

// request is one that a user makes; the body is text, a reader, or anything
// that becomes JSON.
func (s *site) request(user, method, path string, body any) *http.Request {
	s.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	case io.Reader:
		in = b
	default:
		data, err := json.Marshal(body)
		must(s.t, err)
		in = bytes.NewReader(data)
	}
	r := httptest.NewRequest(method, "/rest"+path, in)
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[user])
	}
	return r
}

func (s *site) call(user, method, path string, body any) answer {
	s.t.Helper()
	return s.send(s.request(user, method, path, body))
}

func (s *site) get(user, path string) answer {
	s.t.Helper()
	return s.call(user, http.MethodGet, path, nil)
}

func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d %s", a.what, a.status, a.body)
	}
	return a
}

func (a answer) ok() answer {
	a.t.Helper()
	return a.is(http.StatusOK)
}

// says checks a refusal: its status, and a part of its sentence.
func (a answer) says(status int, sentence string) {
	a.t.Helper()
	if a.status != status || !strings.Contains(a.body, sentence) {
		a.t.Errorf("%s: %d %q, want %d %q", a.what, a.status, a.body, status, sentence)
	}
}

// decode decodes a JSON answer.
func (a answer) decode(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		a.t.Fatalf("%s: %v in %q", a.what, err, a.body)
	}
}

// value returns a value of a JSON answer by its path of keys and indices.
func (a answer) value(path ...any) any {
	a.t.Helper()
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		a.t.Fatalf("%s: %v in %q", a.what, err, a.body)
	}
	for _, step := range path {
		key, isKey := step.(string)
		index, isIndex := step.(int)
		object, isObject := v.(map[string]any)
		list, isList := v.([]any)
		switch {
		case isKey && isObject:
			v = object[key]
		case isIndex && isList && index < len(list):
			v = list[index]
		default:
			a.t.Fatalf("%s: nothing at %v in %s", a.what, path, a.body)
		}
	}
	return v
}

func (a answer) text(path ...any) string {
	a.t.Helper()
	text, _ := a.value(path...).(string)
	return text
}

func (s *site) home(user string) string {
	s.t.Helper()
	return s.get(user, "/worksheets?specs=/").ok().text("data", 0, "id")
}

// share sets what a group may do with a bundle or worksheet.
func (s *site) share(user, kind, uuid, group string, permission int) {
	s.t.Helper()
	s.call(user, http.MethodPost, "/"+kind+"-permissions", map[string]any{"data": []any{map[string]any{
		"type": kind + "-permissions", "attributes": map[string]any{"permission": permission},
		"relationships": map[string]any{
			kind:    map[string]any{"data": map[string]string{"type": kind + "s", "id": uuid}},
			"group": map[string]any{"data": map[string]string{"type": "groups", "id": group}},
		},
	}}}).ok()
}

// object is a request with one JSON:API object.
func object(kind string, attributes any) map[string]any {
	return map[string]any{"data": []any{map[string]any{"type": kind, "attributes": attributes}}}
}

func metadata(bundleType, name string, more map[string]any) map[string]any {
	m := map[string]any{}
	for _, k := range codalab.MetadataKeys(bundleType) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	m["name"] = name
	for key, value := range more {
		m[key] = value
	}
	return m
}

// create sends a request of alice for a bundle on her home worksheet.
func (s *site) create(bundleType, name, command string, more map[string]any, deps ...codalab.Dependency) answer {
	s.t.Helper()
	attributes := map[string]any{"bundle_type": bundleType, "metadata": metadata(bundleType, name, more), "dependencies": deps}
	if command != "" {
		attributes["command"] = command
	}
	return s.call("alice", http.MethodPost, "/bundles?worksheet="+s.home("alice"), object("bundles", attributes))
}

// run creates a run of alice and returns its identifier.
func (s *site) run(command string, more map[string]any, deps ...codalab.Dependency) string {
	s.t.Helper()
	return s.create("run", "job", command, more, deps...).ok().text("data", 0, "id")
}

// dataset creates a dataset of alice without contents and returns its
// identifier.
func (s *site) dataset(name string) string {
	s.t.Helper()
	return s.create("dataset", name, "", nil).ok().text("data", 0, "id")
}

// put sends contents as alice.
func (s *site) put(uuid, query string, body any) answer {
	s.t.Helper()
	return s.call("alice", http.MethodPut, "/bundles/"+uuid+"/contents/blob/?"+query, body)
}

// upload makes a dataset of alice of one file.
func (s *site) upload(name, text string) string {
	s.t.Helper()
	uuid := s.dataset(name)
	s.put(uuid, "filename="+name+"&unpack=0", text).ok()
	return uuid
}

func (s *site) bundle(user, uuid string) codalab.Bundle {
	s.t.Helper()
	var b codalab.Bundle
	var doc codalab.Document
	must(s.t, json.Unmarshal([]byte(s.get(user, "/bundles/"+uuid).ok().body), &doc))
	objects, err := doc.Objects()
	must(s.t, err)
	must(s.t, objects[0].Decode(&b))
	return b
}

// await waits until a bundle is in one of these states.
func (s *site) await(uuid string, states ...codalab.State) codalab.Bundle {
	s.t.Helper()
	var b codalab.Bundle
	testenv.Await(s.t, fmt.Sprintf("bundle %s is one of %v", uuid, states), func() bool {
		b = s.bundle("root", uuid)
		return slices.Contains(states, b.State)
	}, &b.State, &b.Metadata)
	return b
}

// awaitContents waits until so many bundles have contents, and nothing else is where those are.
func (s *site) awaitContents(n int) {
	s.t.Helper()
	var left []os.DirEntry
	testenv.Await(s.t, fmt.Sprintf("%d bundles have contents", n), func() bool {
		var err error
		left, err = os.ReadDir(filepath.Join(s.dir, "bundles"))
		must(s.t, err)
		return len(left) == n
	}, &left)
}
