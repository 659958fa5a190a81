package manners

import (
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func (on *trial) killQueued() {
	u := on.owner()
	uuid := u.run(newTag(), nil)
	u.reaches(uuid, codalab.StateStaged)
	u.kill(uuid).is(http.StatusOK)
	u.isIn(uuid, codalab.StateKilled)
	on.actions(u.find(uuid), "kill")
}

func (on *trial) actions(b codalab.Bundle, want ...string) {
	on.Helper()
	if got := b.Metadata.Strings("actions"); !slices.Equal(got, want) {
		on.Errorf("actions are %q, want %q", got, want)
	}
}

func (on *trial) killHeld() {
	u, w, uuid := on.begun()
	done := on.later(func() answer { return u.kill(uuid) })
	m := w.await(codalab.MessageKill, uuid)
	if _, ok := m["kill_message"]; ok {
		on.Errorf("the message is %v, want it without a reason", m)
	}
	on.receive(done).is(http.StatusOK)
	u.isIn(uuid, codalab.StateRunning)
	on.actions(u.find(uuid), "kill")
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 137), "failure_message", "Kill requested"))
	u.reaches(uuid, codalab.StateKilled)
}

func (on *trial) killOffline() {
	u, w, uuid := on.made()
	w.await(codalab.MessageRun, uuid)
	w.start(uuid, time.Now().Add(-time.Hour))
	u.reaches(uuid, codalab.StateWorkerOffline)
	u.kill(uuid).is(http.StatusOK)
	u.isIn(uuid, codalab.StateKilled)
	// Its worker knows nothing of it, and has no message to expect.
	w.checkIn(running(uuid))
	u.reaches(uuid, codalab.StateWorkerOffline)
	w.revive(uuid)
	on.actions(w.succeed(uuid), "kill")
}

func (on *trial) writeQueued() {
	u := on.owner()
	uuid := u.run(newTag(), nil)
	u.reaches(uuid, codalab.StateStaged)
	u.write(uuid, "f", "hello").is(http.StatusOK)
	u.isIn(uuid, codalab.StateKilled)
	on.actions(u.find(uuid), "write\tf\thello")
}

func (on *trial) actionTooLate() {
	u, _, uuid := on.finished()
	const words = "Cannot execute this action on a bundle that is in the following states: ready, failed, killed."
	u.kill(uuid).is(http.StatusBadRequest, words)
	u.write(uuid, "f", "x").is(http.StatusBadRequest, words)
	on.actions(u.find(uuid))
}

func (on *trial) write() {
	u, w, uuid := on.begun()
	u.write(uuid, "a/b", "x").is(http.StatusBadRequest)
	done := on.later(func() answer {
		return u.write(uuid, "f", "hello")
	})
	m := w.await(codalab.MessageWrite, uuid)
	if m["subpath"] != "f" || m["string"] != "hello" {
		on.Errorf("the message is %v", m)
	}
	on.receive(done).is(http.StatusOK)
	on.actions(u.find(uuid), "write\tf\thello")
}

func (on *trial) strangers() {
	u, c := on.owner(), on.colleague()
	uuid := u.run(newTag(), nil)
	u.reaches(uuid, codalab.StateStaged)
	c.kill(uuid).is(http.StatusForbidden, "does not have sufficient permissions on bundle "+uuid)
	c.call("GET", "/bundles/"+uuid+"/contents/info/", nil).is(http.StatusForbidden, "does not have sufficient permissions")
	c.remove(uuid).is(http.StatusForbidden)
	on.equal("its type for a stranger", c.find(uuid).Type, codalab.TypePrivate)
	u.isIn(uuid, codalab.StateStaged)
}

func (on *trial) removeActive() {
	u, _, uuid := on.begun()
	u.remove(uuid).
		is(http.StatusBadRequest, "Can't delete bundles: "+uuid)
}

func (on *trial) netcat() {
	u, w, uuid := on.taken()
	cat := func() answer {
		return u.call("PUT", "/bundles/"+uuid+"/netcat/8080/", object{"message": "ping"})
	}
	cat().is(http.StatusForbidden, "Cannot netcat bundle, bundle not running.")
	w.revive(uuid)
	done := on.later(cat)
	m := w.await(codalab.MessageNetcat, uuid)
	if m["port"] != 8080.0 || m["message"] != "ping" {
		on.Errorf("the message is %v", m)
	}
	w.repliesData(m, []byte("pong"))
	on.equal("the answer", string(on.receive(done).is(http.StatusOK).body), "pong")
	for code, want := range map[int]int{400: 400, 403: 403, 418: 400, 500: 500} {
		done := on.later(cat)
		w.repliesError(w.await(codalab.MessageNetcat, uuid), code)
		on.receive(done).isError(want)
	}
}
