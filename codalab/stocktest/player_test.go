package stocktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// internalError is in every answer with status 500. CodaLab's own server gives the cause only
// six times an hour; then its limit of mails to administrators changes the answer
// (codalab/server/rest_server.py: send_email).
const internalError = "Internal"

// trial is the test of one manner on one server.
type trial struct {
	*testing.T
	site  site
	calls sync.WaitGroup // the calls that are made in the background
}

func newTrial(t *testing.T, on site) *trial {
	t.Helper()
	tr := &trial{T: t, site: on}
	t.Cleanup(tr.calls.Wait)
	return tr
}

// user is a logged-in user.
type user struct {
	*trial
	id, name, token string
}

func (on *trial) owner() *user     { return on.login(on.site.owner) }
func (on *trial) colleague() *user { return on.login(on.site.colleague) }

func (on *trial) login(l stocktest.User) *user {
	on.Helper()
	u := &user{trial: on, name: l.Name}
	var token struct {
		Access string `json:"access_token"`
	}
	on.grant(l).into(&token)
	u.token = token.Access
	u.id = u.call("GET", "/user", nil).object().ID
	return u
}

// grant asks for a token (codalab/rest/oauth2.py).
func (on *trial) grant(l stocktest.User) answer {
	form := url.Values{"grant_type": {"password"}, "username": {l.Name}, "password": {l.Password}}
	return on.request("POST", "/oauth2/token", strings.NewReader(form.Encode()), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("codalab_worker_client", "")
	})
}

// answer is a server's answer to one call.
type answer struct {
	*trial
	call   string
	status int
	header http.Header
	body   []byte
	err    error
	took   time.Duration
}

func (a answer) String() string {
	return fmt.Sprintf("%s: %d %.300q %v", a.call, a.status, a.body, a.err)
}

// wantStatus fails the trial unless the answer has a status and contains words.
func (a answer) wantStatus(status int, words ...string) answer {
	a.Helper()
	if a.err != nil || a.status != status {
		a.Fatalf("%s: want status %d", a, status)
	}
	for _, w := range words {
		if !strings.Contains(string(a.body), w) {
			a.Errorf("%s: want the words %q", a, w)
		}
	}
	return a
}

// into decodes a successful answer.
func (a answer) into(v any) {
	a.Helper()
	a.wantStatus(http.StatusOK)
	if err := json.Unmarshal(a.body, v); err != nil {
		a.Fatalf("%s: %v", a, err)
	}
}

// object is the one object of a successful answer.
func (a answer) object() codalab.Object {
	a.Helper()
	var doc codalab.Document
	a.into(&doc)
	found, err := doc.Objects()
	if err != nil || len(found) != 1 {
		a.Fatalf("%s: want one object: %v", a, err)
	}
	return found[0]
}

// request sends one request; it may be called from any goroutine.
func (on *trial) request(method, path string, body io.Reader, prepare func(*http.Request)) answer {
	a := answer{trial: on, call: method + " " + path}
	// A trial cleans up after its context has ended.
	r, err := http.NewRequestWithContext(context.Background(), method, on.site.address+"/rest"+path, body)
	if err != nil {
		a.err = err
		return a
	}
	r.Header.Set("X-Requested-With", "XMLHttpRequest")
	prepare(r)
	begun := time.Now()
	resp, err := on.site.http.Do(r)
	if err != nil {
		a.err = err
		return a
	}
	a.status, a.header = resp.StatusCode, resp.Header
	a.body, a.err = io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read to its end
	a.took = time.Since(begun)
	return a
}

// call sends a request with a body that is nil, a reader or else JSON.
func (u *user) call(method, path string, body any, header ...string) answer {
	var r io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return answer{trial: u.trial, call: method + " " + path, err: err}
		}
		r, kind = bytes.NewReader(data), "application/json; charset=utf-8"
	}
	return u.request(method, path, r, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+u.token)
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
	})
}

// inBackground makes a call while a worker of the trial serves it.
func (on *trial) inBackground(call func() answer) <-chan answer {
	c := make(chan answer, 1)
	on.calls.Go(func() { c <- call() })
	return c
}

// receive waits for the answer to a call in the background.
func (on *trial) receive(c <-chan answer) answer {
	on.Helper()
	return testenv.Receive(on, "the answer to a call", c)
}

// object is a JSON object as it came.
type object = map[string]any

