package stocktest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// worker is a worker that a trial plays. It keeps the messages of all of its check-ins.
type worker struct {
	*user
	id      string
	offer   object      // its fields in each check-in
	answers chan answer // of the check-ins that were begun
	open    int         // how many check-ins have no answer yet
	inbox   []object    // messages that the trial has not waited for yet
}

// worker returns a worker of a user. Its id is also its tag.
func (u *user) worker(id string) *worker {
	return &worker{user: u, id: id, answers: make(chan answer, 100), offer: object{
		"tag": id, "group_name": nil, "cpus": 4, "gpus": 0,
		"memory_bytes": 8 << 30, "free_disk_bytes": 100 << 30,
		"dependencies": [][]string{}, "hostname": "stocktest", "shared_file_system": false, "tag_exclusive": true,
		"exit_after_num_runs": 999999999, "is_terminating": false, "preemptible": false,
	}}
}

// ownerWithWorker returns the owner and a worker of the owner.
func (on *trial) ownerWithWorker() (*user, *worker) {
	on.Helper()
	u := on.owner()
	return u, u.worker(newTag())
}

// newRun returns a run of the owner, and a worker of the owner to play it.
func (on *trial) newRun() (*user, *worker, string) {
	on.Helper()
	u, w := on.ownerWithWorker()
	return u, w, u.run(w.id, nil)
}

// claimedRun is newRun with a run that its worker has claimed.
func (on *trial) claimedRun() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.newRun()
	w.awaitAndClaim(uuid)
	return u, w, uuid
}

// runningRun is newRun with a run that its worker has reported as running.
func (on *trial) runningRun() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.newRun()
	w.startRunning(uuid)
	return u, w, uuid
}

// readyRun is newRun with a run that is ready.
func (on *trial) readyRun() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.runningRun()
	w.finishReady(uuid)
	return u, w, uuid
}

// newTag returns a unique tag, or worker's id.
func newTag() string { return "stocktest-" + codalab.NewUUID()[2:14] }

func (w *worker) path(parts ...string) string {
	return "/workers/" + w.id + "/" + strings.Join(parts, "/")
}

// post checks in once. It may be called from any goroutine.
func (w *worker) post(runs ...object) answer { return w.send(maps.Clone(w.offer), runs) }

func (w *worker) send(in object, runs []object) answer {
	in["runs"] = append([]object{}, runs...)
	return w.call("POST", w.path("checkin"), in)
}

// startCheckIn begins a check-in in the background. The server applies its reports at once.
func (w *worker) startCheckIn(runs ...object) {
	w.open++
	in := maps.Clone(w.offer)
	w.calls.Go(func() { w.answers <- w.send(in, runs) })
}

// receiveMessages waits for the answer to one of the check-ins, and keeps its messages.
func (w *worker) receiveMessages() {
	w.Helper()
	a := <-w.answers
	w.open--
	w.inbox = append(w.inbox, w.messages(a)...)
}

// checkIn checks in once and returns all messages received by then.
func (w *worker) checkIn(runs ...object) []object {
	w.Helper()
	for w.startCheckIn(runs...); w.open > 0; {
		w.receiveMessages()
	}
	messages := w.inbox
	w.inbox = nil
	return messages
}

