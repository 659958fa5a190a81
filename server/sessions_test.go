package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const ourProgram = "cl-slurm/1.7.3"

// signIn signs in as a program at an address, and returns the answer.
func (s *site) signIn(program, address string, form url.Values) answer {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/rest/oauth2/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("User-Agent", program)
	r.RemoteAddr = address + ":1234"
	r.SetBasicAuth("codalab_cli_client", "")
	return s.send(r)
}

func passwordForm(user, password string) url.Values {
	return url.Values{"grant_type": {"password"}, "username": {user}, "password": {password}}
}

func refreshForm(token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
}

// otherSession begins another session of alice, and returns its id. The role "alice's other" has its token.
func (s *site) otherSession() string {
	s.t.Helper()
	s.tokens["alice's other"] = s.signIn("Python-urllib/3.6", "198.51.100.9", passwordForm("alice", "alice")).ok().text("access_token")
	for _, one := range s.sessions("alice's other") {
		if one.Current {
			return one.ID
		}
	}
	s.t.Fatal("the session is not listed")
	return ""
}

// sessions returns the sessions of a user.
func (s *site) sessions(role string) (all []codalab.Session) {
	s.t.Helper()
	var doc codalab.Document
	s.get(role, "/user/sessions").ok().decode(&doc)
	objects, err := doc.Objects()
	must(s.t, err)
	for _, o := range objects {
		one := codalab.Session{ID: o.ID}
		must(s.t, o.Decode(&one))
		all = append(all, one)
	}
	return all
}

// setPassword changes a user's password as the operator does.
func (s *site) setPassword(id string) error {
	_, err := s.store.SetPassword(s.t.Context(), store.NewPassword{UserID: id}, time.Now())
	return err
}

// endSessions ends all sessions of a user.
func (s *site) endSessions(name string) {
	s.t.Helper()
	u, err := s.store.User(s.t.Context(), name)
	must(s.t, err)
	_, err = s.store.EndSignIns(s.t.Context(), u.ID)
	must(s.t, err)
}

// removeUser removes a user as the operator does.
func (s *site) removeUser(name string) {
	s.t.Helper()
	u, err := s.store.User(s.t.Context(), name)
	must(s.t, err)
	_, err = s.store.DeleteUser(s.t.Context(), u.ID)
	must(s.t, err)
}

func TestSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		time.Sleep(time.Hour - time.Minute)
		id := s.otherSession()
		made := time.Now()
		all := s.sessions("alice")
		slices.SortFunc(all, func(a, b codalab.Session) int { return a.Made.Compare(b.Made) })
		if len(all) != 2 || all[1].ID != id || all[1].Current || !all[0].Current || all[1].Program != "Python-urllib/3.6" || all[1].Client != "codalab_cli_client" ||
			all[1].Address != "198.51.100.9" || !all[1].Made.Equal(made) || !all[0].Used.Equal(made) || !all[0].Made.Before(made) {
			t.Errorf("%+v", all)
		}
		if found := s.sessions("bob"); len(found) != 1 {
			t.Errorf("bob sees %+v", found)
		}
		s.call("bob", "DELETE", "/user/sessions/"+id, nil).says(http.StatusNotFound, "You have no session '"+id+"'.")
		s.get("alice's other", "/user").ok()
		s.call("alice", "DELETE", "/user/sessions/"+id, nil).is(http.StatusNoContent)
		s.get("alice's other", "/user").is(http.StatusUnauthorized)
		s.otherSession()
		s.otherSession()
		if n := s.call("alice", "DELETE", "/user/sessions", nil).ok().value("meta", "ended_sessions"); n != 2.0 {
			t.Errorf("%v sessions ended", n)
		}
		s.get("alice's other", "/user").is(http.StatusUnauthorized)
		s.get("alice", "/user").ok()
		s.get("bob", "/user").ok()
	})
}

// The use of a session is noted once in some minutes, and not with each request.
func TestUseOfASessionIsNotedNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		begun := time.Now()
		used := func() time.Duration { return s.sessions("alice")[0].Used.Sub(begun) }
		for _, test := range []struct{ sleep, want time.Duration }{{4 * time.Minute, 0}, {2 * time.Minute, 6 * time.Minute}, {time.Minute, 6 * time.Minute}} {
			time.Sleep(test.sleep)
			if got := used(); got != test.want {
				t.Errorf("used %s after the begin, want %s", got, test.want)
			}
		}
	})
}

