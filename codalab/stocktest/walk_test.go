package stocktest_test

import (
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func (on *trial) claim() {
	u := on.owner()
	w, other := u.worker(newTag()), u.worker(newTag())
	uuid := u.run(w.id, nil)
	if w.start(uuid, time.Now()) {
		on.Error("a run that was not offered was claimed")
	}
	w.await(codalab.MessageRun, uuid)
	if other.start(uuid, time.Now()) {
		on.Error("another worker claimed the run")
	}
	u.wantState(uuid, codalab.StateStarting)
	for range 2 { // the answer to the first claim may have been lost
		w.claim(uuid, time.Now())
	}
}

func (on *trial) claimAgain() {
	u, w, uuid := on.runningRun()
	w.claim(uuid, time.Now())
	u.wantState(uuid, codalab.StatePreparing)
	if got := u.bundle(uuid).Metadata.Strings("remote_history"); !slices.Equal(got, []string{"node7", "node7"}) {
		on.Errorf("remote_history is %q", got)
	}
}

func (on *trial) walkReady() {
	u, w, uuid := on.newRun()
	now := time.Now()
	w.awaitAndClaim(uuid)
	b := u.awaitState(uuid, codalab.StatePreparing)
	on.wantEqual("run_status", b.Metadata.String("run_status"), "Waiting for worker to download bundle dependencies and Docker image to run the bundle.")
	on.wantEqual("remote", b.Metadata.String("remote"), "node7")
	if got := b.Metadata.Strings("remote_history"); !slices.Equal(got, []string{"node7"}) {
		on.Errorf("remote_history is %q", got)
	}
	if got := b.Metadata.Int("started"); got < now.Unix() || got > now.Unix()+int64(testenv.WaitLimit/time.Second) {
		on.Errorf("started is %d, want %d", got, now.Unix())
	}
	w.startCheckIn(running(uuid))
	b = u.awaitState(uuid, codalab.StateRunning)
	on.wantEqual("run_status", b.Metadata.String("run_status"), "Played by a test.")
	for key, want := range map[string]float64{"time": 1.5, "time_user": 1, "time_system": .5, "cpu_usage": .5, "memory_usage": .25, "data_size": 4096, "time_running": 1} {
		if got := b.Metadata.Float(key); got != want {
			on.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	b = w.finishReady(uuid)
	on.wantEqual("run_status", b.Metadata.String("run_status"), "Finished")
	if !b.Metadata.Has("exitcode") || b.Metadata.Int("exitcode") != 0 || b.Metadata.Has("failure_message") {
		on.Errorf("exitcode %v, failure_message %v", b.Metadata["exitcode"], b.Metadata["failure_message"])
	}
}

func (on *trial) walkEnds() {
	u, w := on.ownerWithWorker()
	for message, end := range map[string]struct {
		exit    int
		failure any
		state   codalab.State
	}{
		"Exit code 3":             {3, nil, codalab.StateFailed},
		"Kill requested: enough.": {137, "Kill requested: enough.", codalab.StateKilled},
	} {
		uuid := u.run(w.id, nil)
		w.startRunning(uuid)
		w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, end.exit), "failure_message", end.failure))
		b := u.awaitState(uuid, end.state)
		on.wantEqual("failure_message", b.Metadata.String("failure_message"), message)
	}
}

// takenTwo are two runs that one worker has claimed.
func (on *trial) takenTwo() (u *user, w *worker, one, other string) {
	u = on.owner()
	w = u.worker(newTag())
	one, other = u.run(w.id, nil), u.run(w.id, nil)
	for range 2 {
		w.claim(w.offered(), time.Now())
	}
	return u, w, one, other
}

func (on *trial) unlisted() {
	u, w, preparing, begun := on.takenTwo()
	w.reportRunning(begun)
	w.wantNoMessage(12 * time.Second)
	u.wantState(begun, codalab.StateRunning)
	u.wantState(preparing, codalab.StatePreparing)
}

func (on *trial) listedOnce() {
	u, w, a, b := on.takenTwo()
	// A check-in gets one message. So the second one comes to a check-in that reports nothing.
	var acked []string
	reports := []object{ended(a, 0), ended(b, 0)}
	testenv.Await(on, "both ends are acknowledged", func() bool {
		for _, m := range w.checkIn(reports...) {
			on.wantEqual("the message", m["type"].(string), "mark_finalized")
			acked = append(acked, bundleOf(m))
		}
		reports = nil
		return len(acked) >= 2
	}, &acked)
	slices.Sort(acked)
	want := []string{a, b}
	slices.Sort(want)
	if !slices.Equal(acked, want) {
		on.Errorf("acknowledged are %s, want %s", acked, want)
	}
	u.awaitState(a, codalab.StateReady)
	u.awaitState(b, codalab.StateReady)
}

func (on *trial) takenBack() {
	u, w, uuid := on.runningRun()
	w.startCheckIn(ended(uuid, 0), with(running(uuid), "run_status", "Late."))
	u.awaitBundle(uuid, "running again", func(b codalab.Bundle) bool { return b.Metadata.String("run_status") == "Late." })
	w.wantNoMessage(6 * time.Second)
	u.wantState(uuid, codalab.StateRunning)
	if !u.bundle(uuid).Metadata.Has("exitcode") {
		on.Error("the exit code went with the state")
	}
	w.finishReady(uuid)
}

