package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// answered is a check-in under way.
type answered struct {
	messages []codalab.Message
	after    time.Duration
}

func (w *testWorker) checkInAside(runs ...codalab.RunReport) <-chan answered {
	aside := *w
	out, start := make(chan answered, 1), time.Now()
	go func() {
		messages := aside.checkIn(runs...)
		out <- answered{messages, time.Since(start)}
	}()
	return out
}

var cpuQueue = map[string]any{"request_queue": "cpu"}

func TestWaitingCheckInIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		waiting := w.checkInAside()
		synctest.Wait()
		time.Sleep(time.Second)
		uuid := s.run("x", cpuQueue)
		got := <-waiting
		if got.after != time.Second || len(got.messages) != 1 || got.messages[0].Bundle.UUID != uuid {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
	})
}

func TestIdleCheckInIsHeldAndThenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		if got := <-s.worker("alice", "w", "cpu").checkInAside(); got.after != 5*time.Second || got.messages != nil {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
	})
}

func TestNewerCheckInEndsTheOlder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		first := w.checkInAside()
		synctest.Wait()
		time.Sleep(time.Second)
		second := w.checkInAside()
		if got := <-first; got.after != time.Second || got.messages != nil {
			t.Errorf("the older was answered after %v: %+v", got.after, got.messages)
		}
		synctest.Wait()
		s.run("x", cpuQueue)
		if got := <-second; got.after != 0 || len(got.messages) != 1 {
			t.Errorf("the newer was answered after %v: %+v", got.after, got.messages)
		}
	})
}

func TestHeldCheckInsMayReportOneRunEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		var uuids []string
		for range 2 {
			uuids = append(uuids, s.run("x", cpuQueue))
			w.takes()
		}
		first := w.checkInAside(reportOf(uuids[0], codalab.StateRunning))
		synctest.Wait()
		second := w.checkInAside(reportOf(uuids[1], codalab.StateRunning))
		for range 2 {
			select {
			case <-first:
				first = nil
			case <-second:
				second = nil
			}
		}
		for _, uuid := range uuids {
			if b := s.bundle("alice", uuid); b.State != codalab.StateRunning {
				t.Errorf("state %s of a run that one of two check-ins reports", b.State)
			}
		}
		if got := <-w.checkInAside(reportOf(uuids[0], codalab.StateFinalizing)); len(got.messages) != 1 {
			t.Errorf("told %+v", got.messages)
		}
		if b := s.bundle("alice", uuids[1]); b.State != codalab.StateRunning {
			t.Errorf("state %s of a run that the last check-in does not report", b.State)
		}
	})
}

func TestUnclaimedRunIsSentAgainAndThenTakenAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		uuid := s.run("x", cpuQueue)
		start, sent := time.Now(), []time.Duration{}
		for time.Since(start) < 5*time.Minute+10*time.Second {
			for _, m := range w.checkIn() {
				if m.Type == codalab.MessageRun {
					sent = append(sent, time.Since(start))
				}
			}
		}
		// After five minutes it is staged again, and has only this worker to go to.
		if len(sent) != 32 || sent[0] != 0 || sent[1] != 10*time.Second || sent[31] != 5*time.Minute+5*time.Second {
			t.Errorf("sent after %v", sent)
		}
		time.Sleep(2 * time.Minute) // the worker has gone
		if b := s.bundle("alice", uuid); b.State != codalab.StateStaged || b.StateDetails != "No worker serves queue cpu (queues now served: none)." {
			t.Errorf("%s: %s", b.State, b.StateDetails)
		}
		if w.startBundle(uuid) {
			t.Error("a bundle that was taken away was handed out")
		}
		if got := s.worker("alice", "v", "cpu").takes(); got != uuid {
			t.Errorf("another worker took %s", got)
		}
	})
}

func TestKillIsSentAgainEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		waiting := w.checkInAside(reportOf(uuid, codalab.StateRunning))
		synctest.Wait()
		s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
		if got := <-waiting; got.after != 0 || len(got.messages) != 1 || got.messages[0].Type != codalab.MessageKill {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
		if got := <-w.checkInAside(reportOf(uuid, codalab.StateRunning)); got.messages != nil {
			t.Errorf("told %+v", got.messages)
		}
		if got := <-w.checkInAside(reportOf(uuid, codalab.StateRunning)); got.after != 0 || len(got.messages) != 1 {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
	})
}