func TestRevokedTokenEndsItsSession(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", "alice")).ok()
	b := s.signIn(ourProgram, "192.0.2.1", refreshForm(a.text("refresh_token"))).ok()
	s.tokens["old"], s.tokens["new"] = a.text("access_token"), b.text("access_token")
	s.revokeToken("new")
	for _, ended := range []string{"old", "new"} {
		s.get(ended, "/user").is(http.StatusUnauthorized)
	}
	s.signIn(ourProgram, "192.0.2.1", refreshForm(b.text("refresh_token"))).is(http.StatusUnauthorized)
	s.get("alice", "/user").ok()
}

func TestPasswordChangeEndsAllOtherSessionsAndWorkerTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	change := func(role, old, next string) answer {
		return s.call(role, http.MethodPost, "/user/password", codalab.PasswordChange{Old: old, New: next})
	}
	s.otherSession()
	worker := s.addWorkerToken("alice", "w")
	for _, test := range []struct {
		role, old, next string
		status          int
		sentence        string
	}{
		{"alice", "wrong", "a longer phrase", 403, "The old password is wrong."},
		{"alice", "alice", "short", 400, "a password has at least 10 characters, and this one has 5"},
		{"alice", "alice", "alicealice1", 400, "one of the first that a guesser tries"},
		{worker, "alice", "a longer phrase", 403, "This token is for worker w alone"},
		{"", "alice", "a longer phrase", 401, "User is not authenticated."},
	} {
		change(test.role, test.old, test.next).says(test.status, test.sentence)
	}
	s.get("alice's other", "/user").ok()
	if n := change("alice", "alice", "a longer phrase").ok().value("meta", "ended_sessions"); n != 1.0 {
		t.Errorf("%v sessions ended", n)
	}
	for _, ended := range []string{"alice's other", worker} {
		s.get(ended, "/user").is(http.StatusUnauthorized)
	}
	for _, role := range []string{"alice", "bob"} {
		s.get(role, "/user").ok()
	}
	s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", "alice")).is(http.StatusUnauthorized)
	s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", "a longer phrase")).ok()
}

// The thief of an access token does not get further guesses by changing the password.
func TestGuessesOfTheOldPasswordAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := 0
	for n < 100 && s.call("alice", http.MethodPost, "/user/password", codalab.PasswordChange{Old: "wrong", New: "a longer phrase"}).status == http.StatusForbidden {
		n++
	}
	if n != 10 {
		t.Errorf("%d guesses", n)
	}
	s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", "alice")).ok() // the thief does not lock alice out
}

func TestRefreshTokenThatIsUsedAgainEndsTheSession(t *testing.T) {
	t.Parallel()
	for program, ends := range map[string]bool{ourProgram: true, "Python-urllib/3.6": false} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				first := s.signIn(program, "192.0.2.1", passwordForm("alice", "alice")).ok().text("refresh_token")
				a := s.signIn(program, "192.0.2.1", refreshForm(first)).ok()
				s.tokens["mine"] = a.text("access_token")
				time.Sleep(5 * time.Minute) // a program may have read an old file
				s.signIn(program, "203.0.113.66", refreshForm(first)).is(http.StatusUnauthorized)
				s.get("mine", "/user").ok()
				time.Sleep(29 * 24 * time.Hour) // the owner of the first token was on holiday
				a = s.signIn(program, "192.0.2.1", refreshForm(a.text("refresh_token"))).ok()
				s.tokens["mine"] = a.text("access_token")
				s.loginAgain("alice")
				s.signIn(program, "203.0.113.66", refreshForm(first)).is(http.StatusUnauthorized)
				want := http.StatusOK
				if ends {
					want = http.StatusUnauthorized
				}
				s.get("mine", "/user").is(want)
				s.signIn(program, "192.0.2.1", refreshForm(a.text("refresh_token"))).is(want)
				s.get("alice", "/user").ok() // another session
			})
		})
	}
}

// A login node has one address for a bridge, its users, and somebody who guesses passwords.
func TestGuesserOnALoginNodeLocksNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		const node = "192.0.2.1"
		device := passwordForm("alice", "alice")
		device.Set("device_token", "")
		device.Set("device_token", s.signIn(ourProgram, node, device).ok().text("device_token"))
		for range 100 {
			for _, name := range []string{"alice", "root", "nobody1", "nobody2", "nobody3"} {
				s.signIn("guesser", node, passwordForm(name, "wrong"))
			}
		}
		s.signIn("guesser", node, passwordForm("alice", "wrong")).says(http.StatusTooManyRequests, "Too many failed sign-ins. Try again in ")
		s.signIn("guesser", node, passwordForm("nobody1", "wrong")).is(http.StatusTooManyRequests)
		s.signIn("bridge", node, passwordForm("bob", "bob")).ok() // has signed in from there
		s.signIn(ourProgram, node, device).ok()
		s.signIn(ourProgram, "198.51.100.7", passwordForm("alice", "alice")).ok() // from a place of which nobody knows
	})
}