func (on *trial) restaged() {
	u, w, uuid := on.runningRun()
	w.await(codalab.MessageRun, uuid, report(uuid, codalab.StateStaged))
	b := u.bundle(uuid)
	if b.Metadata.Has("remote") || b.Metadata.Has("started") || !b.Metadata.Has("created") {
		on.Errorf("it keeps what its first worker reported: %v", b.Metadata)
	}
	w.claim(uuid, time.Now())
	w.finishReady(uuid)
}

func (on *trial) late() {
	u, w, uuid := on.readyRun()
	for _, report := range []object{ended(uuid, 0), running(uuid)} {
		w.startCheckIn(report)
		u.awaitState(uuid, codalab.StateWorkerOffline)
		u.wantStates(uuid, 3*time.Second, codalab.StateWorkerOffline)
		// Another report of its end is acknowledged as the first one was.
		w.finishReady(uuid)
		u.wantStates(uuid, 3*time.Second, codalab.StateReady)
	}
}

func (on *trial) claimedLongAgo() {
	u, w, uuid := on.newRun()
	w.await(codalab.MessageRun, uuid)
	// The server takes the time of the claim from the worker's clock.
	w.claim(uuid, time.Now().Add(-time.Hour))
	u.awaitState(uuid, codalab.StateWorkerOffline)
	w.checkIn(report(uuid, codalab.StatePreparing))
	u.awaitState(uuid, codalab.StatePreparing)
	u.wantStates(uuid, 3*time.Second, codalab.StatePreparing)
	w.reportRunning(uuid)
	w.finishReady(uuid)
}

func (on *trial) preemptible() {
	u, w := on.ownerWithWorker()
	w.offer["preemptible"] = true
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	w.claim(uuid, time.Now().Add(-time.Hour))
	w.awaitAndClaim(uuid)
	if b := u.bundle(uuid); !b.Metadata.Bool("on_preemptible_worker") {
		on.Error("it is not known to be on a preemptible worker")
	}
}

func (on *trial) lackingStage() {
	u, w, uuid := on.claimedRun()
	for _, stage := range codalab.Stages()[:4] {
		r := running(uuid)
		profile, _ := r["bundle_profile_stats"].(object)
		w.startCheckIn(with(r, "bundle_profile_stats", without(profile, stage)))
		u.wantStates(uuid, time.Second, codalab.StatePreparing)
	}
	// The server ignores the last stage, and the beginnings and ends of the others. It accepts
	// a report without any stage.
	r := running(uuid)
	profile := object{}
	for _, stage := range codalab.Stages()[:4] {
		profile[stage] = object{"elapsed": nil}
	}
	w.startCheckIn(with(r, "bundle_profile_stats", profile))
	u.awaitState(uuid, codalab.StateRunning)
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 0), "bundle_profile_stats", nil))
	u.awaitState(uuid, codalab.StateReady)
}

func (on *trial) lackingKey() {
	u, w, uuid := on.claimedRun()
	for _, r := range []object{
		without(running(uuid), "exitcode"), without(running(uuid), "docker_image"), without(running(uuid), "disk_utilization"),
		with(running(uuid), "disk_utilization", 4096.5), with(running(uuid), "run_status", 7), with(running(uuid), "state", "staging"),
	} {
		w.startCheckIn(r)
		u.wantStates(uuid, time.Second, codalab.StatePreparing)
	}
	// Bad reports do not harm a good one in the same check-in.
	w.startCheckIn(running(codalab.NewUUID()), object{}, with(running(uuid), "bundle_profile_stats", object{}), without(without(running(uuid), "cpu_usage"), "memory_usage"))
	u.awaitState(uuid, codalab.StateRunning)
}

func (on *trial) slow() {
	on.Helper()
	if !on.site.long {
		on.Skip("takes minutes: set CLTEST_STOCK_LONG=1")
	}
}

// minute checks that about a minute has passed; a busy server takes longer.
func (on *trial) minute(since time.Time) {
	on.Helper()
	if took := time.Since(since); took > 100*time.Second {
		on.Errorf("it took %s, want a minute", took)
	}
}

func (on *trial) silentWorker() {
	on.slow()
	u, w, uuid := on.runningRun()
	begun := time.Now()
	time.Sleep(50 * time.Second)
	u.wantState(uuid, codalab.StateRunning) // before a minute has passed
	u.awaitState(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.reportRunning(uuid)
	w.finishReady(uuid)
}

func (on *trial) unlistedLong() {
	on.slow()
	u, w, uuid := on.runningRun()
	begun := time.Now()
	w.wantNoMessage(50 * time.Second)
	u.wantState(uuid, codalab.StateRunning) // before a minute has passed
	w.wantNoMessage(10 * time.Second)
	u.awaitState(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.finishReady(uuid)
}

func (on *trial) neverStarted() {
	on.slow()
	u, w, uuid := on.newRun()
	w.await(codalab.MessageRun, uuid)
	w.wantNoMessage(4*time.Minute + 50*time.Second)
	u.wantState(uuid, codalab.StateStarting) // before five minutes have passed
	w.awaitAndClaim(uuid)
	w.call("GET", "/user", nil).wantStatus(http.StatusOK)
}
