package server_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
)

// testWorker is a worker that does what a test says.
type testWorker struct {
	*site
	user, id string
	info     codalab.CheckIn
}

func (s *site) worker(user, id, tag string) *testWorker {
	return &testWorker{s, user, id, codalab.CheckIn{
		Tag: tag, CPUs: 4, GPUs: 1, MemoryBytes: 1 << 34, FreeDiskBytes: 1 << 40,
		TagExclusive: true, ExitAfterNumRuns: codalab.UnlimitedRuns, Dependencies: [][2]string{},
	}}
}

// checkIn reports runs and returns what the worker is told.
func (w *testWorker) checkIn(runs ...codalab.RunReport) []codalab.Message {
	w.t.Helper()
	in := w.info
	in.Reports = runs
	a := w.call(w.user, http.MethodPost, "/workers/"+url.PathEscape(w.id)+"/checkin", in).ok()
	if a.header.Get("Content-Type") != "application/json" {
		w.t.Errorf("check-in: headers %v", a.header)
	}
	messages, _, err := codalab.ParseMessages([]byte(a.body))
	must(w.t, err)
	return messages
}

// told checks in until a message of this type comes.
func (w *testWorker) told(kind codalab.MessageType, runs ...codalab.RunReport) codalab.Message {
	w.t.Helper()
	for range 2000 {
		for _, m := range w.checkIn(runs...) {
			if m.Type == kind {
				return m
			}
		}
	}
	w.t.Fatalf("worker %s was not told to %s", w.id, kind)
	return codalab.Message{}
}

func (w *testWorker) startBundle(uuid string) bool {
	w.t.Helper()
	a := w.call(w.user, http.MethodPost, "/workers/"+w.id+"/start_bundle/"+uuid, codalab.StartBundle{Hostname: "node1", StartTime: 1700000000}).ok()
	return a.value() == true
}

// takes waits for a run message and claims the bundle.
func (w *testWorker) takes() string {
	w.t.Helper()
	uuid := w.told(codalab.MessageRun).Bundle.UUID
	if !w.startBundle(uuid) {
		w.t.Fatalf("bundle %s is not the worker's", uuid)
	}
	return uuid
}

// reportOf is a report with all stages.
func reportOf(uuid string, state codalab.State) codalab.RunReport {
	run := codalab.RunReport{UUID: uuid, State: state, RunStatus: "at it", Remote: "node1", Profile: map[string]codalab.StageTimes{}}
	for _, stage := range codalab.Stages() {
		run.Profile[stage] = codalab.StageTimes{}
	}
	return run
}

// claimedRun is a new site with a run of alice that her worker has claimed.
func claimedRun(t *testing.T, change ...func(*server.Config)) (*site, *testWorker, string) {
	t.Helper()
	s := newSite(t, change...)
	w, uuid := s.worker("alice", "w", "cpu"), s.run("x", cpuQueue)
	w.takes()
	return s, w, uuid
}