// one is a document with one object.
func one(kind string, attributes object, more ...object) object {
	o := object{"type": kind, "attributes": attributes}
	for _, m := range more {
		maps.Copy(o, m)
	}
	return object{"data": []object{o}}
}

// dependency is an input of a bundle to be made: all of a parent.
func dependency(child, parent string) object {
	return object{"child_path": child, "parent_uuid": parent, "parent_path": ""}
}

// run creates a run for workers of a tag. The end of the trial kills and removes it.
func (u *user) run(tag string, metadata object, dependencies ...object) string {
	u.Helper()
	if dependencies == nil {
		dependencies = []object{}
	}
	m := object{"request_queue": tag, "request_docker_image": "busybox"}
	maps.Copy(m, metadata)
	return u.create(codalab.TypeRun, object{"command": "echo hello", "dependencies": dependencies}, m)
}

func (u *user) create(kind string, attributes, metadata object) string {
	u.Helper()
	m := object{}
	for _, k := range codalab.MetadataKeys(kind) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	m["name"] = "stocktest"
	maps.Copy(m, metadata)
	attributes["bundle_type"], attributes["metadata"] = kind, m
	uuid := u.call("POST", "/bundles?detached=1", one("bundles", attributes)).object().ID
	u.Cleanup(func() { u.discard(uuid) })
	return uuid
}

// discard kills and removes a bundle, if it can.
func (u *user) discard(uuid string) {
	clean := u.worker("stocktest-clean-" + uuid[2:10])
	testenv.Poll(func() bool {
		b := u.bundle(uuid)
		if b.UUID == "" || b.State.Final() || b.State == codalab.StateUploading {
			u.remove(uuid)
			return true
		}
		if b.State.OnWorker() && b.State != codalab.StateWorkerOffline {
			// Its worker has gone. Any worker may report it as staged, which takes it from
			// that worker.
			restaged := report(uuid, codalab.StateStaged)
			u.inBackground(func() answer { return clean.post(restaged) })
			return false
		}
		u.kill(uuid)
		return false
	})
}

func (u *user) remove(uuid string) answer {
	return u.call("DELETE", "/bundles?force=1", object{"data": []object{{"type": "bundles", "id": uuid}}})
}

func (u *user) kill(uuid string) answer {
	return u.call("POST", "/bundle-actions", one("bundle-actions", object{"type": "kill", "uuid": uuid}))
}

func (u *user) write(uuid, subpath, text string) answer {
	return u.call("POST", "/bundle-actions", one("bundle-actions", object{"type": "write", "uuid": uuid, "subpath": subpath, "string": text}))
}

// bundle returns a bundle as the server shows it, the zero Bundle for none.
func (u *user) bundle(uuid string) codalab.Bundle {
	var doc codalab.Document
	var b codalab.Bundle
	if json.Unmarshal(u.call("GET", "/bundles/"+uuid, nil).body, &doc) != nil {
		return b
	}
	if found, err := doc.Objects(); err == nil && len(found) == 1 && found[0].Decode(&b) != nil {
		return codalab.Bundle{}
	}
	return b
}

// wantState checks that a bundle is in a state now.
func (u *user) wantState(uuid string, want codalab.State) {
	u.Helper()
	if got := u.bundle(uuid).State; got != want {
		u.Errorf("%s is %s, want %s", uuid, got, want)
	}
}

// awaitState waits until a bundle is in a state.
func (u *user) awaitState(uuid string, s codalab.State) codalab.Bundle {
	u.Helper()
	return u.awaitBundle(uuid, string(s), func(b codalab.Bundle) bool { return b.State == s })
}

// awaitBundle waits until holds is true of a bundle.
func (u *user) awaitBundle(uuid, what string, holds func(codalab.Bundle) bool) codalab.Bundle {
	u.Helper()
	var b codalab.Bundle
	var seen []codalab.State
	testenv.Await(u, uuid+" is "+what, func() bool {
		b = u.bundle(uuid)
		if len(seen) == 0 || seen[len(seen)-1] != b.State {
			seen = append(seen, b.State)
		}
		return holds(b)
	}, &seen, &b.Metadata)
	return b
}

// wantStates checks that a bundle is in one of these states for a while.
func (u *user) wantStates(uuid string, while time.Duration, states ...codalab.State) {
	u.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(150 * time.Millisecond) {
		if s := u.bundle(uuid).State; !slices.Contains(states, s) {
			u.Fatalf("%s became %s, want it to stay %s", uuid, s, states)
		}
	}
}
