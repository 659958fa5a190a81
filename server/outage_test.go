package server_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// outage calls test with a site on PostgreSQL, and with a proxy that can cut the site off from it. Time is
// simulated.
func outage(t *testing.T, test func(s *site, dir string, database *testenv.Proxy)) {
	t.Helper()
	database := testenv.PostgresProxy(t) // network connections of a bubble's own would stop its time
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSiteAt(t, dir, database.URL, func(c *server.Config) { c.Hold = time.Millisecond })
		synctest.Wait() // until Run has begun
		test(s, dir, database)
	})
}

// isSound checks that the data have nothing that fsck would report. Contents that no bundle names are
// removed first, as at the start of a server.
func (s *site) isSound() {
	s.t.Helper()
	_, err := s.store.Sweep(context.Background())
	must(s.t, err)
	_, err = s.store.Check(context.Background(), false, func(f store.Finding) { s.t.Errorf("%+v", f) })
	must(s.t, err)
}

const noDatabase = "database does not answer"

func TestRequestsWaitForADatabaseThatRestarts(t *testing.T) {
	t.Parallel()
	outage(t, func(s *site, _ string, database *testenv.Proxy) {
		database.Down()
		time.AfterFunc(20*time.Second, database.Up)
		s.await(s.run("x", cpuQueue), codalab.StateStaged)
		s.isSound()
	})
}

// TestServerOutlivesItsDatabase loses the database for an hour.
func TestServerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	outage(t, func(s *site, _ string, database *testenv.Proxy) {
		data := s.upload("data", "kept")
		w, running := s.worker("alice", "w", "cpu"), s.run("x", cpuQueue)
		w.takes()
		job := s.run("cat in", map[string]any{"request_queue": "other"}, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
		database.Down()
		began := time.Now()
		s.get("alice", "/user").says(http.StatusServiceUnavailable, noDatabase)
		s.get("", "/bundles/"+data).says(http.StatusServiceUnavailable, noDatabase)
		s.call("alice", "POST", "/bundles?worksheet=0x"+strings.Repeat("1", 32), object("bundles", nil)).says(http.StatusServiceUnavailable, noDatabase)
		in := checkInOf(w, reportOf(running, codalab.StateFinalizing))
		s.call("alice", "POST", "/workers/w/checkin", in).says(http.StatusServiceUnavailable, noDatabase)
		form := map[string][]string{"grant_type": {"password"}, "username": {"alice"}, "password": {"alice"}}
		s.grant("codalab_cli_client", form).says(http.StatusServiceUnavailable, noDatabase)
		if took := time.Since(began) / 5; took > 35*time.Second {
			t.Errorf("a refusal takes %s", took)
		}
		time.Sleep(time.Hour)
		database.Up()
		s.loginAgain("alice", "root") // tokens are valid for an hour
		s.await(job, codalab.StateStaged)
		w.told(codalab.MessageMarkFinalized, reportOf(running, codalab.StateFinalizing)) // it reports again
		if a := s.get("alice", "/bundles/"+data+"/contents/blob/").ok(); a.body != "kept" {
			t.Errorf("%q", a.body)
		}
		s.upload("more", "x")
		s.isSound()
	})
}

// TestUploadDuringAnOutageIsNoBundle loses the database while contents come in.
func TestUploadDuringAnOutageIsNoBundle(t *testing.T) {
	t.Parallel()
	outage(t, func(s *site, dir string, database *testenv.Proxy) {
		uuid := s.dataset("data")
		body, send := io.Pipe()
		done := make(chan answer)
		go func() { done <- s.put(uuid, "filename=x&unpack=0", body) }()
		_, err := io.WriteString(send, "half of ")
		must(t, err)
		database.Down()
		_, err = io.WriteString(send, "it")
		must(t, err)
		must(t, send.Close())
		(<-done).says(http.StatusServiceUnavailable, noDatabase)
		database.Up()
		s.get("alice", "/bundles/"+uuid+"/contents/blob/").is(http.StatusNotFound)
		if b := s.bundle("alice", uuid); b.State != codalab.StateUploading {
			t.Errorf("the bundle is %s", b.State)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "bundles")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		s.put(uuid, "filename=x&unpack=0", "again").ok()
		s.isSound()
	})
}

// TestContentsFitTheirRowAfterABrokenCommit breaks the connection while the end of an upload is
// committed.
func TestContentsFitTheirRowAfterABrokenCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		how    testenv.Breakage
		status int
		ready  bool
	}{
		"lost":                                  {testenv.Breakage{}, http.StatusOK, true},
		"lost, and the database waits for it":   {testenv.Breakage{Unnoticed: true}, http.StatusOK, true},
		"answer lost":                           {testenv.Breakage{Arrives: true}, http.StatusOK, true},
		"lost, and the database is gone":        {testenv.Breakage{Down: true}, http.StatusServiceUnavailable, false},
		"answer lost, and the database is gone": {testenv.Breakage{Arrives: true, Down: true}, http.StatusServiceUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outage(t, func(s *site, _ string, database *testenv.Proxy) {
				uuid := s.dataset("data")
				database.BreakCommit(test.how)
				a := s.put(uuid, "filename=x&unpack=0&finalize_on_failure=1", "whole")
				database.Up()
				if a.status != test.status || !database.Broke() {
					s.t.Errorf("%d %s, broken: %t", a.status, a.body, database.Broke())
				}
				b, contents := s.bundle("alice", uuid), s.get("alice", "/bundles/"+uuid+"/contents/blob/")
				if test.ready != (b.State == codalab.StateReady) || test.ready != (contents.status == http.StatusOK) || test.ready && contents.body != "whole" {
					s.t.Errorf("%s, %d %q", b.State, contents.status, contents.body)
				}
				s.isSound()
			})
		})
	}
}
