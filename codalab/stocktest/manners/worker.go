package manners

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// worker is a worker that a trial plays. It keeps the messages of all of its check-ins.
type worker struct {
	*user
	id      string
	tell    object      // what it tells of itself in each check-in
	answers chan answer // of the check-ins that were begun
	open    int         // how many check-ins have no answer yet
	inbox   []object    // messages that the trial has not waited for yet
}

// worker returns a worker of a user's whose id is also its tag.
func (u *user) worker(id string) *worker {
	return &worker{user: u, id: id, answers: make(chan answer, 100), tell: object{
		"tag": id, "group_name": nil, "cpus": 4, "gpus": 0,
		"memory_bytes": 8 << 30, "free_disk_bytes": 100 << 30,
		"dependencies": [][]string{}, "hostname": "stocktest", "shared_file_system": false, "tag_exclusive": true,
		"exit_after_num_runs": 999999999, "is_terminating": false, "preemptible": false,
	}}
}

// made is a run of the owner's, and a worker of the owner's to play it.
func (on *trial) made() (*user, *worker, string) {
	on.Helper()
	u := on.owner()
	w := u.worker(newTag())
	return u, w, u.run(w.id, nil)
}

// taken is a run that its worker has claimed.
func (on *trial) taken() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.made()
	w.take(uuid)
	return u, w, uuid
}

// begun is a run that its worker has reported to run.
func (on *trial) begun() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.made()
	w.begin(uuid)
	return u, w, uuid
}

// finished is a run that is ready.
func (on *trial) finished() (*user, *worker, string) {
	on.Helper()
	u, w, uuid := on.begun()
	w.succeed(uuid)
	return u, w, uuid
}

// newTag returns a tag, or a worker's id, that nobody else has.
func newTag() string { return "stocktest-" + codalab.NewUUID()[2:14] }

func (w *worker) path(parts ...string) string {
	return "/workers/" + w.id + "/" + strings.Join(parts, "/")
}

// post checks in once. It may be called from any goroutine.
func (w *worker) post(runs ...object) answer { return w.send(maps.Clone(w.tell), runs) }

func (w *worker) send(in object, runs []object) answer {
	in["runs"] = append([]object{}, runs...)
	return w.call("POST", w.path("checkin"), in)
}

// tells begins a check-in, which goes on in the background: the server reads its reports at
// once.
func (w *worker) tells(runs ...object) {
	w.open++
	in := maps.Clone(w.tell)
	w.calls.Go(func() { w.answers <- w.send(in, runs) })
}

// hears waits until one of the check-ins is answered, and keeps what it says.
func (w *worker) hears() {
	w.Helper()
	a := <-w.answers
	w.open--
	w.inbox = append(w.inbox, w.messages(a)...)
}

// checkIn checks in once and returns all that the server has said by then.
func (w *worker) checkIn(runs ...object) []object {
	w.Helper()
	for w.tells(runs...); w.open > 0; {
		w.hears()
	}
	said := w.inbox
	w.inbox = nil
	return said
}

// messages are those of an answer, without its nulls.
func (w *worker) messages(a answer) []object {
	w.Helper()
	var list []object
	a.into(&list)
	var said []object
	for _, m := range list {
		if m != nil {
			said = append(said, m)
		}
	}
	return said
}

// await checks in until the server sends a message of a kind about a bundle, and returns that
// message. Only the first check-in reports the runs.
func (w *worker) await(kind codalab.MessageType, uuid string, runs ...object) object {
	w.Helper()
	if len(runs) > 0 {
		w.tells(runs...)
	}
	for end := time.Now().Add(patience); ; w.hears() {
		for i, m := range w.inbox {
			if about(m) != uuid {
				continue
			}
			if m["type"] != string(kind) {
				w.Fatalf("%s: got %v, want a message %s", uuid, m, kind)
			}
			w.inbox = append(w.inbox[:i:i], w.inbox[i+1:]...)
			return m
		}
		if time.Now().After(end) {
			w.Fatalf("%s: no message %s within %s; it is %s", uuid, kind, patience, w.find(uuid).State)
		}
		if w.open == 0 {
			w.tells()
		}
	}
}

// quiet checks in for a while, during which there must be no message.
func (w *worker) quiet(while time.Duration) {
	w.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); {
		if said := w.checkIn(); len(said) > 0 {
			w.Fatalf("got %v, want no message", said)
		}
	}
}

// about names the bundle of a message.
func about(m object) string {
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

// take waits until the worker is offered a bundle, and claims it.
func (w *worker) take(uuid string) {
	w.Helper()
	w.await(codalab.MessageRun, uuid)
	w.claim(uuid, time.Now())
}

// offered returns the next bundle that the worker is offered, whichever it is.
func (w *worker) offered() string {
	w.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		for _, m := range w.checkIn() {
			if m["type"] == string(codalab.MessageRun) {
				return about(m)
			}
			w.Errorf("got %v, want a run", m)
		}
	}
	w.Fatal("no run is offered")
	return ""
}

// begin takes a bundle and reports that it runs.
func (w *worker) begin(uuid string) {
	w.Helper()
	w.take(uuid)
	w.revive(uuid)
}

// revive reports that a bundle runs, whatever state it is in.
func (w *worker) revive(uuid string) {
	w.Helper()
	w.tells(running(uuid))
	w.reaches(uuid, codalab.StateRunning)
}

// finish reports that a bundle has ended, and waits for the acknowledgement.
func (w *worker) finish(uuid string, exit int) {
	w.Helper()
	w.await(codalab.MessageMarkFinalized, uuid, ended(uuid, exit))
}

// succeed reports that a bundle has ended well, and waits until it is ready.
func (w *worker) succeed(uuid string) codalab.Bundle {
	w.Helper()
	w.finish(uuid, 0)
	return w.reaches(uuid, codalab.StateReady)
}

// socket is the number by which a read message wants to be answered.
func socket(m object) string {
	n, _ := m["socket_id"].(float64)
	return strconv.FormatInt(int64(n), 10)
}

// replies answers a read message in JSON.
func (w *worker) replies(m, reply object) {
	w.Helper()
	w.call("POST", w.path("reply", socket(m)), reply).is(http.StatusOK)
}

// repliesData answers a message with a stream.
func (w *worker) repliesData(m object, data []byte) {
	w.Helper()
	w.call("POST", w.path("reply_data", socket(m))+"?header_message="+url.QueryEscape("{}"), readerOf(data)).is(http.StatusOK)
}

// refusal is what a worker says when it answers with an error.
const refusal = "Not here."

// repliesError answers a message with an error.
func (w *worker) repliesError(m object, code int) {
	w.Helper()
	w.replies(m, object{"error_code": code, "error_message": refusal})
}

// isError wants an error in the worker's words, or one of the server's own.
func (a answer) isError(status int) {
	a.Helper()
	words := refusal
	if status == http.StatusInternalServerError {
		words = internalError
	}
	a.is(status, words)
}

// report is what a worker says of a run.
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

// raw returns a number as the server wrote it, found by a path of keys.
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
