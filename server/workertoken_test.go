package server_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// addWorkerToken gets a token for a user's worker, valid for an hour. Requests of the returned role have it.
func (s *site) addWorkerToken(user, worker string) (role string) {
	s.t.Helper()
	a := s.call(user, http.MethodPost, "/workers/"+url.PathEscape(worker)+"/token", codalab.WorkerTokenRequest{Seconds: 3600}).ok()
	if a.text("token_type") != "Bearer" || a.text("scope") != "worker" || a.value("expires_in") != 3600.0 || a.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%v %s", a.header, a.body)
	}
	role = user + "'s worker"
	s.tokens[role] = a.text("access_token")
	return role
}

// renewWorkerToken renews the token of a role for the worker w with itself. The role has the new one then.
func (s *site) renewWorkerToken(role string) (life, latest time.Duration) {
	s.t.Helper()
	a := s.call(role, http.MethodPost, "/workers/w/token", codalab.WorkerTokenRequest{}).ok()
	var answer codalab.TokenAnswer
	must(s.t, json.Unmarshal([]byte(a.body), &answer))
	if answer.Access == s.tokens[role] || answer.Refresh != "" || answer.Scope != "worker" || a.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%v %s", a.header, a.body)
	}
	s.tokens[role] = answer.Access
	return time.Duration(answer.Seconds) * time.Second, time.Duration(answer.LatestSeconds) * time.Second
}

// revokeToken revokes the token of a role.
func (s *site) revokeToken(role string) {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/revoke", strings.NewReader("token="+s.tokens[role]))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.send(r).ok()
}

// runOf creates a run of alice with an input, for workers with a tag.
func (s *site) runOf(tag, input string) string {
	s.t.Helper()
	return s.call("alice", "POST", "/bundles?worksheet="+s.home("alice"), object("bundles", map[string]any{
		"bundle_type": "run", "command": "x", "metadata": metadata("run", "job", map[string]any{"request_queue": tag}),
		"dependencies": []any{map[string]string{"child_path": "in", "parent_uuid": input, "parent_path": ""}},
	})).ok().text("data", 0, "id")
}

// TestWorkerTokenAllowsWhatTheRunsOfItsWorkerNeed lets a worker run a bundle with nothing but its token, and asks on
// the way for what it does not need. Root's token allows no more than that of an ordinary user.
func TestWorkerTokenAllowsWhatTheRunsOfItsWorkerNeed(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"alice", "root"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
			input, other := s.upload("input", "data"), s.upload("other", "secret")
			mine, others := s.runOf("cpu", input), s.runOf("gpu", other)
			role := s.addWorkerToken(user, "host-(1)")
			s.get(role, "/bundles/"+input+"/contents/blob/").is(http.StatusForbidden) // its run has not begun

			w := s.worker(role, "host-(1)", "cpu")
			second := s.worker(user, "second", "gpu")
			if got := w.told(codalab.MessageRun).Bundle.UUID; got != mine {
				t.Fatalf("the worker is given %s, want %s", got, mine)
			}
			if !w.startBundle(mine) || w.startBundle(others) {
				t.Fatal("the worker claims its run only")
			}
			if got := second.takes(); got != others {
				t.Fatalf("the other worker is given %s, want %s", got, others)
			}
			w.checkIn(reportOf(mine, codalab.StatePreparing))
			if a := s.get(role, "/bundles/"+input+"/contents/blob/").ok(); a.body != "data" {
				t.Errorf("the input is %q", a.body)
			}
			s.get(role, "/bundles/"+input+"/contents/info/").ok()
			if a := s.get(role, "/bundles/"+mine+"?include=group_permissions,host_worksheets,children,owner").ok(); !strings.Contains(a.body, input) ||
				strings.Contains(a.body, "worksheets") || strings.Contains(a.body, "group") {
				t.Errorf("its run is %s", a.body)
			}
			for _, uuid := range []string{other, others} {
				s.get(role, "/bundles/"+uuid+"/contents/blob/").is(http.StatusForbidden)
				if a := s.get(role, "/bundles/"+uuid).ok(); !strings.Contains(a.body, "private") {
					t.Errorf("a bundle that it does not need is %s", a.body)
				}
			}
			s.call(role, "POST", "/workers/second/checkin", codalab.CheckIn{}).says(http.StatusForbidden, "This token is for worker host-(1) alone, and not for worker second.")
			s.call(role, "DELETE", "/workers/host-(1)/token", nil).says(http.StatusForbidden, "it may only run bundles")
			for uuid, want := range map[string]int{mine: http.StatusOK, others: http.StatusForbidden, input: http.StatusForbidden, other: http.StatusForbidden} {
				s.call(role, "PUT", "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "result").is(want)
			}
			code := 0
			done := reportOf(mine, codalab.StateFinalizing)
			done.ExitCode = &code
			w.told(codalab.MessageMarkFinalized, done)
			s.get(role, "/bundles/"+input+"/contents/blob/").is(http.StatusForbidden)
			s.get(role, "/bundles/"+mine+"/contents/blob/").ok()
			s.call(role, "PUT", "/bundles/"+mine+"/contents/blob/?filename=x", "again").is(http.StatusForbidden)
		})
	}
}

