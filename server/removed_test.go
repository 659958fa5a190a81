package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestRemovedUserIsRefusedOnEveryRoute asks every route with the tokens that a removed user had. Public routes serve
// such a request as that of somebody who has not signed in.
func TestRemovedUserIsRefusedOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	s.makeReaders()
	must(t, s.store.AddUser(t.Context(), userNamed("erin")))
	refresh := s.signIn(ourProgram, "192.0.2.1", passwordForm("erin", "erin")).ok()
	s.tokens["erin"] = refresh.text("access_token")
	s.call("alice", "POST", "/groups/readers/relationships/members", deletion("users", "erin")).ok()
	worker := s.addWorkerToken("erin", "w")
	bridge, _ := s.addProgramToken("erin", codalab.ProgramTokenRequest{Workers: []string{"w"}})
	manager, _ := s.addProgramToken("erin", codalab.ProgramTokenRequest{Workers: []string{"w"}, Manager: true})
	device := passwordForm("erin", "erin")
	device.Set("device_token", "")
	device.Set("device_token", s.signIn(ourProgram, "192.0.2.1", device).ok().text("device_token"))
	code, hash := server.NewResetCode()
	must(t, s.store.AddReset(t.Context(), "0x"+strings.Repeat("e", 32), hash, time.Now().Add(time.Hour)))
	public := map[string]bool{}
	for _, one := range server.Calls() {
		public[one.Pattern] = one.Public
	}
	x := s.subject()
	s.call("erin", "DELETE", "/users", deletion("users", "0x"+strings.Repeat("e", 32))).ok() // she leaves
	for _, row := range routeRows() {
		path, body := row.call(x)
		method, _, _ := strings.Cut(row.pattern, " ")
		want := http.StatusUnauthorized
		if public[row.pattern] {
			want = row.statuses[0] // of nobody
		}
		for _, role := range []string{"erin", worker, bridge, manager} {
			s.call(role, method, path, body).is(want)
		}
	}
	s.signIn(ourProgram, "192.0.2.1", refreshForm(refresh.text("refresh_token"))).is(http.StatusUnauthorized)
	for _, form := range []url.Values{passwordForm("erin", "erin"), device} {
		s.signIn(ourProgram, "192.0.2.1", form).is(http.StatusUnauthorized)
	}
	form := url.Values{"code": {code}, "password": {"drei kleine Fische"}, "confirm_password": {"drei kleine Fische"}}
	r := httptest.NewRequest(http.MethodPost, server.ResetPath+"/finalize", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.send(r).says(http.StatusForbidden, "This code is not valid")
}

// answers sends a request, and returns a channel that gets the answer.
func (s *site) answers(r *http.Request) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- s.send(r) }()
	return got
}

func TestHeldCheckInEndsWithItsSignIn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*site){
		"the user is removed":       func(s *site) { s.removeUser("dave") },
		"the session is ended":      func(s *site) { s.endSessions("dave") },
		"the password is changed":   func(s *site) { must(s.t, s.setPassword("0x"+strings.Repeat("d", 32))) },
		"the worker token is ended": func(s *site) { must(s.t, s.store.DeleteWorkerTokens(s.t.Context(), "0x"+strings.Repeat("d", 32), "w")) },
		"the program token is ended": func(s *site) {
			all, err := s.store.ProgramTokens(s.t.Context(), "0x"+strings.Repeat("d", 32))
			must(s.t, err)
			must(s.t, s.store.DeleteProgramToken(s.t.Context(), "", all[0].ID))
		},
		"the user of a program token is removed": func(s *site) { s.removeUser("dave") },
		"the worker token is revoked":            func(s *site) { s.revokeToken("dave's worker") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, func(c *server.Config) { c.Hold = time.Minute })
				must(t, s.store.AddUser(t.Context(), userNamed("dave")))
				s.loginAgain("dave")
				role := "dave"
				switch {
				case strings.Contains(name, "worker token"):
					role = s.addWorkerToken("dave", "w")
				case strings.Contains(name, "program token"):
					role, _ = s.addProgramToken("dave", codalab.ProgramTokenRequest{Workers: []string{"w"}})
				}
				got := s.answers(s.request(role, "POST", "/workers/w/checkin", codalab.CheckIn{Tag: "cpu", CPUs: 1}))
				synctest.Wait()
				begun := time.Now()
				end(s)
				if a := <-got; a.status != http.StatusUnauthorized || time.Since(begun) > time.Second {
					t.Errorf("after %s: %d %s", time.Since(begun), a.status, a.body)
				}
			})
		})
	}
}

