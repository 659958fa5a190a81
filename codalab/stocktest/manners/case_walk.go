package manners

import (
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
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
	u.isIn(uuid, codalab.StateStarting)
	for range 2 { // the answer to the first claim may have been lost
		w.claim(uuid, time.Now())
	}
}

func (on *trial) claimAgain() {
	u, w, uuid := on.begun()
	w.claim(uuid, time.Now())
	u.isIn(uuid, codalab.StatePreparing)
	if got := u.find(uuid).Metadata.Strings("remote_history"); !slices.Equal(got, []string{"node7", "node7"}) {
		on.Errorf("remote_history is %q", got)
	}
}

func (on *trial) walkReady() {
	u, w, uuid := on.made()
	now := time.Now()
	w.take(uuid)
	b := u.reaches(uuid, codalab.StatePreparing)
	on.equal("run_status", b.Metadata.String("run_status"), "Waiting for worker to download bundle dependencies and Docker image to run the bundle.")
	on.equal("remote", b.Metadata.String("remote"), "node7")
	if got := b.Metadata.Strings("remote_history"); !slices.Equal(got, []string{"node7"}) {
		on.Errorf("remote_history is %q", got)
	}
	if got := b.Metadata.Int("started"); got < now.Unix() || got > now.Unix()+int64(patience/time.Second) {
		on.Errorf("started is %d, want %d", got, now.Unix())
	}
	w.tells(running(uuid))
	b = u.reaches(uuid, codalab.StateRunning)
	on.equal("run_status", b.Metadata.String("run_status"), "Played by a test.")
	for key, want := range map[string]float64{"time": 1.5, "time_user": 1, "time_system": .5, "cpu_usage": .5, "memory_usage": .25, "data_size": 4096, "time_running": 1} {
		if got := b.Metadata.Float(key); got != want {
			on.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	b = w.succeed(uuid)
	on.equal("run_status", b.Metadata.String("run_status"), "Finished")
	if !b.Metadata.Has("exitcode") || b.Metadata.Int("exitcode") != 0 || b.Metadata.Has("failure_message") {
		on.Errorf("exitcode %v, failure_message %v", b.Metadata["exitcode"], b.Metadata["failure_message"])
	}
}

func (on *trial) walkFailed() {
	u, w, uuid := on.begun()
	w.finish(uuid, 3)
	b := u.reaches(uuid, codalab.StateFailed)
	on.equal("failure_message", b.Metadata.String("failure_message"), "Exit code 3")
}

func (on *trial) walkKilled() {
	u, w, uuid := on.begun()
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 137), "failure_message", "Kill requested: enough."))
	b := u.reaches(uuid, codalab.StateKilled)
	on.equal("failure_message", b.Metadata.String("failure_message"), "Kill requested: enough.")
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
	w.revive(begun)
	w.quiet(12 * time.Second)
	u.isIn(begun, codalab.StateRunning)
	u.isIn(preparing, codalab.StatePreparing)
}

func (on *trial) listedOnce() {
	u, w, a, b := on.takenTwo()
	// One check-in takes one message, so that the other's comes to a check-in that lists
	// nothing.
	var acked []string
	reports := []object{ended(a, 0), ended(b, 0)}
	for end := time.Now().Add(patience); len(acked) < 2 && time.Now().Before(end); reports = nil {
		for _, m := range w.checkIn(reports...) {
			on.equal("the message", m["type"].(string), "mark_finalized") //nolint:forcetypeassert // a panic fails the trial
			acked = append(acked, about(m))
		}
	}
	slices.Sort(acked)
	want := []string{a, b}
	slices.Sort(want)
	if !slices.Equal(acked, want) {
		on.Errorf("acknowledged are %s, want %s", acked, want)
	}
	u.reaches(a, codalab.StateReady)
	u.reaches(b, codalab.StateReady)
}

func (on *trial) takenBack() {
	u, w, uuid := on.begun()
	w.tells(ended(uuid, 0), with(running(uuid), "run_status", "Late."))
	u.shows(uuid, "running again", func(b codalab.Bundle) bool { return b.Metadata.String("run_status") == "Late." })
	w.quiet(6 * time.Second)
	u.isIn(uuid, codalab.StateRunning)
	if !u.find(uuid).Metadata.Has("exitcode") {
		on.Error("the exit code went with the state")
	}
	w.succeed(uuid)
}

func (on *trial) restaged() {
	u, w, uuid := on.begun()
	w.await(codalab.MessageRun, uuid, report(uuid, codalab.StateStaged))
	b := u.find(uuid)
	if b.Metadata.Has("remote") || b.Metadata.Has("started") || !b.Metadata.Has("created") {
		on.Errorf("it kept what its first worker said: %v", b.Metadata)
	}
	w.claim(uuid, time.Now())
	w.succeed(uuid)
}