// A worker reads what an input of its run depends on if the token's user may read that.
func TestWorkerTokenReadsWhatItsInputsDependOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	data := s.upload("data", "deep")
	parent := s.runOf("cpu", data)
	first := s.worker("alice", "first", "cpu")
	first.takes()
	s.call("alice", "PUT", "/bundles/"+parent+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "result").ok()
	code := 0
	done := reportOf(parent, codalab.StateFinalizing)
	done.ExitCode = &code
	first.told(codalab.MessageMarkFinalized, done)
	s.runOf("gpu", parent)
	role := s.addWorkerToken("alice", "w")
	s.worker(role, "w", "gpu").takes()
	if a := s.get(role, "/bundles/"+parent+"/contents/blob/in").ok(); a.body != "deep" {
		t.Errorf("%q", a.body)
	}
	s.get(role, "/bundles/"+data+"/contents/blob/").is(http.StatusForbidden)
}

func TestWorkerTokenEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *site, role string){
		"at its end":                          func(*site, string) { time.Sleep(time.Hour) },
		"when it is revoked":                  func(s *site, role string) { s.revokeToken(role) },
		"when its user's password is changed": func(s *site, _ string) { must(s.t, s.setPassword("0x"+strings.Repeat("d", 32))) },
		"with its user": func(s *site, _ string) {
			sheet := s.home("dora")
			s.call("dora", "DELETE", "/worksheets?force=1", deletion("worksheets", sheet)).ok()
			s.call("root", "DELETE", "/users", deletion("users", "0x"+strings.Repeat("d", 32))).ok()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.addUser("dora")
				role := s.addWorkerToken("dora", "w")
				other := s.addWorkerToken("alice", "w")
				time.Sleep(time.Hour - time.Second)
				s.loginAgain("dora", "root")
				s.get(role, "/user").ok()
				end(s, role)
				s.get(role, "/user").says(http.StatusUnauthorized, "User is not authenticated.")
				if name != "at its end" {
					s.get(other, "/user").ok()
				}
			})
		})
	}
}

func TestWorkerTokenIsNoRefreshToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	role := s.addWorkerToken("alice", "w")
	for _, client := range []string{"codalab_cli_client", "codalab_worker_client"} {
		s.grant(client, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {s.tokens[role]}}).is(http.StatusUnauthorized)
	}
}

func TestWorkerTokensAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const longest = 35 * 24 * 3600
	for seconds, want := range map[int64]int{-1: 400, 0: 400, 1: 200, longest: 200, longest + 1: 400, 1 << 62: 400} {
		s.call("alice", "POST", "/workers/w/token", codalab.WorkerTokenRequest{Seconds: seconds}).is(want)
	}
	s.call("alice", "POST", "/workers/"+strings.Repeat("w", 257)+"/token", codalab.WorkerTokenRequest{Seconds: 1}).is(http.StatusBadRequest)
	now := time.Now()
	add := func(token string, life time.Duration) error {
		return s.store.AddWorkerToken(t.Context(), store.WorkerToken{
			Token: token, UserID: store.RootID, WorkerID: "w", Expires: store.Time{Time: now.Add(life)},
		}, now, 2)
	}
	must(t, add("1", -time.Second))
	must(t, add("2", time.Hour))
	must(t, add("3", time.Hour)) // the first one has ended
	if err := add("4", time.Hour); err == nil {
		t.Error("a user has more worker tokens than the most")
	}
}

func TestAuditLogHasWhoAskedForAWorkerTokenAndWhoEndedIt(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := newSite(t, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	log.Reset()
	role := s.addWorkerToken("alice", "w")
	first := s.tokens[role]
	s.renewWorkerToken(role)
	s.call("alice", "DELETE", "/workers/w/token", nil).is(http.StatusNoContent)
	var lines []string
	for line := range strings.Lines(log.String()) {
		if _, line, ok := strings.Cut(line, " address="); ok {
			_, line, _ = strings.Cut(line, " ")
			lines = append(lines, strings.TrimSpace(line))
		}
		for _, secret := range []string{first, s.tokens[role]} {
			if strings.Contains(line, secret) {
				t.Errorf("a token is in the log: %s", line)
			}
		}
	}
	want := []string{
		`request="POST /rest/workers/w/token" objects=[] status=200`,
		`request="POST /rest/workers/w/token" objects=[] status=200 token_of_worker=w`,
		`request="DELETE /rest/workers/w/token" objects=[] status=204`,
	}
	if diff := cmp.Diff(want, lines); diff != "" || strings.Count(log.String(), "msg=audit user=alice ") != len(want) {
		t.Error(diff)
	}
}
