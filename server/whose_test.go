package server_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// whose is a site whose check-ins are not held, with a group "lab" of alice and bob.
func whose(t *testing.T) *site {
	t.Helper()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	return s
}

// takesNone checks that a worker is offered nothing, after another worker has been offered all that
// there is.
func (w *testWorker) takesNone(other *testWorker) {
	w.t.Helper()
	for range 3 {
		if m := w.checkIn(); len(m) > 0 {
			w.t.Fatalf("worker %s of %s was told %+v", w.id, w.user, m)
		}
	}
	other.takes()
	if m := w.checkIn(); len(m) > 0 {
		w.t.Errorf("worker %s of %s was told %+v", w.id, w.user, m)
	}
}

func (w *testWorker) of(group string) *testWorker {
	w.info.GroupName = &group
	return w
}

func TestOwnersWorkerTakesTheOwnersRuns(t *testing.T) {
	t.Parallel()
	s := whose(t)
	job := s.run("x", cpuQueue)
	if got := s.worker("alice", "w", "cpu").takes(); got != job {
		t.Errorf("took %s", got)
	}
}

func TestPrivateWorkerOfAnotherUserTakesNone(t *testing.T) {
	t.Parallel()
	s := whose(t)
	job := s.run("x", cpuQueue)
	s.share("alice", "bundle", job, "lab", store.PermissionAll) // makes no difference
	s.worker("bob", "w", "cpu").takesNone(s.worker("alice", "w", "cpu"))
}

func TestRootsWorkerTakesEverybodysRuns(t *testing.T) {
	t.Parallel()
	s := whose(t)
	job := s.run("x", cpuQueue)
	if got := s.worker("root", "w", "cpu").takes(); got != job {
		t.Errorf("took %s", got)
	}
}

func TestGroupsWorkerTakesAMembersRunThatItsUserMayChange(t *testing.T) {
	t.Parallel()
	s := whose(t)
	job := s.run("x", cpuQueue)
	s.share("alice", "bundle", job, "lab", store.PermissionAll)
	if got := s.worker("bob", "w", "cpu").of("lab").takes(); got != job {
		t.Errorf("took %s", got)
	}
}

func TestGroupsWorkerTakesNoRunThatItsUserMayOnlyRead(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.share("alice", "bundle", s.run("x", cpuQueue), "lab", store.PermissionRead)
	s.worker("bob", "w", "cpu").of("lab").takesNone(s.worker("alice", "w", "cpu"))
}

func TestGroupsWorkerTakesNoRunOfOthers(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.addUser("carol") // in no group
	job := s.run("x", cpuQueue)
	s.share("alice", "bundle", job, "public", store.PermissionAll)
	s.call("alice", "DELETE", "/groups/lab/relationships/members", deletion("users", "0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")).is(http.StatusNoContent)
	s.call("carol", "POST", "/groups", object("groups", map[string]string{"name": "others"})).ok()
	s.worker("carol", "w", "cpu").of("others").takesNone(s.worker("alice", "w", "cpu"))
}

func TestWorkerOfAGroupNeedsAMember(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.addUser("carol")
	for group, status := range map[string]int{"lab": http.StatusForbidden, "nosuch": http.StatusNotFound} {
		s.call("carol", "POST", "/workers/w/checkin", codalab.CheckIn{GroupName: &group}).is(status)
	}
}

// account makes a worker account for scopes.
func (s *site) account(name string, scopes ...store.Scope) {
	s.t.Helper()
	s.addUser(name)
	u, err := s.store.User(context.Background(), name)
	must(s.t, err)
	must(s.t, s.store.SetScopes(context.Background(), u.ID, scopes))
}

