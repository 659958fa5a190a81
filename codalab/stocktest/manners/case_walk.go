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
	on.equal("the state", string(u.find(uuid).State), "starting")
	for range 2 { // the worker's answer may have been lost
		if !w.start(uuid, time.Now()) {
			on.Error("the claim was refused")
		}
	}
}

func (on *trial) claimAgain() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	on.equal("the second claim", word(w.start(uuid, time.Now())), "true")
	b := u.find(uuid)
	on.equal("the state", string(b.State), "preparing")
	if got := b.Metadata.Strings("remote_history"); !slices.Equal(got, []string{"node7", "node7"}) {
		on.Errorf("remote_history is %q", got)
	}
}

func (on *trial) walkReady() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
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
	w.finish(uuid, 0)
	b = u.reaches(uuid, codalab.StateReady)
	on.equal("run_status", b.Metadata.String("run_status"), "Finished")
	if !b.Metadata.Has("exitcode") || b.Metadata.Int("exitcode") != 0 || b.Metadata.Has("failure_message") {
		on.Errorf("exitcode %v, failure_message %v", b.Metadata["exitcode"], b.Metadata["failure_message"])
	}
}

func (on *trial) walkFailed() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.finish(uuid, 3)
	b := u.reaches(uuid, codalab.StateFailed)
	on.equal("failure_message", b.Metadata.String("failure_message"), "Exit code 3")
}

func (on *trial) walkKilled() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.await(codalab.MessageMarkFinalized, uuid, with(ended(uuid, 137), "failure_message", "Kill requested: enough."))
	b := u.reaches(uuid, codalab.StateKilled)
	on.equal("failure_message", b.Metadata.String("failure_message"), "Kill requested: enough.")
}

func (on *trial) unlisted() {
	u := on.owner()
	w := u.worker(newTag())
	preparing, begun := u.run(w.id, nil), u.run(w.id, nil)
	first := u.claimable(w)
	on.equal("the claim", word(w.start(first, time.Now())), "true")
	second := u.claimable(w)
	on.equal("the claim", word(w.start(second, time.Now())), "true")
	w.tells(running(begun))
	u.reaches(begun, codalab.StateRunning)
	w.quiet(12 * time.Second)
	on.equal("the state of the one that runs", string(u.find(begun).State), "running")
	on.equal("the state of the other", string(u.find(preparing).State), "preparing")
}

func word(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func (on *trial) listedOnce() {
	u := on.owner()
	w := u.worker(newTag())
	a, b := u.run(w.id, nil), u.run(w.id, nil)
	for range 2 {
		on.equal("the claim", word(w.start(u.claimable(w), time.Now())), "true")
	}
	// One check-in takes one message, so that the other's comes to a check-in
	// that lists nothing.
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
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.tells(ended(uuid, 0), with(running(uuid), "run_status", "Late."))
	u.shows(uuid, "running again", func(b codalab.Bundle) bool { return b.Metadata.String("run_status") == "Late." })
	w.quiet(6 * time.Second)
	b := u.find(uuid)
	on.equal("the state", string(b.State), "running")
	if !b.Metadata.Has("exitcode") {
		on.Error("the exit code went with the state")
	}
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) restaged() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.await(codalab.MessageRun, uuid, report(uuid, codalab.StateStaged))
	b := u.find(uuid)
	if b.Metadata.Has("remote") || b.Metadata.Has("started") || !b.Metadata.Has("created") {
		on.Errorf("it kept what its first worker said: %v", b.Metadata)
	}
	if !w.start(uuid, time.Now()) {
		on.Error("the second claim was refused")
	}
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) lateFinalizing() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
	w.tells(ended(uuid, 0))
	u.reaches(uuid, codalab.StateWorkerOffline)
	u.stays(uuid, 3*time.Second, codalab.StateWorkerOffline)
	// Another report of its end is acknowledged as the first one was.
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
	u.stays(uuid, 3*time.Second, codalab.StateReady)
}

func (on *trial) lateRunning() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
	w.tells(running(uuid))
	u.reaches(uuid, codalab.StateWorkerOffline)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) claimedLongAgo() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	// The server takes the time of the claim from the worker's clock.
	if !w.start(uuid, time.Now().Add(-time.Hour)) {
		on.Fatal("the claim was refused")
	}
	u.reaches(uuid, codalab.StateWorkerOffline)
	w.checkIn(report(uuid, codalab.StatePreparing))
	u.reaches(uuid, codalab.StatePreparing)
	u.stays(uuid, 3*time.Second, codalab.StatePreparing)
	w.tells(running(uuid))
	u.reaches(uuid, codalab.StateRunning)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) preemptible() {
	u := on.owner()
	w := u.worker(newTag())
	w.tell["preemptible"] = true
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	if !w.start(uuid, time.Now().Add(-time.Hour)) {
		on.Fatal("the claim was refused")
	}
	w.take(uuid)
	if b := u.find(uuid); !b.Metadata.Bool("on_preemptible_worker") {
		on.Error("it is not known to be on a preemptible worker")
	}
}

func (on *trial) lackingStage() {
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.take(uuid)
	for _, stage := range codalab.Stages()[:4] {
		r := running(uuid)
		profile, _ := r["bundle_profile_stats"].(object)
		w.tells(with(r, "bundle_profile_stats", without(profile, stage)))
		u.stays(uuid, time.Second, codalab.StatePreparing)
	}
	// Nothing is read of the last stage, nor of the first three's beginnings
	// and ends; and a report without any stage is taken.
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
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.take(uuid)
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
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.take(uuid)
	w.tells(running(codalab.NewUUID()), object{}, with(running(uuid), "bundle_profile_stats", object{}), running(uuid))
	u.reaches(uuid, codalab.StateRunning)
}

func (on *trial) slow() {
	on.Helper()
	if !on.on.Long {
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
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	begun := time.Now()
	time.Sleep(50 * time.Second)
	on.equal("the state before a minute has passed", string(u.find(uuid).State), "running")
	u.reaches(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.tells(running(uuid))
	u.reaches(uuid, codalab.StateRunning)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) unlistedLong() {
	on.slow()
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.begin(uuid)
	begun := time.Now()
	w.quiet(50 * time.Second)
	on.equal("the state before a minute has passed", string(u.find(uuid).State), "running")
	w.quiet(10 * time.Second)
	u.reaches(uuid, codalab.StateWorkerOffline)
	on.minute(begun)
	w.finish(uuid, 0)
	u.reaches(uuid, codalab.StateReady)
}

func (on *trial) neverStarted() {
	on.slow()
	u := on.owner()
	w := u.worker(newTag())
	uuid := u.run(w.id, nil)
	w.await(codalab.MessageRun, uuid)
	w.quiet(4*time.Minute + 50*time.Second)
	on.equal("the state before five minutes have passed", string(u.find(uuid).State), "starting")
	w.take(uuid)
	w.call("GET", "/user", nil).is(http.StatusOK)
}
