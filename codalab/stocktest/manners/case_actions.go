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
	u.act(object{"type": "kill", "uuid": uuid}).is(http.StatusOK)
	b := u.find(uuid)
	on.equal("the state", string(b.State), "killed")
	on.actions(b, "kill")
}

func (on *trial) actions(b codalab.Bundle, want ...string) {
	on.Helper()
	if got := b.Metadata.Strings("actions"); !slices.Equal(got, want) {
		on.Errorf("actions are %q, want %q", got, want)
	}
}

func (on *trial) killHeld() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	done := on.later(func() answer { return u.act(object{"type": "kill", "uuid": uuid}) })
	m := w.await(codalab.MessageKill, uuid)
	if _, ok := m["kill_message"]; ok {
		on.Errorf("the message is %v, want it without a reason", m)
	}
	on.receive(done).is(http.StatusOK)
	b := u.find(uuid)
	on.equal("the state", string(b.State), "running")
	on.actions(b, "kill")
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 137), "failure_message", "Kill requested"))
	u.reaches(uuid, codalab.StateKilled)
}

func (on *trial) killOffline() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	w.start(uuid, time.Now().Add(-time.Hour))
	u.reaches(uuid, codalab.StateWorkerOffline)
	u.act(object{"type": "kill", "uuid": uuid}).is(http.StatusOK)
	on.equal("the state", string(u.find(uuid).State), "killed")
	// Its worker knows nothing of it, and has no message to expect.
	w.checkIn(running(uuid))
	u.reaches(uuid, codalab.StateWorkerOffline)
	w.tells(running(uuid))
	u.reaches(uuid, codalab.StateRunning)
	w.finish(uuid, 0)
	on.actions(u.reaches(uuid, codalab.StateReady), "kill")
}

func (on *trial) writeQueued() {
	u := on.owner()
	uuid := u.run(newTag(), nil)
	u.reaches(uuid, codalab.StateStaged)
	u.act(object{"type": "write", "uuid": uuid, "subpath": "f", "string": "hello"}).is(http.StatusOK)
	b := u.find(uuid)
	on.equal("the state", string(b.State), "killed")
	on.actions(b, "write\tf\thello")
}

func (on *trial) actionTooLate() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
	const words = "Cannot execute this action on a bundle that is in the following states: ready, failed, killed."
	u.act(object{"type": "kill", "uuid": uuid}).is(http.StatusBadRequest, words)
	u.act(object{"type": "write", "uuid": uuid, "subpath": "f", "string": "x"}).is(http.StatusBadRequest, words)
	on.actions(u.find(uuid))
}

func (on *trial) write() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	u.act(object{"type": "write", "uuid": uuid, "subpath": "a/b", "string": "x"}).is(http.StatusBadRequest)
	done := on.later(func() answer {
		return u.act(object{"type": "write", "uuid": uuid, "subpath": "f", "string": "hello"})
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
	c.act(object{"type": "kill", "uuid": uuid}).is(http.StatusForbidden, "does not have sufficient permissions on bundle "+uuid)
	c.call("GET", "/bundles/"+uuid+"/contents/info/", nil).is(http.StatusForbidden, "does not have sufficient permissions")
	c.call("DELETE", "/bundles?force=1", object{"data": []object{{"type": "bundles", "id": uuid}}}).is(http.StatusForbidden)
	var doc codalab.Document
	c.call("GET", "/bundles/"+uuid, nil).into(&doc)
	var b codalab.Bundle
	if found, err := doc.Objects(); err != nil || len(found) != 1 || found[0].Decode(&b) != nil {
		on.Fatalf("GET /bundles/%s: %s, %v", uuid, doc.Data, err)
	}
	on.equal("its type for who may not read it", b.Type, codalab.TypePrivate)
	on.equal("the state", string(u.find(uuid).State), "staged")
}

func (on *trial) removeActive() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	u.call("DELETE", "/bundles?force=1", object{"data": []object{{"type": "bundles", "id": uuid}}}).
		is(http.StatusBadRequest, "Can't delete bundles: "+uuid)
}

func (on *trial) netcat() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.take(uuid)
	cat := func() answer {
		return u.call("PUT", "/bundles/"+uuid+"/netcat/8080/", object{"message": "ping"})
	}
	cat().is(http.StatusForbidden, "Cannot netcat bundle, bundle not running.")
	w.tells(running(uuid))
	u.reaches(uuid, codalab.StateRunning)
	answers := func(header string, body string) answer {
		done := on.later(cat)
		m := w.await(codalab.MessageNetcat, uuid)
		if m["port"] != 8080.0 || m["message"] != "ping" {
			on.Errorf("the message is %v", m)
		}
		w.repliesData(m, header, []byte(body))
		return on.receive(done)
	}
	on.equal("the answer", string(answers("{}", "pong").is(http.StatusOK).body), "pong")
	w.refusesNetcat(uuid, cat, 400, http.StatusBadRequest, "No netcat here.")
	w.refusesNetcat(uuid, cat, 403, http.StatusForbidden, "No netcat here.")
	w.refusesNetcat(uuid, cat, 418, http.StatusBadRequest, "No netcat here.")
	w.refusesNetcat(uuid, cat, 500, http.StatusInternalServerError, internalError)
}

// refusesNetcat answers a netcat with an error, as reply takes it.
func (w *worker) refusesNetcat(uuid string, cat func() answer, code, want int, words string) {
	w.Helper()
	done := w.later(cat)
	m := w.await(codalab.MessageNetcat, uuid)
	w.replies(m, object{"error_code": code, "error_message": "No netcat here."})
	w.receive(done).is(want, words)
}
