package stocktest_test

import (
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// hold is the time for which CodaLab's own server holds an idle check-in.
const hold = 5 * time.Second

func (on *trial) idleHold() {
	w := on.owner().worker(newTag())
	a := w.post().wantStatus(200)
	on.wantEqual("the answer", string(a.body), "[null]")
	on.wantEqual("its type", a.header.Get("Content-Type"), "application/json")
	on.held(a)
}

// held checks that a check-in was held to its end; a busy machine takes longer.
func (on *trial) held(a answer) {
	on.Helper()
	if a.took < hold-100*time.Millisecond || a.took > hold+3*time.Second {
		on.Errorf("%s was held for %s, want %s", a.call, a.took, hold)
	}
}

func (on *trial) oneMessage() {
	u, w := on.ownerWithWorker()
	want := map[string]bool{}
	for range 3 {
		want[u.run(w.id, nil)] = true
	}
	testenv.Await(on, "three runs are offered", func() bool {
		messages := w.messages(w.post())
		if len(messages) > 1 {
			on.Fatalf("%d messages at once", len(messages))
		}
		for _, m := range messages {
			delete(want, bundleOf(m))
		}
		return len(want) == 0
	}, &want)
}

func (on *trial) newerCheckIn() {
	u, w := on.ownerWithWorker()
	uuid := ""
	// A busy server may offer the run after both have ended: try again.
	testenv.Await(on, "the newer check-in gets the run", func() bool {
		older := on.inBackground(func() answer { return w.post() })
		time.Sleep(time.Second)
		newer := on.inBackground(func() answer { return w.post() })
		time.Sleep(time.Second)
		if uuid == "" {
			uuid = u.run(w.id, nil)
		}
		fresh := on.receive(newer).wantStatus(200)
		got := on.receive(older)
		on.wantEqual("the older check-in's answer", string(got.wantStatus(200).body), "[null]")
		on.held(got)
		return strings.Contains(string(fresh.body), uuid)
	})
}

func (on *trial) unheard() {
	u, w := on.ownerWithWorker()
	w.checkIn()
	uuid := u.run(w.id, nil)
	u.awaitState(uuid, codalab.StateStaged)
	u.wantStates(uuid, 5*time.Second, codalab.StateStaged, codalab.StateStarting)
	w.startRunning(uuid)
}