func (on *trial) lateFinalizing() { on.late(func(uuid string) object { return ended(uuid, 0) }) }

func (on *trial) lateRunning() { on.late(running) }

// late reports a run that is ready.
func (on *trial) late(report func(uuid string) object) {
	u, w, uuid := on.finished()
	w.tells(report(uuid))
	u.reaches(uuid, codalab.StateWorkerOffline)
	u.stays(uuid, 3*time.Second, codalab.StateWorkerOffline)
	// Another report of its end is acknowledged as the first one was.
	w.succeed(uuid)
	u.stays(uuid, 3*time.Second, codalab.StateReady)
}

func (on *trial) claimedLongAgo() {
	u, w, uuid := on.made()
	w.await(codalab.MessageRun, uuid)
	// The server takes the time of the claim from the worker's clock.
	w.claim(uuid, time.Now().Add(-time.Hour))
	u.reaches(uuid, codalab.StateWorkerOffline)
	w.checkIn(report(uuid, codalab.StatePreparing))
	u.reaches(uuid, codalab.StatePreparing)
	u.stays(uuid, 3*time.Second, codalab.StatePreparing)
	w.revive(uuid)
	w.succeed(uuid)
}

func (on *trial) preemptible() {
	u := on.owner()
	w := u.worker(newTag())
	w.tell["preemptible"] = true
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	w.claim(uuid, time.Now().Add(-time.Hour))
	w.take(uuid)
	if b := u.find(uuid); !b.Metadata.Bool("on_preemptible_worker") {
		on.Error("it is not known to be on a preemptible worker")
	}
}

func (on *trial) lackingStage() {
	u, w, uuid := on.taken()
	for _, stage := range codalab.Stages()[:4] {
		r := running(uuid)
		profile, _ := r["bundle_profile_stats"].(object)
		w.tells(with(r, "bundle_profile_stats", without(profile, stage)))
		u.stays(uuid, time.Second, codalab.StatePreparing)
	}
	// Nothing is read of the last stage, nor of the first three's beginnings and ends; and a
	// report without any stage is taken.
	r := running(uuid)
	profile := object{}
	for _, stage := range codalab.Stages()[:4] {
		profile[stage] = object{"elapsed": nil}
	}
	w.tells(with(r, "bundle_profile_stats", profile))
	u.reaches(uuid, codalab.StateRunning)
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 0), "bundle_profile_stats", nil))
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) lackingKey() {
	u, w, uuid := on.taken()
	for _, r := range []object{
		without(running(uuid), "exitcode"), without(running(uuid), "docker_image"), without(running(uuid), "disk_utilization"),
		with(running(uuid), "disk_utilization", 4096.5), with(running(uuid), "run_status", 7), with(running(uuid), "state", "staging"),
	} {
		w.tells(r)
		u.stays(uuid, time.Second, codalab.StatePreparing)
	}
	w.tells(without(without(running(uuid), "cpu_usage"), "memory_usage"))
	u.reaches(uuid, codalab.StateRunning)
}

func (on *trial) badReport() {
	u, w, uuid := on.taken()
	w.tells(running(codalab.NewUUID()), object{}, with(running(uuid), "bundle_profile_stats", object{}), running(uuid))
	u.reaches(uuid, codalab.StateRunning)
}

func (on *trial) slow() {
	on.Helper()
	if !on.target.Long {
		on.Skip("takes minutes: set CLTEST_STOCK_LONG=1")
	}
}

// minute says whether about a minute has passed; a busy server is slower.
func (on *trial) minute(since time.Time) {
	on.Helper()
	if took := time.Since(since); took > 100*time.Second {
		on.Errorf("it took %s, want a minute", took)
	}
}

func (on *trial) silentWorker() {
	on.slow()
	u, w, uuid := on.begun()
	begun := time.Now()
	time.Sleep(50 * time.Second)
	u.isIn(uuid, codalab.StateRunning) // before a minute has passed
	u.reaches(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.revive(uuid)
	w.succeed(uuid)
}

func (on *trial) unlistedLong() {
	on.slow()
	u, w, uuid := on.begun()
	begun := time.Now()
	w.quiet(50 * time.Second)
	u.isIn(uuid, codalab.StateRunning) // before a minute has passed
	w.quiet(10 * time.Second)
	u.reaches(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.succeed(uuid)
}

func (on *trial) neverStarted() {
	on.slow()
	u, w, uuid := on.made()
	w.await(codalab.MessageRun, uuid)
	w.quiet(4*time.Minute + 50*time.Second)
	u.isIn(uuid, codalab.StateStarting) // before five minutes have passed
	w.take(uuid)
	w.call("GET", "/user", nil).is(http.StatusOK)
}
