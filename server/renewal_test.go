package server_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const day = 24 * time.Hour

// addLongToken is addWorkerToken with another validity.
func (s *site) addLongToken(user, worker string, life time.Duration) (role string) {
	s.t.Helper()
	role = user + "'s long worker"
	s.tokens[role] = s.call(user, http.MethodPost, "/workers/"+worker+"/token",
		codalab.WorkerTokenRequest{Seconds: int64(life / time.Second)}).ok().text("access_token")
	return role
}

// keep names a token of a role, which is going to have another one.
func (s *site) keep(role, name string) string {
	s.tokens[name] = s.tokens[role]
	return name
}

func TestWorkerRenewsItsOwnToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		role := s.addWorkerToken("alice", "w")
		time.Sleep(40 * time.Minute)
		s.call(role, "POST", "/workers/other/token", nil).says(http.StatusForbidden, "This token is for worker w alone, and not for worker other.")
		s.call(role, "POST", "/workers/w/token", codalab.WorkerTokenRequest{Seconds: 7200}).says(http.StatusBadRequest, "leave out seconds")
		old := s.keep(role, "old")
		if life, latest := s.renewWorkerToken(role); life != time.Hour || latest != 35*day-40*time.Minute {
			t.Errorf("valid for %v, the last one for %v", life, latest)
		}
		s.get(old, "/user").ok()
		s.get(role, "/user").ok()
		s.call(role, "PATCH", "/user", nil).says(http.StatusForbidden, "This token is for worker w alone")
		time.Sleep(20 * time.Minute)
		s.get(old, "/user").is(http.StatusUnauthorized)
		time.Sleep(40*time.Minute - time.Second)
		s.renewWorkerToken(role)
		time.Sleep(time.Hour - time.Second)
		s.get(role, "/user").ok()
		time.Sleep(time.Second)
		s.get(role, "/user").is(http.StatusUnauthorized)
		s.call(role, "POST", "/workers/w/token", codalab.WorkerTokenRequest{}).is(http.StatusUnauthorized)
	})
}

// The thief of a token can renew it, too.
func TestNoRenewalIsValidLongerThanThirtyFiveDaysAfterTheLogin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		role := s.addLongToken("alice", "w", 20*day)
		for _, want := range []struct{ after, life, latest time.Duration }{
			{10 * day, 20 * day, 25 * day}, {15 * day, 10 * day, 10 * day}, {9 * day, day, day},
		} {
			time.Sleep(want.after)
			if life, latest := s.renewWorkerToken(role); life != want.life || latest != want.latest {
				t.Errorf("valid for %v, the last one for %v, want %v", life, latest, want)
			}
		}
		time.Sleep(day - time.Second)
		s.get(role, "/user").ok()
		time.Sleep(time.Second)
		s.get(role, "/user").is(http.StatusUnauthorized)
	})
}

// A worker that got no answer renews with the same token again. However often it does, it has few tokens: that of the
// login, two of this start, and those of the one before, with which it can do nothing.
func TestRenewalEndsTheRenewedTokensButTheOneBefore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	role := s.addWorkerToken("alice", "w")
	first := s.keep(role, "first")
	s.renewWorkerToken(role)
	lost := s.keep(role, "lost")
	s.tokens[role] = s.tokens[first]
	s.renewWorkerToken(role)
	s.call(lost, "POST", "/workers/w/checkin", codalab.CheckIn{}).is(http.StatusGone)
	second := s.keep(role, "second")
	s.renewWorkerToken(role)
	third := s.keep(role, "third")
	for _, valid := range []string{first, second, third} {
		s.get(valid, "/user").ok()
	}
	s.renewWorkerToken(role)
	s.get(second, "/user").is(http.StatusUnauthorized)
	for _, valid := range []string{first, third, role} {
		s.get(valid, "/user").ok()
	}
}

func TestEndOfAWorkersTokensEndsTheRenewedOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	role := s.addWorkerToken("alice", "w")
	first := s.keep(role, "first")
	s.renewWorkerToken(role)
	others := []string{s.addLongToken("alice", "w2", time.Hour), s.addWorkerToken("bob", "w"), s.addWorkerToken("root", "w")}
	for _, user := range []string{"bob", "root"} { // theirs only
		s.call(user, "DELETE", "/workers/w/token", nil).is(http.StatusNoContent)
	}
	s.get(others[1], "/user").is(http.StatusUnauthorized)
	s.get(first, "/user").ok()
	s.call(role, "DELETE", "/workers/w/token", nil).is(http.StatusForbidden)
	for range 2 {
		s.call("alice", "DELETE", "/workers/w/token", nil).is(http.StatusNoContent)
		for _, ended := range []string{first, role} {
			s.get(ended, "/user").is(http.StatusUnauthorized)
			s.call(ended, "POST", "/workers/w/token", codalab.WorkerTokenRequest{}).is(http.StatusUnauthorized)
		}
	}
	s.get(others[0], "/user").ok()
	s.get(s.addWorkerToken("alice", "w"), "/user").ok()
}

func TestRenewalWhileTheTokensEndLeavesNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 20 {
		role := s.addWorkerToken("alice", "w")
		renewed := make([]answer, 4)
		var both sync.WaitGroup
		for i := range renewed {
			both.Go(func() { renewed[i] = s.call(role, "POST", "/workers/w/token", codalab.WorkerTokenRequest{}) })
		}
		both.Go(func() { s.call("alice", "DELETE", "/workers/w/token", nil).is(http.StatusNoContent) })
		both.Wait()
		for _, a := range renewed {
			if a.status == http.StatusOK {
				s.tokens["late"] = a.text("access_token")
				s.get("late", "/user").is(http.StatusUnauthorized)
			} else if a.status != http.StatusUnauthorized {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
}