func TestWorkerAccountTakesTheRunsInItsScopes(t *testing.T) {
	t.Parallel()
	s := whose(t)
	lab := s.get("alice", "/groups/lab").ok().text("data", "id")
	alice, bob := s.get("alice", "/user").ok().text("data", "id"), s.get("bob", "/user").ok().text("data", "id")
	for name, scope := range map[string]store.Scope{"everybody": {}, "owner": {OwnerID: alice}, "group": {GroupUUID: lab}} {
		s.account(name, scope)
		job := s.run("x", map[string]any{"request_queue": name})
		if got := s.worker(name, "w", name).takes(); got != job {
			t.Errorf("%s took %s", name, got)
		}
	}
	s.account("narrow", store.Scope{OwnerID: bob})
	s.run("x", cpuQueue)
	s.worker("narrow", "w", "cpu").takesNone(s.worker("alice", "w", "cpu"))
}

// TestWorkerAccountDoesTheWorkOfItsRunsAlone is about a bridge, which signs in as such an account.
func TestWorkerAccountDoesTheWorkOfItsRunsAlone(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.account("machine", store.Scope{})
	in, other := s.upload("in", "1"), s.upload("other", "2")
	job := s.run("cat in", cpuQueue, codalab.Dependency{ParentUUID: in, ChildPath: "in"})
	w := s.worker("machine", "w", "cpu")

	s.get("machine", "/bundles/"+in+"/contents/blob/").is(http.StatusForbidden) // before it has the run
	w.takes()
	if a := s.get("machine", "/bundles/"+in+"/contents/blob/").ok(); a.body != "1" {
		t.Errorf("%q", a.body)
	}
	if b := s.bundle("machine", job); b.State != codalab.StatePreparing {
		t.Errorf("%+v", b)
	}
	s.get("machine", "/bundles/"+other+"/contents/blob/").is(http.StatusForbidden)
	if b := s.bundle("machine", other); b.Type != codalab.TypePrivate {
		t.Errorf("the bridge sees %+v", b)
	}
	s.call("machine", "PUT", "/bundles/"+in+"/contents/blob/?filename=x", "evil").is(http.StatusForbidden)
	for _, row := range routeRows() {
		if row.pattern == "POST /bundles" || row.pattern == "PATCH /bundles" || row.pattern == "GET /worksheets" || row.pattern == "GET /bundles" {
			path, body := row.call(subject{site: s, sheet: s.home("alice"), data: job, open: job, run: job})
			method, _, _ := strings.Cut(row.pattern, " ")
			s.call("machine", method, path, body).says(http.StatusForbidden, "machine is a worker account: it may only run bundles.")
		}
	}
	s.call("machine", "PUT", "/bundles/"+job+"/contents/blob/?filename=out&unpack=0&finalize_on_success=0", "result").ok()
	code := 0
	end := reportOf(job, codalab.StateFinalizing)
	end.ExitCode = &code
	w.told(codalab.MessageMarkFinalized, end)
	if b := s.bundle("machine", job); b.State != codalab.StateReady { // it sees how its runs ended
		t.Errorf("%+v", b)
	}
	s.get("machine", "/bundles/"+in+"/contents/blob/").is(http.StatusForbidden) // no run of it needs that any more
	if b := s.bundle("alice", job); b.Metadata.Int("data_size") != 6 {
		t.Errorf("%+v", b)
	}
}

