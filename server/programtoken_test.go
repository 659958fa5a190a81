package server_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// addProgramToken gives a user a program token. Requests of the returned role have it.
func (s *site) addProgramToken(user string, in codalab.ProgramTokenRequest) (role, id string) {
	s.t.Helper()
	a := s.call(user, http.MethodPost, "/program_tokens", in).ok()
	var made codalab.ProgramToken
	must(s.t, json.Unmarshal([]byte(a.body), &made))
	if got, err := codalab.ProgramTokenID(made.Access); err != nil || got != made.ID || made.User != user || a.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%v %s", a.header, a.body)
	}
	role = user + "'s bridge"
	if in.Manager {
		role = user + "'s manager"
	}
	s.tokens[role] = made.Access
	return role, made.ID
}

// TestProgramTokenAllowsWhatTheRunsOfItsWorkersNeed lets a bridge with two queues run bundles with nothing but its token,
// and asks on the way for what it does not need.
func TestProgramTokenAllowsWhatTheRunsOfItsWorkersNeed(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"alice", "root"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
			input, secret := s.upload("input", "data"), s.upload("other", "secret")
			s.share("alice", "bundle", input, "public", store.PermissionRead)
			first, second, others := s.runOf("cpu", input), s.runOf("gpu", input), s.runOf("other", secret)
			role, _ := s.addProgramToken(user, codalab.ProgramTokenRequest{Workers: []string{"lab-*"}})
			s.get(role, "/bundles/"+secret+"/contents/blob/").is(http.StatusForbidden)

			cpu, gpu := s.worker(role, "lab-cpu", "cpu"), s.worker(role, "lab-gpu", "gpu")
			if got := cpu.takes(); got != first {
				t.Fatalf("the first queue takes %s, want %s", got, first)
			}
			if got := gpu.takes(); got != second {
				t.Fatalf("the second queue takes %s, want %s", got, second)
			}
			if got := s.worker(user, "another", "other").takes(); got != others {
				t.Fatalf("the other worker takes %s, want %s", got, others)
			}
			cpu.checkIn(reportOf(first, codalab.StateRunning))
			if a := s.get(role, "/bundles/"+input+"/contents/blob/").ok(); a.body != "data" {
				t.Errorf("the input is %q", a.body)
			}
			if a := s.get(role, "/bundles/"+input+"?include=group_permissions,host_worksheets,children").ok(); !strings.Contains(a.body, `"public"`) ||
				strings.Contains(a.body, "worksheets") || strings.Contains(a.body, first) {
				t.Errorf("the bridge has to learn that everybody may read the input, and no more: %s", a.body)
			}
			for _, uuid := range []string{secret, others} {
				s.get(role, "/bundles/"+uuid+"/contents/blob/").is(http.StatusForbidden)
				if a := s.get(role, "/bundles/"+uuid).ok(); !strings.Contains(a.body, "private") {
					t.Errorf("a bundle of another worker is %s", a.body)
				}
			}
			s.call(role, "POST", "/workers/another/checkin", codalab.CheckIn{}).says(http.StatusForbidden, "This token is for worker lab-* alone, and not for worker another.")
			s.call(role, "POST", "/workers/lab-cpu/token", codalab.WorkerTokenRequest{Seconds: 60}).says(http.StatusForbidden, "This token makes no tokens for workers")
			for uuid, want := range map[string]int{first: http.StatusOK, others: http.StatusForbidden, input: http.StatusForbidden} {
				s.call(role, "PUT", "/bundles/"+uuid+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "result").is(want)
			}
			for _, path := range []string{"/program_tokens", "/users", "/bundles?keywords=.mine", "/workers/info", "/groups"} {
				s.get(role, path).says(http.StatusForbidden, "This token is for worker lab-* alone: it may only run bundles.")
			}
		})
	}
}