func TestSilentWorkersRunsGoOffline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		held := s.run("x", cpuQueue)
		w.takes()
		handed := s.run("y", cpuQueue)
		w.told(codalab.MessageRun)
		time.Sleep(80 * time.Second)
		if a, b := s.bundle("alice", held), s.bundle("alice", handed); a.State != codalab.StateWorkerOffline || b.State != codalab.StateStaged {
			t.Errorf("held %s, handed out %s", a.State, b.State)
		}
	})
}

func TestOfflineRunComesBackWithItsWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		running := reportOf(uuid, codalab.StateRunning)
		w.checkIn(running)
		time.Sleep(80 * time.Second)
		s.await(uuid, codalab.StateWorkerOffline)
		w.checkIn(running) // the same report as before
		s.await(uuid, codalab.StateRunning)
	})
}

func TestRunThatItsWorkerHasLostGoesOffline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		for range 20 {
			w.checkIn() // it has started anew, for example
			time.Sleep(5 * time.Second)
		}
		s.await(uuid, codalab.StateWorkerOffline)
	})
}

func TestRunOfAPreemptibleWorkerIsStagedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w, uuid := s.worker("alice", "w", "cpu"), s.run("x", cpuQueue)
		w.info.Preemptible = true
		w.takes()
		w.checkIn(reportOf(uuid, codalab.StateRunning))
		time.Sleep(80 * time.Second)
		if b := s.bundle("alice", uuid); b.State != codalab.StateStaged || b.Metadata.Has("started") {
			t.Errorf("%+v", b)
		}
	})
}

func TestBundlesThatWaitForSixtyDaysFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		owner := s.get("alice", "/user").ok().text("data", "id")
		made := func(state codalab.State, days int) string {
			b := store.Bundle{
				UUID: codalab.NewUUID(), Type: codalab.TypeRun, OwnerID: owner, State: state, Metadata: codalab.Metadata{"name": "x"},
				Created: store.Time{Time: time.Now().AddDate(0, 0, -days)},
			}
			must(t, s.store.CreateBundle(t.Context(), b, ""))
			return b.UUID
		}
		uploading, staged, young := made(codalab.StateUploading, 61), made(codalab.StateStaged, 61), made(codalab.StateStaged, 59)
		child := s.run("y", cpuQueue, codalab.Dependency{ParentUUID: uploading, ChildPath: "in"})
		time.Sleep(10 * time.Second)
		if b := s.await(uploading, codalab.StateFailed); b.Metadata.String("failure_message") != "Bundle has been stuck in uploading state for more than 60 days." {
			t.Errorf("%+v", b)
		}
		s.await(staged, codalab.StateFailed)
		s.await(child, codalab.StateFailed)
		s.await(young, codalab.StateStaged)
	})
}

func TestGivenBackRunIsHandedOutAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, w, uuid := claimedRun(t)
		if m := w.told(codalab.MessageRun, reportOf(uuid, codalab.StateStaged)); m.Bundle.UUID != uuid || m.Bundle.Metadata.Has("started") {
			t.Errorf("told %+v", m.Bundle)
		}
	})
}

func TestRunThatIsGivenBackAfterItsKillIsKilled(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
	w.checkIn(reportOf(uuid, codalab.StateStaged))
	s.await(uuid, codalab.StateKilled)
}

func TestGoneClientGetsNoMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.worker("alice", "w", "cpu")
		ctx, hangUp := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.handler.ServeHTTP(httptest.NewRecorder(), s.request("alice", http.MethodPost, "/workers/w/checkin", w.info).WithContext(ctx))
		}()
		synctest.Wait()
		hangUp()
		<-over
		s.run("x", cpuQueue)
		if got := <-w.checkInAside(); len(got.messages) != 1 || got.after != 0 {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
	})
}

func TestStoppedServerHoldsNoCheckIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		stop := s.start(func(c *server.Config) { c.Hold = time.Hour })
		w := s.worker("alice", "w", "cpu")
		waiting := w.checkInAside()
		synctest.Wait()
		stop()
		if got := <-waiting; got.after != 0 || got.messages != nil {
			t.Errorf("answered after %v: %+v", got.after, got.messages)
		}
		if got := <-w.checkInAside(); got.after != 0 {
			t.Errorf("one that came later was answered after %v", got.after)
		}
	})
}

func TestRunsOfAWorkerTakeItsRoom(t *testing.T) {
	t.Parallel()
	for _, request := range []map[string]any{{"request_cpus": 3}, {"request_gpus": 1}, {"request_memory": "9g"}} {
		synctest.Test(t, func(t *testing.T) {
			request["request_queue"] = "cpu"
			s := newSite(t)
			w := s.worker("alice", "w", "cpu") // with 4 CPUs, a GPU and 16 GiB
			first := s.run("x", request)
			time.Sleep(time.Second)
			second := s.run("y", request)
			if got := w.takes(); got != first {
				t.Errorf("%v: took %s", request, got)
			}
			if b := s.bundle("alice", second); b.State != codalab.StateStaged {
				t.Errorf("%v: the second is %s beside the first", request, b.State)
			}
			w.told(codalab.MessageMarkFinalized, reportOf(first, codalab.StateFinalizing))
			if got := w.takes(); got != second {
				t.Errorf("%v: then took %s", request, got)
			}
		})
	}
}

func TestUsageIsStoredNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		run := reportOf(uuid, codalab.StateRunning)
		stored := []float64{}
		for second := range 12 {
			run.ContainerTimeTotal = float64(5 * second)
			w.checkIn(run) // is held for five seconds
			stored = append(stored, s.bundle("alice", uuid).Metadata.Float("time"))
		}
		if want := []float64{0, 0, 0, 0, 0, 0, 0, 35, 35, 35, 35, 35}; !slices.Equal(stored, want) {
			t.Errorf("stored %v, want %v", stored, want)
		}
	})
}

func TestQueueThatTakesNoBundlesSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		uuid := s.run("x", cpuQueue)
		w := s.worker("alice", "w", "cpu")
		room := w.info
		w.info.CPUs, w.info.FreeDiskBytes, w.info.ExitAfterNumRuns = 0, 0, 0
		for closed, want := range map[string]string{
			"the site's disk has 1.2g free": "Queue cpu takes no new bundles now: the site's disk has 1.2g free.",
			"It\nis \x1b[2Jclosed.":         `Queue cpu takes no new bundles now: It is \u001b[2Jclosed.`,
			strings.Repeat("é", 9000):       "Queue cpu takes no new bundles now: " + strings.Repeat("é", 128) + ".",
			"":                              "No worker of queue cpu has room now; the bundle runs when one has.",
		} {
			w.info.Closed = closed
			w.checkIn()
			if b := s.bundle("alice", uuid); b.StateDetails != want {
				t.Errorf("%s: %s", b.State, b.StateDetails)
			}
		}
		w.info = room
		w.takes()
	})
}

func TestWorkersAreFilledAndNotOverfilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var uuids []string
		for range 6 {
			uuids = append(uuids, s.run("x", cpuQueue))
			time.Sleep(time.Second)
		}
		w := s.worker("alice", "w", "cpu") // with four CPUs
		got := w.checkIn()
		for i, m := range got {
			if m.Bundle.UUID != uuids[i] {
				t.Errorf("message %d is for %s", i, m.Bundle.UUID)
			}
			w.startBundle(m.Bundle.UUID)
		}
		if len(got) != 4 {
			t.Fatalf("told to run %d", len(got))
		}
		if b := s.bundle("alice", uuids[5]); b.StateDetails != "No worker of queue cpu has room now; the bundle runs when one has." {
			t.Errorf("%s: %s", b.State, b.StateDetails)
		}
		w.told(codalab.MessageMarkFinalized, reportOf(uuids[2], codalab.StateFinalizing))
		if m := w.told(codalab.MessageRun); m.Bundle.UUID != uuids[4] {
			t.Errorf("told to run %s", m.Bundle.UUID)
		}
	})
}
