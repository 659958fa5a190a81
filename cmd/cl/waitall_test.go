package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// trouble are states of bundles in a scene that are none: the server fails, or has no such bundle.
const (
	down = "down"
	gone = "gone"
)

// scene is a server whose bundles change with each question about them: states has one column for each question, and
// the last one stays.
type scene struct {
	states map[string][]string
	// env is more of cl's environment.
	env map[string]string

	mu    sync.Mutex
	polls int
	calls int
	names map[string]int // bundles that were asked for, by question
	whole int            // questions for all of the bundles' metadata
}

func (s *scene) state(uuid string) string {
	all := s.states[uuid]
	return all[min(s.polls, len(all)-1)]
}

// object is a bundle as the server sends it.
func (s *scene) object(uuid string) map[string]any {
	return map[string]any{"type": "bundles", "id": uuid, "attributes": map[string]any{
		"uuid": uuid, "bundle_type": "run", "state": s.state(uuid), "metadata": map[string]any{"name": "r" + uuid[len(uuid)-2:], "time": 60.0},
	}}
}

func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case "/rest/oauth2/token":
		answer(map[string]any{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"})
	case "/rest/worksheets":
		answer(map[string]any{"data": []any{map[string]any{"type": "worksheets", "id": someUUID, "attributes": map[string]any{"uuid": someUUID, "name": "home-anna"}}}})
	case "/rest/notices":
		http.Error(w, "Not found: '/notices'", http.StatusNotFound)
	case "/rest/bundles":
		defer func() { s.calls++ }()
		if r.URL.Query().Get("metadata") == "" {
			s.whole++
		}
		specs := r.URL.Query()["specs"]
		data := []any{}
		for _, uuid := range specs {
			switch s.state(uuid) {
			case down:
				s.polls++
				http.Error(w, "down", http.StatusBadGateway)
				return
			case gone:
				http.NotFound(w, r)
				return
			}
			data = append(data, s.object(uuid))
			s.names[uuid]++
		}
		if slices.Contains(specs, uuidNumber(0)) || len(s.states) < 10 {
			s.polls++
		}
		answer(map[string]any{"data": data})
	default:
		uuid := strings.TrimPrefix(r.URL.Path, "/rest/bundles/")
		if s.states[uuid] == nil || s.state(uuid) == gone {
			http.NotFound(w, r)
			return
		}
		answer(map[string]any{"data": s.object(uuid)})
		if len(s.states) == 1 {
			s.polls++
		}
	}
}

func uuidNumber(n int) string { return fmt.Sprintf("0x%032d", n) }

// play runs cl wait for all bundles of a scene.
func play(t *testing.T, s *scene, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	s.names = map[string]int{}
	site := httptest.NewServer(s)
	t.Cleanup(site.Close)
	args = append([]string{"wait", "--server", site.URL}, args...)
	for i := range len(s.states) {
		args = append(args, uuidNumber(i))
	}
	var out, errs bytes.Buffer
	env := map[string]string{"CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "x", "CODALAB_HOME": t.TempDir()}
	maps.Copy(env, s.env)
	err = run(t.Context(), program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
		Getenv: func(name string) string { return env[name] },
	})
	return out.String(), errs.String(), err
}

func TestEachBundleIsPrintedAtItsEnd(t *testing.T) {
	t.Parallel()
	s := &scene{states: map[string][]string{
		uuidNumber(0): {"running", down, "running", "finalizing", "ready"},
		uuidNumber(1): {"running", down, "ready"},
		uuidNumber(2): {"staged", down, "running", "failed"},
		uuidNumber(3): {"staged", down, "running", "running", "running", gone},
	}}
	out, errs, err := play(t, s)
	if code := program.Code(t.Context(), err); code != 1 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if want := uuidNumber(1) + "\n" + uuidNumber(0) + "\n"; out != want {
		t.Errorf("prints %q, want %q", out, want)
	}
	if want := "r02(" + uuidNumber(2) + ") failed\nr03(" + uuidNumber(3) + ") removed\n"; errs != want {
		t.Errorf("tells %q, want %q", errs, want)
	}
}

func TestServerWithoutABundleFailsTheWaitAtOnce(t *testing.T) {
	t.Parallel()
	s := &scene{states: map[string][]string{uuidNumber(0): {"running"}, uuidNumber(1): {gone}}}
	if _, _, err := play(t, s); !isNotFound(err) {
		t.Errorf("the wait ends with %v", err)
	}
}

// A wait for many bundles asks for those that have not ended, in few calls.
func TestWaitForManyIsFewCalls(t *testing.T) {
	t.Parallel()
	const many = 200
	s := &scene{states: map[string][]string{}}
	for i := range many {
		s.states[uuidNumber(i)] = []string{"ready"}
	}
	s.states[uuidNumber(0)] = []string{"running", "running", "ready"}
	out, errs, err := play(t, s)
	if err != nil || errs != "" || strings.Count(out, "\n") != many {
		t.Fatalf("%v, %q, %d lines", err, errs, strings.Count(out, "\n"))
	}
	if s.calls > 10 || s.whole > 0 {
		t.Errorf("%d calls for %d bundles, %d of them for all metadata", s.calls, many, s.whole)
	}
	if s.names[uuidNumber(7)] != 1 {
		t.Errorf("one that has ended was asked for %d times", s.names[uuidNumber(7)])
	}
}

