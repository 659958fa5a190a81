package stocktest_test

import (
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func (on *trial) actions(b codalab.Bundle, want ...string) {
	on.Helper()
	if got := b.Metadata.Strings("actions"); !slices.Equal(got, want) {
		on.Errorf("actions are %q, want %q", got, want)
	}
}

func (on *trial) killHeld() {
	u, w, uuid := on.runningRun()
	done := on.inBackground(func() answer { return u.kill(uuid) })
	m := w.await(codalab.MessageKill, uuid)
	if _, ok := m["kill_message"]; ok {
		on.Errorf("the message is %v, want it without a reason", m)
	}
	on.receive(done).wantStatus(http.StatusOK)
	u.wantState(uuid, codalab.StateRunning)
	on.actions(u.bundle(uuid), "kill")
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 137), "failure_message", "Kill requested"))
	u.awaitState(uuid, codalab.StateKilled)
}

func (on *trial) killOffline() {
	u, w, uuid := on.newRun()
	w.await(codalab.MessageRun, uuid)
	w.start(uuid, time.Now().Add(-time.Hour))
	u.awaitState(uuid, codalab.StateWorkerOffline)
	u.kill(uuid).wantStatus(http.StatusOK)
	u.wantState(uuid, codalab.StateKilled)
	// The worker does not know of the kill: the server sends no message.
	w.checkIn(running(uuid))
	u.awaitState(uuid, codalab.StateWorkerOffline)
	w.reportRunning(uuid)
	on.actions(w.finishReady(uuid), "kill")
}

func (on *trial) write() {
	u, w, uuid := on.runningRun()
	u.write(uuid, "a/b", "x").wantStatus(http.StatusBadRequest)
	done := on.inBackground(func() answer {
		return u.write(uuid, "f", "hello")
	})
	m := w.await(codalab.MessageWrite, uuid)
	if m["subpath"] != "f" || m["string"] != "hello" {
		on.Errorf("the message is %v", m)
	}
	on.receive(done).wantStatus(http.StatusOK)
	on.actions(u.bundle(uuid), "write\tf\thello")
}
