package manners

import (
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The stock server holds an idle check-in for this long.
const hold = 5 * time.Second

func (on *trial) idleHold() {
	w := on.owner().worker(newTag())
	a := w.post().is(200)
	on.equal("the answer", string(a.body), "[null]")
	on.equal("its type", a.header.Get("Content-Type"), "application/json")
	on.held(a)
}

// held says whether a check-in was held to its end; a busy machine is slower.
func (on *trial) held(a answer) {
	on.Helper()
	if a.took < hold-100*time.Millisecond || a.took > hold+3*time.Second {
		on.Errorf("%s was held for %s, want %s", a.call, a.took, hold)
	}
}

func (on *trial) oneMessage() {
	u := on.owner()
	w := u.worker(newTag())
	want := map[string]bool{}
	for range 3 {
		want[u.run(w.id, nil)] = true
	}
	for end := time.Now().Add(patience); len(want) > 0; {
		if time.Now().After(end) {
			on.Fatalf("%d runs were not offered", len(want))
		}
		said := w.messages(w.post())
		if len(said) > 1 {
			on.Fatalf("%d messages at once", len(said))
		}
		for _, m := range said {
			delete(want, about(m))
		}
	}
}

func (on *trial) newerCheckIn() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := ""
	// A server with much to do offers the run after both have ended: then two others are
	// tried.
	for end := time.Now().Add(patience); time.Now().Before(end); {
		older := on.later(func() answer { return w.post() })
		time.Sleep(time.Second)
		newer := on.later(func() answer { return w.post() })
		time.Sleep(time.Second)
		if uuid == "" {
			uuid = u.run(w.id, nil)
		}
		said := on.receive(newer).is(200)
		got := on.receive(older)
		on.equal("the older check-in's answer", string(got.is(200).body), "[null]")
		on.held(got)
		if strings.Contains(string(said.body), uuid) {
			return
		}
	}
	on.Error("the newer check-in never got the run")
}

func (on *trial) unheard() {
	u := on.owner()
	w := u.worker(newTag())
	w.checkIn()
	uuid := u.run(w.id, nil)
	u.reaches(uuid, codalab.StateStaged)
	u.stays(uuid, 5*time.Second, codalab.StateStaged, codalab.StateStarting)
	w.begin(uuid)
}
