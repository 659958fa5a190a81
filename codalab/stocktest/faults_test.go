package stocktest_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
)

func TestLostAnswerWithAnAcknowledgementEndsTheRun(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	faults := stocktest.Faults{LoseAnswer: func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/checkin") && lose.Load()
	}}
	atStandIn(t, faults, func(on *trial, _ *stocktest.Server) {
		u, w, uuid := on.runningRun()
		w.checkIn() // no other check-in waits for an answer
		lose.Store(true)
		if a := w.post(ended(uuid, 0)); a.err == nil {
			on.Errorf("the answer %s was not lost", a)
		}
		u.awaitState(uuid, codalab.StateReady)
		lose.Store(false)
		if messages := w.checkIn(); len(messages) > 0 {
			on.Errorf("the lost message came again: %v", messages)
		}
	})
}

func TestCheckInThatIsLateBringsARunBack(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	faults := stocktest.Faults{BeforeCheckIn: func() {
		if slow.Swap(false) {
			time.Sleep(time.Minute / 2)
		}
	}}
	atStandIn(t, faults, func(on *trial, _ *stocktest.Server) {
		u, w, uuid := on.claimedRun()
		slow.Store(true)
		w.startCheckIn(running(uuid))
		synctest.Wait()
		w.finishReady(uuid)
		u.awaitState(uuid, codalab.StateWorkerOffline)
	})
}

func TestRestartBreaksCheckInsAndDroppedTokensAreRefused(t *testing.T) {
	t.Parallel()
	atStandIn(t, stocktest.Faults{}, func(on *trial, s *stocktest.Server) {
		_, w := on.ownerWithWorker()
		w.post().wantStatus(http.StatusOK)
		time.AfterFunc(time.Second, s.Restart)
		if a := w.post(); a.err == nil {
			on.Errorf("a check-in outlived the restart: %s", a)
		}
		s.DropTokens()
		w.post().wantStatus(http.StatusUnauthorized)
	})
}