// TestManagersTokenFindsStagedRunsAndMakesTokensForItsWorkers asks for all that cl-worker-manager needs, and for other bundles.
func TestManagersTokenFindsStagedRunsAndMakesTokensForItsWorkers(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	data := s.upload("data", "secret")
	staged, taken := s.runOf("none", data), s.runOf("cpu", data)
	other := s.worker("alice", "another", "cpu")
	other.takes()
	role, id := s.addProgramToken("alice", codalab.ProgramTokenRequest{Workers: []string{"host-*"}, Manager: true, Days: 7})
	found := s.get(role, "/bundles?keywords=.mine&keywords=.limit=100").ok().body
	if !strings.Contains(found, staged) || !strings.Contains(found, "request_queue") || strings.Contains(found, taken) || strings.Contains(found, data+`"`+`,"type":"bundles"`) {
		t.Errorf("it finds %s", found)
	}
	if n := s.get(role, "/bundles?keywords=.mine&keywords=.count").ok().value("meta", "result"); n != 1.0 {
		t.Errorf("it counts %v", n)
	}
	s.get(role, "/bundles?specs="+taken).is(http.StatusForbidden)
	s.get(role, "/bundles?command=x").is(http.StatusForbidden)
	s.get(role, "/bundles/"+data+"/contents/blob/").is(http.StatusForbidden)
	if a := s.get(role, "/bundles/"+taken).ok(); !strings.Contains(a.body, "private") {
		t.Errorf("a run of another worker is %s", a.body)
	}
	s.call(role, "POST", "/workers/another/token", codalab.WorkerTokenRequest{Seconds: 60}).is(http.StatusForbidden)
	s.call(role, "DELETE", "/workers/another/token", nil).is(http.StatusForbidden)

	made := s.call(role, "POST", "/workers/host-1/token", codalab.WorkerTokenRequest{Seconds: 3600}).ok()
	s.tokens["pilot"] = made.text("access_token")
	s.call("pilot", "POST", "/workers/host-1/checkin", codalab.CheckIn{}).ok()
	s.call("pilot", "POST", "/workers/host-2/checkin", codalab.CheckIn{}).is(http.StatusForbidden)
	if listed := s.get(role, "/workers/info").ok().body; !strings.Contains(listed, "host-1") || strings.Contains(listed, "another") {
		t.Errorf("it lists the workers %s", listed)
	}
	if latest := made.value("latest_expires_in").(float64); latest > 7*24*3600 {
		t.Errorf("the pilot's token can be renewed for %g s, beyond the manager's", latest)
	}
	s.call("alice", "DELETE", "/program_tokens/"+id, nil).is(http.StatusNoContent)
	s.get("pilot", "/user").is(http.StatusUnauthorized)
}

func TestProgramTokenEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *site, id string){
		"at its end": func(*site, string) { time.Sleep(24 * time.Hour) },
		"when it is revoked while the server runs": func(s *site, id string) { must(s.t, s.store.DeleteProgramToken(s.t.Context(), "", id)) },
		"with its user": func(s *site, _ string) {
			s.call("dora", "DELETE", "/worksheets?force=1", deletion("worksheets", s.home("dora"))).ok()
			s.call("root", "DELETE", "/users", deletion("users", "0x"+strings.Repeat("d", 32))).ok()
		},
		"with a change of its user's password": func(s *site, _ string) { // whoever stole a login may have made it
			_, err := s.store.SetPassword(s.t.Context(), store.NewPassword{UserID: "0x" + strings.Repeat("d", 32), Hashed: "x"}, time.Now())
			must(s.t, err)
		},
		"when the operator ends all sessions": func(s *site, _ string) {
			_, err := s.store.EndSignIns(s.t.Context(), "0x"+strings.Repeat("d", 32))
			must(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				s.addUser("dora")
				role, id := s.addProgramToken("dora", codalab.ProgramTokenRequest{Workers: []string{"w"}, Days: 1})
				_, err := s.store.EndSignIns(t.Context(), alicesID)
				must(t, err)
				s.loginAgain("alice")
				other, _ := s.addProgramToken("alice", codalab.ProgramTokenRequest{Workers: []string{"w"}})
				s.get(role, "/user").ok()
				end(s, id)
				s.get(role, "/user").says(http.StatusUnauthorized, "User is not authenticated.")
				s.call(role, "POST", "/workers/w/checkin", codalab.CheckIn{}).is(http.StatusUnauthorized)
				s.get(other, "/user").ok()
			})
		})
	}
}