// messages are those of an answer, without its nulls.
func (w *worker) messages(a answer) []object {
	w.Helper()
	var list []object
	a.into(&list)
	var messages []object
	for _, m := range list {
		if m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

// await checks in until the server sends a message of a kind about a bundle, and returns that
// message. Only the first check-in reports the runs.
func (w *worker) await(kind codalab.MessageType, uuid string, runs ...object) object {
	w.Helper()
	if len(runs) > 0 {
		w.startCheckIn(runs...)
	}
	var found object
	testenv.Await(w, fmt.Sprintf("a message %s about %s", kind, uuid), func() bool {
		for i, m := range w.inbox {
			if bundleOf(m) != uuid {
				continue
			}
			if m["type"] != string(kind) {
				w.Fatalf("%s: got %v, want a message %s", uuid, m, kind)
			}
			w.inbox = append(w.inbox[:i:i], w.inbox[i+1:]...)
			found = m
			return true
		}
		if w.open == 0 {
			w.startCheckIn()
		}
		w.receiveMessages()
		return false
	}, func() string { return "it is " + string(w.bundle(uuid).State) })
	return found
}

// wantNoMessage checks in for a while, during which there must be no message.
func (w *worker) wantNoMessage(while time.Duration) {
	w.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); {
		if messages := w.checkIn(); len(messages) > 0 {
			w.Fatalf("got %v, want no message", messages)
		}
	}
}

// bundleOf is the uuid of a message's bundle.
func bundleOf(m object) string {
	if bundle, ok := m["bundle"].(object); ok {
		m = bundle
	}
	uuid, _ := m["uuid"].(string)
	return uuid
}

// start tries to claim a bundle and returns whether it is this worker's.
func (w *worker) start(uuid string, at time.Time) bool {
	w.Helper()
	var mine bool
	w.call("POST", w.path("start_bundle", uuid), object{"hostname": "node7", "start_time": at.Unix()}).into(&mine)
	return mine
}

// claim claims a bundle that the worker was offered.
func (w *worker) claim(uuid string, at time.Time) {
	w.Helper()
	if !w.start(uuid, at) {
		w.Fatalf("%s: the claim was refused", uuid)
	}
}

// awaitAndClaim waits until the worker is offered a bundle, and claims it.
func (w *worker) awaitAndClaim(uuid string) {
	w.Helper()
	w.await(codalab.MessageRun, uuid)
	w.claim(uuid, time.Now())
}

// offered returns the next bundle that the worker is offered, whichever it is.
func (w *worker) offered() string {
	w.Helper()
	uuid := ""
	testenv.Await(w, "a run is offered", func() bool {
		for _, m := range w.checkIn() {
			if m["type"] == string(codalab.MessageRun) {
				uuid = bundleOf(m)
				return true
			}
			w.Errorf("got %v, want a run", m)
		}
		return false
	})
	return uuid
}

// startRunning claims a bundle and reports that it runs.
func (w *worker) startRunning(uuid string) {
	w.Helper()
	w.awaitAndClaim(uuid)
	w.reportRunning(uuid)
}

// reportRunning reports that a bundle runs, in any state.
func (w *worker) reportRunning(uuid string) {
	w.Helper()
	w.startCheckIn(running(uuid))
	w.awaitState(uuid, codalab.StateRunning)
}

// reportEnd reports that a bundle has ended, and waits for the acknowledgement.
func (w *worker) reportEnd(uuid string, exit int) {
	w.Helper()
	w.await(codalab.MessageMarkFinalized, uuid, ended(uuid, exit))
}

// finishReady reports that a bundle has succeeded, and waits until it is ready.
func (w *worker) finishReady(uuid string) codalab.Bundle {
	w.Helper()
	w.reportEnd(uuid, 0)
	return w.awaitState(uuid, codalab.StateReady)
}

// socket is the number by which a read message wants to be answered.
func socket(m object) string {
	n, _ := m["socket_id"].(float64)
	return strconv.FormatInt(int64(n), 10)
}

// reply answers a read message in JSON.
func (w *worker) reply(m, reply object) {
	w.Helper()
	w.call("POST", w.path("reply", socket(m)), reply).wantStatus(http.StatusOK)
}

// replyData answers a message with a stream.
func (w *worker) replyData(m object, data []byte) {
	w.Helper()
	w.call("POST", w.path("reply_data", socket(m))+"?header_message="+url.QueryEscape("{}"), readerOf(data)).wantStatus(http.StatusOK)
}

// refusal is a worker's error message.
const refusal = "Not here."

// replyError answers a message with an error.
func (w *worker) replyError(m object, code int) {
	w.Helper()
	w.reply(m, object{"error_code": code, "error_message": refusal})
}

// wantError checks for an error with the worker's message, or one of the server's own.
func (a answer) wantError(status int) {
	a.Helper()
	words := refusal
	if status == http.StatusInternalServerError {
		words = internalError
	}
	a.wantStatus(status, words)
}

// report is a worker's report of a run.
func report(uuid string, s codalab.State) object {
	profile := object{}
	for _, stage := range codalab.Stages() {
		profile[stage] = object{"start": 1.5, "end": 2.5, "elapsed": 1.0}
	}
	return object{
		"uuid": uuid, "run_status": "Played by a test.", "bundle_start_time": float64(time.Now().Unix()),
		"container_time_total": 1.5, "container_time_user": 1.0, "container_time_system": 0.5,
		"docker_image": "busybox@sha256:0", "state": string(s), "remote": "node7", "exitcode": nil, "failure_message": nil,
		"bundle_profile_stats": profile, "cpu_usage": 0.5, "memory_usage": 0.25, "disk_utilization": 4096,
	}
}

func running(uuid string) object { return report(uuid, codalab.StateRunning) }

func ended(uuid string, exit int) object {
	return with(report(uuid, codalab.StateFinalizing), "exitcode", exit)
}

// with returns a report with another value under a key.
func with(r object, key string, value any) object {
	r = maps.Clone(r)
	r[key] = value
	return r
}

// without returns a report without a key.
func without(r object, key string) object {
	r = maps.Clone(r)
	delete(r, key)
	return r
}

// raw returns a value as the server wrote it, by a path of keys.
func raw(data []byte, keys ...string) string {
	for _, k := range keys {
		var level map[string]json.RawMessage
		if json.Unmarshal(data, &level) != nil {
			return ""
		}
		data = level[k]
	}
	return string(data)
}