// An input may be a path in a run, which leads through that run's own input.
func TestWorkerAccountReadsWhatInputsDependOn(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.account("machine", store.Scope{})
	data := s.upload("data", "1")
	first := s.run("x", map[string]any{"request_queue": "none"}, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
	middle := "/bundles/" + first + "/contents/blob/in"
	s.run("cat in", map[string]any{"request_queue": "cpu", "allow_failed_dependencies": true}, codalab.Dependency{ParentUUID: first, ParentPath: "in", ChildPath: "in"})
	s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": first})).ok()
	s.get("machine", middle).is(http.StatusForbidden)
	s.worker("machine", "w", "cpu").takes()
	if a := s.get("machine", middle).ok(); a.body != "1" {
		t.Errorf("%q", a.body)
	}
	s.get("machine", "/bundles/"+data+"/contents/blob/").is(http.StatusForbidden)
}

func TestWorkersOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	s := whose(t)
	for i := range 1000 {
		s.worker("bob", strconv.Itoa(i), "cpu").checkIn()
	}
	more := s.worker("bob", "more", "cpu")
	s.call("bob", "POST", "/workers/more/checkin", more.info).says(http.StatusForbidden, "You have 1000 workers already.")
	s.worker("bob", "7", "cpu").checkIn()
	s.worker("alice", "w", "cpu").checkIn()
	s.worker("root", "w", "cpu").checkIn()
	long := s.worker("alice", "w", strings.Repeat("x", 300))
	s.call("alice", "POST", "/workers/w/checkin", long.info).says(http.StatusBadRequest, "may have 256 bytes each")
}

func TestRunsOnOthersWorkersStayWithinTheQuota(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"root", "machine"} {
		s := whose(t)
		s.account("machine", store.Scope{})
		u, err := s.store.User(context.Background(), "alice")
		must(t, err)
		_, err = s.store.ChangeUser(context.Background(), u.ID, func(u *store.User) error { u.ParallelRunQuota = 1; return nil })
		must(t, err)
		s.run("x", cpuQueue)
		second := s.run("x", cpuQueue)
		s.worker(owner, "w", "cpu").takes()
		s.await(second, codalab.StateStaged)
		w := s.worker(owner, "w", "cpu")
		for range 3 {
			if m := w.checkIn(); len(m) > 0 {
				t.Errorf("told %+v", m)
			}
		}
		const why = "1 of your runs are on workers, as many as your quota of parallel runs allows."
		status := ""
		testenv.Await(t, "Run has tried the second run", func() bool {
			status = s.bundle("alice", second).Metadata.String("staged_status")
			return status == why
		}, &status)
		s.worker("alice", "own", "cpu").takes() // her own workers have no such limit
	}
}

func TestWorkersAreShownToTheirUsersAndGroups(t *testing.T) {
	t.Parallel()
	s := whose(t)
	s.addUser("carol")
	s.worker("alice", "own", "cpu").checkIn()
	s.worker("bob", "shared", "gpu").of("lab").checkIn()
	job := s.run("x", cpuQueue)
	s.worker("alice", "own", "cpu").takes()
	for user, want := range map[string]string{"alice": "own shared", "bob": "shared", "carol": "", "root": "own shared"} {
		a := s.get(user, "/workers/info").ok()
		list, _ := a.value("data").([]any)
		var names []string
		for i := range list {
			names = append(names, a.text("data", i, "worker_id"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s sees %q", user, got)
		}
	}
	a := s.get("alice", "/workers/info").ok()
	if a.text("data", 0, "run_uuids", 0) != job || a.value("data", 0, "cpus_in_use") != 1.0 || a.value("data", 1, "group_uuid") == nil || a.value("data", 0, "group_uuid") != nil {
		t.Errorf("%s", a.body)
	}
}

// A worker is its user's and its id's: the id of another user's worker, its tag and exclusiveness get nobody its runs.
func TestWorkerWithTheIDOfAnothersWorkerHasNoneOfItsRuns(t *testing.T) {
	t.Parallel()
	s := whose(t)
	job := s.run("x", cpuQueue)
	own, other := s.worker("alice", "w", "cpu"), s.worker("bob", "w", "cpu")
	other.info.TagExclusive = true
	other.takesNone(own)
	other.checkIn(reportOf(job, codalab.StateFinalizing))
	s.call("bob", "POST", "/workers/w/start_bundle/"+job, codalab.StartBundle{}).is(http.StatusNotFound)
	s.call("bob", "PUT", "/bundles/"+job+"/contents/blob/?filename=x", "evil").is(http.StatusForbidden)
	if b := s.bundle("alice", job); b.State != codalab.StatePreparing {
		t.Errorf("%s", b.State)
	}
}