// Runs that end within seconds are asked for often, and a thousand of them must not take more of a server than their questions
// are worth.
func TestPollsTakeASmallPartOfAWait(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		poll
		want time.Duration
	}{
		{poll{waited: 2 * ms, took: 2 * ms}, minPoll},
		{poll{waited: 3 * time.Second, took: 2 * ms}, 300 * ms},
		{poll{waited: time.Hour, took: 2 * ms}, maxPoll},
		{poll{waited: 40 * ms, took: 40 * ms}, 400 * ms},
		{poll{waited: time.Hour, took: 3 * time.Second}, 30 * time.Second},
		{poll{waited: time.Hour, took: time.Hour}, watchMost},
		// The last of many that end fast are asked for sooner, unless they keep the wait waiting.
		{poll{waited: 8 * time.Second, took: 2 * ms, ended: 100, left: 900}, 800 * ms},
		{poll{waited: 8 * time.Second, took: 2 * ms, ended: 950, left: 50, silent: 10 * ms}, 8 * time.Second / 950 * 25},
		{poll{waited: 8 * time.Second, took: 2 * ms, ended: 999, left: 1, silent: 10 * ms}, minPoll},
		{poll{waited: 18 * time.Second, took: 2 * ms, ended: 999, left: 1, silent: 5 * time.Second}, 500 * ms},
		{poll{waited: time.Hour, took: 20 * ms, ended: 9999, left: 1, silent: ms}, 180 * ms},
		{poll{waited: 8 * time.Second, took: 400 * ms, ended: 500, left: 500, silent: ms}, 4 * time.Second},
		{poll{waited: 8 * time.Second, took: 400 * ms, ended: 950, left: 50, silent: ms}, 8 * time.Second / 950 * 25},
	} {
		if got := c.pause(); got.Round(ms) != c.want.Round(ms) {
			t.Errorf("%+v: the pause is %s, want %s", c.poll, got, c.want)
		}
	}
}

// A log of a long wait has few lines, and none that says the same again.
func TestCountsWithoutATerminalAreSeldom(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	var errs bytes.Buffer
	g := &groupWait{
		cli:   &cli{Process: program.Process{Stderr: &errs, Getenv: func(string) string { return "" }}},
		uuids: make([]string, 100), last: map[string]codalab.Bundle{}, pause: firstCounts, next: begin.Add(firstCounts),
	}
	for i := range g.uuids {
		g.uuids[i] = uuidNumber(i)
		g.last[g.uuids[i]] = codalab.Bundle{UUID: g.uuids[i], State: codalab.StateStaged}
	}
	var minutes []int
	for at := 0; at < 100*60; at++ {
		now := begin.Add(time.Duration(at) * time.Second)
		if i := at / 60; i < 90 { // one ends each minute, and nothing after an hour and a half
			g.last[g.uuids[i]] = codalab.Bundle{UUID: g.uuids[i], State: codalab.StateReady}
		}
		before := errs.Len()
		g.show(now, now)
		if errs.Len() > before {
			minutes = append(minutes, at/60)
		}
	}
	if diff := cmp.Diff([]int{1, 3, 7, 15, 30, 45, 60, 75, 90}, minutes); diff != "" {
		t.Errorf("lines come in these minutes (-want +got):\n%s", diff)
	}
	if first, _ := errs.ReadString('\n'); first != "2 of 100 ready, 98 waiting\n" {
		t.Errorf("the first line is %q", first)
	}
	if again, _ := io.ReadAll(&errs); !strings.HasSuffix(string(again), "\n90 of 100 ready, 10 waiting\n") {
		t.Errorf("the last lines are %q", again)
	}
}

func TestServerThatGoesAwayIsSaid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	g := &groupWait{
		cli: &cli{Process: program.Process{Stderr: io.Discard, Getenv: func(string) string { return "" }}}, uuids: []string{uuidNumber(0)},
		last: map[string]codalab.Bundle{uuidNumber(0): {UUID: uuidNumber(0), State: codalab.StateRunning}},
	}
	if got := g.counts(now, now.Add(-90*time.Second)); got != "the server has not answered for 1m30s; 0 of 1 ready, 1 running" {
		t.Error(got)
	}
	server := outage{answered: now}
	fails := &codalab.Error{Status: http.StatusBadGateway}
	for _, step := range []struct {
		after time.Duration
		err   error
		ends  bool
	}{{0, nil, false}, {12 * time.Hour, fails, false}, {24*time.Hour + time.Second, fails, true}, {0, &codalab.Error{Status: http.StatusForbidden}, true}} {
		if got := server.ends(step.err, now.Add(step.after)); got != step.ends {
			t.Errorf("%v after %s: the wait ends: %v", step.err, step.after, got)
		}
	}
	if fresh := (&outage{answered: now}); !fresh.ends(fails, now) {
		t.Error("a wait goes on at a server that has never answered")
	}
}