// A run that is matched with a worker in the moment after the end of its session goes to nobody.
func TestHeldCheckInWhoseSessionHasEndedGetsNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, func(c *server.Config) { c.Hold = time.Minute })
		got := s.answers(s.request("root", "POST", "/workers/w/checkin", s.worker("root", "w", "cpu").info))
		synctest.Wait()
		begun := time.Now()
		s.endSessions("root")
		s.run("secret", cpuQueue)
		synctest.Wait()
		if a := <-got; a.status != http.StatusUnauthorized || strings.Contains(a.body, "secret") || time.Since(begun) > 0 {
			t.Errorf("after %s: %d %s", time.Since(begun), a.status, a.body)
		}
	})
}

// slow is a body without end, and an answer's writer: both take a second for each part.
type slow struct {
	*httptest.ResponseRecorder
	sent int
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	s.sent += len(p)
	return len(p), nil
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(time.Second)
	s.sent += len(p)
	return len(p), nil
}

func TestTransfersEndWithTheirSignIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.setQuota(1<<40, 3600)
		data := s.dataset("data")
		s.put(data, "filename=x&unpack=0", bytes.NewReader(make([]byte, 64<<20))).ok()
		open := s.dataset("open")
		body, answered := &slow{}, &slow{ResponseRecorder: httptest.NewRecorder()}
		upload := s.answers(s.request("alice", "PUT", "/bundles/"+open+"/contents/blob/?filename=x&unpack=0", io.Reader(body)))
		downloaded := make(chan bool)
		go func() {
			defer close(downloaded)
			defer func() { _ = recover() }() // the server breaks the answer off
			s.handler.ServeHTTP(answered, s.request("alice", "GET", "/bundles/"+data+"/contents/blob/", nil))
		}()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		begun := time.Now()
		s.endSessions("alice")
		<-downloaded
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("the download goes on for %s", took)
		}
		(<-upload).says(http.StatusUnauthorized, "User is not authenticated.") // it reads on for a while, so that the client gets the answer
		if took := time.Since(begun); took > 25*time.Second || body.sent == 0 || answered.sent == 0 || answered.sent >= 64<<20 {
			t.Errorf("ended after %s; %d bytes sent and %d received", took, body.sent, answered.sent)
		}
	})
}

// A long transfer goes on when its token has only expired, or its worker has renewed it.
func TestTransfersGoOnWhenTheirTokenExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		open := s.dataset("open")
		sent := 0
		body := io.LimitReader(readerFunc(func(p []byte) (int, error) {
			time.Sleep(4 * time.Minute)
			sent++
			return copy(p, "x"), nil
		}), 30)
		a := <-s.answers(s.request("alice", "PUT", "/bundles/"+open+"/contents/blob/?filename=x&unpack=0", body))
		a.ok()
		s.get("alice", "/user").is(http.StatusUnauthorized) // two hours later
		if sent != 30 {
			t.Errorf("%d bytes", sent)
		}
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Each task of an array of jobs may sign in by itself.
func TestTransfersGoOnWhenTheirUserSignsInOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		open := s.dataset("open")
		body := io.LimitReader(readerFunc(func(p []byte) (int, error) {
			time.Sleep(time.Minute)
			return copy(p, "x"), nil
		}), 10)
		upload := s.answers(s.request("alice", "PUT", "/bundles/"+open+"/contents/blob/?filename=x&unpack=0", body))
		time.Sleep(time.Second)
		for range store.MaxSessions + 1 {
			s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", "alice")).ok()
		}
		(<-upload).ok()
		if have, _ := s.get("alice", "/user/sessions").ok().value("data").([]any); len(have) == 0 || len(have) > store.MaxSessions+1 {
			t.Errorf("alice has %d sessions", len(have))
		}
	})
}