// A stolen database, back-up or log lets nobody in.
func TestProgramTokenIsKeptAsAHashAlone(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newSite(t, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	role, id := s.addProgramToken("alice", codalab.ProgramTokenRequest{Workers: []string{"w"}, Days: 30})
	other, otherID := s.addProgramToken("bob", codalab.ProgramTokenRequest{Workers: []string{"w"}})
	s.get(role, "/user").ok()
	listed := s.get("alice", "/program_tokens").ok()
	if listed.text(0, "id") != id || strings.Contains(listed.body, otherID) || listed.value(0, "last_used") == 0.0 || listed.value(0, "expires") == 0.0 {
		t.Errorf("alice's tokens are %s", listed.body)
	}
	own := s.get(role, "/workers/w/token").ok()
	if own.text("id") != id || own.text("user") != "alice" {
		t.Errorf("the token is %s", own.body)
	}
	s.call("bob", "DELETE", "/program_tokens/"+id, nil).says(http.StatusNotFound, "You have no program token "+id)
	s.call("alice", "DELETE", "/program_tokens/"+id, nil).is(http.StatusNoContent)
	lines := log.String()
	if !strings.Contains(lines, `request="POST /rest/program_tokens" objects=[`+id+`] status=200`) || !strings.Contains(lines, `request="DELETE /rest/program_tokens/`+id+`" objects=[] status=204`) {
		t.Errorf("the audit log has not who made and ended the token: %s", lines)
	}
	found := lines + listed.body + own.body
	must(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var text []byte
			text, err = os.ReadFile(path)
			found += string(text)
		}
		return err
	}))
	for _, token := range []string{s.tokens[role], s.tokens[other]} {
		if secret := token[len("clp_")+11:]; strings.Contains(found, secret) {
			t.Errorf("the token %s is in the log, an answer or a file", token)
		}
	}
}

func TestAuditLineNamesTheProgramToken(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := newSite(t, func(c *server.Config) { c.Log, c.Hold = slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond })
	run := s.run("x", cpuQueue)
	role, id := s.addProgramToken("alice", codalab.ProgramTokenRequest{Workers: []string{"w"}})
	s.worker(role, "w", "cpu").takes()
	log.Reset()
	s.call(role, "PUT", "/bundles/"+run+"/contents/blob/?filename=x&unpack=0&finalize_on_success=0", "result").ok()
	if want := "msg=audit user=alice "; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "program_token="+id) {
		t.Errorf("%s", log.String())
	}
}

func TestBadProgramTokensAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for sentence, in := range map[string]codalab.ProgramTokenRequest{
		"name the workers":              {},
		"a token for all workers":       {Workers: []string{"*"}},
		"no blanks and commas":          {Workers: []string{"a b"}},
		"valid for 1 to 36500 days":     {Workers: []string{"a"}, Days: -1},
		"or with 0 has no end":          {Workers: []string{"a"}, Days: 1 << 40},
		"the names of the workers have": {Workers: []string{strings.Repeat("a", 1001)}},
	} {
		s.call("alice", "POST", "/program_tokens", in).says(http.StatusBadRequest, sentence)
	}
	for range server.MaxProgramTokens {
		s.call("alice", "POST", "/program_tokens", codalab.ProgramTokenRequest{Workers: []string{"w"}}).ok()
	}
	s.call("alice", "POST", "/program_tokens", codalab.ProgramTokenRequest{Workers: []string{"w"}}).says(http.StatusForbidden, "You have 100 program tokens already.")
	token, _ := codalab.NewProgramToken()
	for _, bad := range []string{token, "clp_", "clp_%", token + token} {
		s.tokens["bad"] = bad
		s.get("bad", "/user").is(http.StatusUnauthorized)
	}
}
