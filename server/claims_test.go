package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// startBundles claims bundles in one call.
func (w *testWorker) startBundles(uuids ...string) answer {
	w.t.Helper()
	in := codalab.StartBundles{Bundles: []codalab.BundleStart{}}
	for _, uuid := range uuids {
		in.Bundles = append(in.Bundles, codalab.BundleStart{UUID: uuid, StartBundle: codalab.StartBundle{Hostname: "node1", StartTime: 1700000000}})
	}
	return w.call(w.user, http.MethodPost, "/workers/"+w.id+"/start_bundles", in)
}

// offered returns a number of runs that the worker is told to run.
func (w *testWorker) offered(n int) []string {
	w.t.Helper()
	told := map[string]bool{}
	var uuids []string
	for range 2000 {
		for _, m := range w.checkIn() {
			if m.Type == codalab.MessageRun && !told[m.Bundle.UUID] {
				told[m.Bundle.UUID] = true
				uuids = append(uuids, m.Bundle.UUID)
			}
		}
		if len(uuids) >= n {
			return uuids
		}
	}
	w.t.Fatalf("worker %s was offered %d runs, want %d", w.id, len(uuids), n)
	return nil
}

func TestClaimsInOneCallAreAnsweredAsSingleOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w, second := s.worker("alice", "w", "cpu"), s.worker("alice", "w2", "gpu")
	mine, another := s.run("x", cpuQueue), s.run("x", map[string]any{"request_queue": "gpu"})
	staged, shown := s.run("x", map[string]any{"request_queue": "none"}), s.run("x", map[string]any{"request_queue": "none"})
	w.offered(1)
	second.offered(1)
	missing := "0x" + strings.Repeat("9", 32)
	want := codalab.StartedBundles{Bundles: []codalab.StartedBundle{
		{UUID: another},
		{UUID: missing, Status: http.StatusNotFound, Message: "Could not find bundle with uuid " + missing},
		{UUID: mine, Started: true},
		{UUID: staged},
	}}
	for range 2 { // its answer may be lost
		var got codalab.StartedBundles
		w.startBundles(another, missing, mine, staged).ok().decode(&got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	b := s.bundle("alice", mine)
	if b.State != codalab.StatePreparing || b.Metadata.Int("started") != 1700000000 || len(b.Metadata.Strings("remote_history")) != 1 {
		t.Errorf("claimed: %s %v", b.State, b.Metadata)
	}
	if !second.startBundle(another) {
		t.Error("the other worker has lost its run")
	}

	// Bob may read one of the runs, and none of them is his worker's.
	s.share("alice", "bundle", shown, "public", store.PermissionRead)
	var got codalab.StartedBundles
	s.worker("bob", "w", "cpu").startBundles(mine, shown).ok().decode(&got)
	want = codalab.StartedBundles{Bundles: []codalab.StartedBundle{
		{UUID: mine, Status: http.StatusNotFound, Message: "Could not find bundle with uuid " + mine},
		{UUID: shown, Status: http.StatusForbidden, Message: "User does not have permission to run bundle."},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bob (-want +got):\n%s", diff)
	}
}

func TestClaimsInOneCallAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.worker("alice", "w", "cpu")
	run := s.run("x", cpuQueue)
	w.startBundles(run, "0x1", run).says(http.StatusBadRequest, "Bundle "+run+" is claimed twice")
	var many []string
	for i := range codalab.MostStarts + 1 {
		many = append(many, fmt.Sprintf("0x%032x", i))
	}
	w.startBundles(many...).says(http.StatusRequestEntityTooLarge, "A worker may claim 1000 bundles at once")
	w.startBundles(many[1:]...).ok()
	w.startBundles().ok()
	s.call("alice", http.MethodPost, "/workers/w/start_bundles", "{").is(http.StatusBadRequest)
}

// The worker's token is for it alone.
func TestClaimsInOneCallNeedTheWorkersToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("x", cpuQueue)
	w := s.worker(s.addWorkerToken("alice", "w"), "w", "cpu")
	uuids := w.offered(1)
	other := *w
	other.id = "w2"
	other.startBundles(uuids...).is(http.StatusForbidden)
	var got codalab.StartedBundles
	w.startBundles(uuids...).ok().decode(&got)
	if len(got.Bundles) != 1 || !got.Bundles[0].Started {
		t.Errorf("%+v", got)
	}
}

func TestManyRunsAreClaimedInOneCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<30, 1<<40)
	w := s.worker("alice", "w", "cpu")
	w.info.CPUs = 1 << 20
	w.info.MemoryBytes = 1 << 60
	const n = 120 // more than a transaction has
	for range n {
		s.run("x", cpuQueue)
	}
	uuids := w.offered(n)
	var got codalab.StartedBundles
	w.startBundles(uuids...).ok().decode(&got)
	for i, one := range got.Bundles {
		if one != (codalab.StartedBundle{UUID: uuids[i], Started: true}) {
			t.Errorf("%d: %+v", i, one)
		}
	}
	if len(got.Bundles) != n {
		t.Errorf("%d answers", len(got.Bundles))
	}
}