func TestGuessersFromAnywhereLockNobodyOutWhoIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		right := 0
		for _, from := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"} {
			for range 100 {
				if s.signIn("guesser", from, passwordForm("alice", "wrong")).status == http.StatusUnauthorized {
					right++
				}
			}
		}
		if right != 10 {
			t.Errorf("%d guesses were tried", right)
		}
		s.signIn("cl", "192.0.2.1", passwordForm("alice", "alice")).ok() // she has signed in from there before
		a := s.signIn("cl", "203.0.113.5", passwordForm("alice", "alice")).is(http.StatusTooManyRequests)
		wait, err := time.ParseDuration(a.header.Get("Retry-After") + "s")
		if err != nil || wait > 6*time.Minute {
			t.Errorf("a stranger has to wait for %v, %v", wait, err)
		}
		time.Sleep(wait)
		s.signIn("cl", "203.0.113.5", passwordForm("alice", "alice")).ok()
	})
}

func TestResetByAOneTimeCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		alice := "0x" + strings.Repeat("a", 32)
		newCode := func() string {
			code, hash := server.NewResetCode()
			must(t, s.store.AddReset(t.Context(), alice, hash, time.Now().Add(server.ResetLife)))
			return code
		}
		finalize := func(program bool, code, password, again string) answer {
			form := url.Values{"code": {code}, "password": {password}, "confirm_password": {again}}
			r := httptest.NewRequest(http.MethodPost, server.ResetPath+"/finalize", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if program {
				r.Header.Set("X-Requested-With", "XMLHttpRequest")
			}
			a := s.send(r)
			if page := strings.HasPrefix(a.header.Get("Content-Type"), "text/html"); page != (!program || a.status == http.StatusOK) || strings.Contains(a.body, code) && code != "" && a.status != http.StatusBadRequest {
				t.Errorf("%d %s %s", a.status, a.header, a.body)
			}
			return a
		}
		const phrase = "drei kleine Fische"
		worker := s.addWorkerToken("alice", "w")
		replaced, code := newCode(), newCode()
		for _, program := range []bool{true, false} {
			finalize(program, "", phrase, phrase).says(http.StatusForbidden, "This code is not valid")
			finalize(program, replaced, phrase, phrase).says(http.StatusForbidden, "This code is not valid")
			finalize(program, code, phrase, "another").says(http.StatusBadRequest, "The two passwords differ.")
			finalize(program, code, "<b>", "<b>").says(http.StatusBadRequest, "at least 10 characters, and this one has 3")
		}
		finalize(false, strings.ToLower(strings.ReplaceAll(code, "-", " ")), phrase, phrase).says(http.StatusOK, "The password is changed.")
		finalize(false, code, phrase, phrase).says(http.StatusForbidden, "This code is not valid") // once
		for _, ended := range []string{"alice", worker} {
			s.get(ended, "/user").is(http.StatusUnauthorized)
		}
		s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", phrase)).ok()

		code = newCode()
		time.Sleep(time.Hour)
		finalize(true, code, phrase, phrase).says(http.StatusForbidden, "is older than an hour")
		code = newCode()
		s.tokens["alice"] = s.signIn(ourProgram, "192.0.2.1", passwordForm("alice", phrase)).ok().text("access_token")
		s.call("alice", "POST", "/user/password", codalab.PasswordChange{Old: phrase, New: "vier kleine Fische"}).ok()
		finalize(true, code, phrase, phrase).says(http.StatusForbidden, "This code is not valid") // a change has ended it
	})
}

func TestResetPageLoadsAndTellsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.RequireSignIn = true })
	a := s.send(httptest.NewRequest(http.MethodGet, server.ResetPath, nil)).ok()
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"Referrer-Policy":         "strict-origin", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if got := a.header.Get(header); got != want {
			t.Errorf("%s: %q", header, got)
		}
	}
	for _, word := range []string{"<script", "<link", "<img", "<style", "http://", "https://"} {
		if strings.Contains(a.body, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if a.header.Get("Set-Cookie") != "" {
		t.Error("the page sets a cookie")
	}
}
