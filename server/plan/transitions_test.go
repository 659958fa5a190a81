package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// onWorker is a run of alice that a worker has.
func onWorker(state codalab.State) Bundle {
	return Bundle{UUID: "0xb", Type: codalab.TypeRun, OwnerID: "alice", State: state, Worker: Worker{"alice", "w"}, Metadata: codalab.Metadata{}}
}

func TestNewBundleBeginsAsItsKindSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, link string
		waits      bool
		parents    int
		want       codalab.State
	}{
		{codalab.TypeDataset, "", false, 0, codalab.StateUploading},
		{codalab.TypeProgram, "", true, 0, codalab.StateUploading},
		{codalab.TypeDataset, "/data", false, 0, codalab.StateReady},
		{codalab.TypeRun, "", false, 0, codalab.StateStaged},
		{codalab.TypeRun, "", false, 1, codalab.StateCreated},
		{codalab.TypeRun, "", true, 0, codalab.StateUploading}, // a copy of another server's
		{codalab.TypeMake, "", false, 2, codalab.StateCreated},
	} {
		b := Bundle{Type: test.kind, Metadata: codalab.Metadata{"link_url": test.link}, Dependencies: make([]codalab.Dependency, test.parents)}
		got := b.Create(test.waits)
		if got.State != test.want || (got.Metadata.String("staged_status") != "") != (test.want == codalab.StateStaged) {
			t.Errorf("%+v: %s %v", test, got.State, got.Metadata)
		}
	}
}

func TestRunIsStagedWhenItsParentsAreReady(t *testing.T) {
	t.Parallel()
	parent := func(uuid string, state codalab.State) Parent {
		return Parent{UUID: uuid, State: state, Readable: true}
	}
	hint := " (Please use the --allow-failed-dependencies flag to depend on results of failed or killed bundles)"
	for name, test := range map[string]struct {
		parents []Parent
		allow   bool
		want    codalab.State
		why     string
	}{
		"both ready":            {[]Parent{parent("0x1", codalab.StateReady), parent("0x2", codalab.StateReady)}, false, codalab.StateStaged, ""},
		"one runs":              {[]Parent{parent("0x1", codalab.StateReady), parent("0x2", codalab.StateRunning)}, false, codalab.StateCreated, ""},
		"one is missing":        {[]Parent{parent("0x1", codalab.StateRunning)}, true, codalab.StateFailed, "Missing parent bundles: 0x2"},
		"one is hidden":         {[]Parent{parent("0x1", codalab.StateReady), {UUID: "0x2", State: codalab.StateReady}}, true, codalab.StateFailed, "Parent bundles that the bundle's owner may not read: 0x2"},
		"one failed":            {[]Parent{parent("0x1", codalab.StateFailed), parent("0x2", codalab.StateRunning)}, false, codalab.StateFailed, "Parent bundles failed: 0x1" + hint},
		"both ended badly":      {[]Parent{parent("0x1", codalab.StateFailed), parent("0x2", codalab.StateKilled)}, false, codalab.StateFailed, "Parent bundles failed: 0x1 Parent bundles were killed: 0x2" + hint},
		"which is allowed":      {[]Parent{parent("0x1", codalab.StateFailed), parent("0x2", codalab.StateKilled)}, true, codalab.StateStaged, ""},
		"allowed, but one runs": {[]Parent{parent("0x1", codalab.StateFailed), parent("0x2", codalab.StateRunning)}, true, codalab.StateCreated, ""},
	} {
		b := Bundle{State: codalab.StateCreated, Metadata: codalab.Metadata{"allow_failed_dependencies": test.allow}, Dependencies: []codalab.Dependency{
			{ParentUUID: "0x1"}, {ParentUUID: "0x2"}, {ParentUUID: "0x2", ParentPath: "again"},
		}}
		got, changed := b.Stage(test.parents)
		if got.State != test.want || got.Metadata.String("failure_message") != test.why || changed != (test.want != b.State) {
			t.Errorf("%s: %s %v, changed %v", name, got.State, got.Metadata, changed)
		}
	}
}

func TestFailedBundleTellsOfNoWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ before, after codalab.Metadata }{
		{codalab.Metadata{"staged_status": "Waiting."}, codalab.Metadata{"failure_message": "no"}},
		{codalab.Metadata{"staged_status": "Waiting.", "run_status": "Waiting."}, codalab.Metadata{"failure_message": "no", "run_status": "Finished"}},
	} {
		b := Bundle{Type: codalab.TypeRun, State: codalab.StateWorkerOffline, Metadata: test.before}.Fail("no")
		if diff := cmp.Diff(test.after, b.Metadata); diff != "" || b.State != codalab.StateFailed {
			t.Errorf("%s %s", b.State, diff)
		}
	}
}

func TestOnlyTheWorkerOfARunClaimsIt(t *testing.T) {
	t.Parallel()
	run := Bundle{Type: codalab.TypeRun, OwnerID: "alice", State: codalab.StateStaged, Metadata: codalab.Metadata{}}
	run = run.Assign(Worker{"alice", "w"}, time.Unix(9, 0))
	start := codalab.StartBundle{Hostname: "node\x1b[31m1", StartTime: 12}
	if _, ok := run.Claim(Worker{"bob", "w"}, start, false); ok {
		t.Error("bob's worker has the run")
	}
	claimed, ok := run.Claim(Worker{"alice", "w"}, start, false)
	if !ok || claimed.State != codalab.StatePreparing || strings.Contains(claimed.Metadata.String("remote"), "\x1b") {
		t.Errorf("claimed %v: %s %v", ok, claimed.State, claimed.Metadata)
	}
	again, ok := claimed.Claim(Worker{"alice", "w"}, start, false)
	if diff := cmp.Diff(claimed, again); !ok || diff != "" {
		t.Errorf("again %v: %s", ok, diff)
	}
}

// A run that is staged again shows nothing of its last worker, and may be given to another one.
func TestRunThatIsGivenBackKeepsNothingOfItsWorker(t *testing.T) {
	t.Parallel()
	now, w := time.Unix(9, 0), Worker{"alice", "w"}
	fresh := Bundle{Type: codalab.TypeRun, Metadata: codalab.Metadata{"name": "x", "created": int64(1), "actions": []string{}, "remote_history": []string{}}}.Create(false)
	run := fresh.Assign(w, now)
	run, _ = run.Claim(w, codalab.StartBundle{Hostname: "n1"}, false)
	run = run.ApplyReport(codalab.RunReport{State: codalab.StateRunning, JobHandle: "17", DiskUtilization: 1 << 20, Remote: "n1", Cost: &codalab.Cost{Attempts: 2}, Platform: &codalab.Platform{Site: "c"}}, now, true)
	if run.Cost == nil || run.Cost.Attempts != 2 || run.Platform == nil || run.Platform.Site != "c" {
		t.Errorf("cost %+v, platform %+v", run.Cost, run.Platform)
	}
	run.ChargedTime = 0
	if diff := cmp.Diff(fresh, run.ApplyReport(codalab.RunReport{State: codalab.StateStaged}, now, true)); diff != "" {
		t.Errorf("(-never assigned +given back):\n%s", diff)
	}
}

func TestKilledRunIsNotStagedAgain(t *testing.T) {
	t.Parallel()
	run := onWorker(codalab.StateRunning).Kill()
	if run.State != codalab.StateRunning || run.KillMessage == "" || !cmp.Equal(run.Metadata.Strings("actions"), []string{"kill"}) {
		t.Errorf("a run on a worker: %s %q %v", run.State, run.KillMessage, run.Metadata)
	}
	run = run.ApplyReport(codalab.RunReport{State: codalab.StateStaged}, time.Unix(9, 0), false)
	if run.State != codalab.StateKilled || run.Metadata.String("failure_message") != codalab.KillRequested || run.Worker != (Worker{}) {
		t.Errorf("given back: %s %v", run.State, run.Metadata)
	}
	if run = onWorker(codalab.StateStarting).Kill(); run.State != codalab.StateKilled || run.KillMessage != "" {
		t.Errorf("a run that no worker has claimed: %s %q", run.State, run.KillMessage)
	}
}

// A kill of a run whose results are uploaded is told apart from the one that ended its command.
func TestKillWhileResultsAreUploadedGivesTheUploadUp(t *testing.T) {
	t.Parallel()
	run := onWorker(codalab.StateRunning).Kill()
	if run.KillMessage != codalab.KillRequested {
		t.Errorf("a running command is killed with %q", run.KillMessage)
	}
	now := time.Unix(9, 0)
	run = run.ApplyReport(codalab.RunReport{State: codalab.StateRunning, Profile: map[string]codalab.StageTimes{
		codalab.StageCleaningUp: codalab.NewStageTimes(now, now), codalab.StageUploading: codalab.NewStageTimes(now, time.Time{}),
	}}, now, false)
	if run.KillMessage != codalab.KillRequested {
		t.Errorf("the worker is told %q, and nobody asked for that", run.KillMessage)
	}
	if run = run.Kill(); run.KillMessage != codalab.KillUpload {
		t.Errorf("while its results are uploaded it is killed with %q", run.KillMessage)
	}
}

func TestReportDecidesHowARunEnds(t *testing.T) {
	t.Parallel()
	code := func(n int) *int { return &n }
	words := func(s string) *string { return &s }
	for _, test := range []struct {
		code    *int
		message *string
		want    codalab.State
		why     string
	}{
		{code(0), nil, codalab.StateReady, ""},
		{nil, nil, codalab.StateReady, ""},
		{code(3), nil, codalab.StateFailed, "Exit code 3"},
		{code(137), words("Memory limit 1g exceeded."), codalab.StateFailed, "Memory limit 1g exceeded."},
		{code(137), words("Kill requested: User time quota exceeded."), codalab.StateKilled, "Kill requested: User time quota exceeded."},
		{nil, words("red\x1b[31m"), codalab.StateFailed, `red\u001b[31m`},
	} {
		for _, state := range []codalab.State{codalab.StateStarting, codalab.StatePreparing, codalab.StateRunning, codalab.StateWorkerOffline} {
			b := onWorker(state).ApplyReport(codalab.RunReport{State: codalab.StateFinalizing, ExitCode: test.code, FailureMessage: test.message, DiskUtilization: 9}, time.Unix(9, 0), false)
			if b.State != test.want || b.Metadata.String("failure_message") != test.why || b.DataSize != 0 || b.Metadata.String("run_status") != "Finished" {
				t.Errorf("%s: %s %v", state, b.State, b.Metadata)
			}
		}
	}
}

func TestReportsChargeEachSecondOnce(t *testing.T) {
	t.Parallel()
	b, charged := onWorker(codalab.StateRunning), int64(0)
	for _, total := range []float64{1.6, 2.7, 2.7, 1, 4.2, 1e300} {
		b = b.ApplyReport(codalab.RunReport{State: codalab.StateRunning, ContainerTimeTotal: total}, time.Unix(9, 0), true)
		if total == 1 && b.ChargedTime != 0 {
			t.Errorf("a report of less time charges %d s", b.ChargedTime)
		}
		charged += b.ChargedTime
	}
	// The step back from 2.7 to 1 is charged again: the bundle keeps only the last report's time.
	if want := int64(1 + 1 + 0 + 0 + 3 + 1e10 - 4); charged != want {
		t.Errorf("%d s, want %d", charged, want)
	}
	b = onWorker(codalab.StateRunning).ApplyReport(codalab.RunReport{State: codalab.StateRunning, ContainerTimeTotal: 9}, time.Unix(9, 0), false)
	if b.ChargedTime != 0 {
		t.Errorf("a user's own worker charges %d s", b.ChargedTime)
	}
}

func TestSilentWorkersRunsGoOffline(t *testing.T) {
	t.Parallel()
	now := time.Unix(9, 0)
	b := onWorker(codalab.StateRunning).GoOffline(now)
	if b.State != codalab.StateWorkerOffline || b.Worker != (Worker{"alice", "w"}) {
		t.Errorf("%s on %v", b.State, b.Worker)
	}
	if b = b.ApplyReport(codalab.RunReport{State: codalab.StateRunning}, now, false); b.State != codalab.StateRunning {
		t.Errorf("its worker is back: %s", b.State)
	}
	b.Metadata["on_preemptible_worker"] = true
	if b = b.GoOffline(now); b.State != codalab.StateStaged || b.Worker != (Worker{}) {
		t.Errorf("its worker was preempted: %s on %v", b.State, b.Worker)
	}
	if b = onWorker(codalab.StateStarting).GoOffline(now); b.State != codalab.StateStarting {
		t.Errorf("not claimed: %s", b.State)
	}
}

func TestBundlesWaitSixtyDays(t *testing.T) {
	t.Parallel()
	made := time.Unix(1e9, 0)
	for _, state := range []codalab.State{codalab.StateUploading, codalab.StateStaged, codalab.StateWorkerOffline} {
		b := Bundle{State: state, Created: made}
		if got := b.Expire(made.Add(StuckAfter - 1)); got.State != state {
			t.Errorf("%s, not yet 60 days old: %s", state, got.State)
		}
		want := "Bundle has been stuck in " + string(state) + " state for more than 60 days."
		if got := b.Expire(made.Add(StuckAfter)); got.State != codalab.StateFailed || got.Metadata.String("failure_message") != want {
			t.Errorf("%s, 60 days old: %s %v", state, got.State, got.Metadata)
		}
	}
	if got := (Bundle{State: codalab.StateRunning, Created: made}).Expire(made.Add(10 * StuckAfter)); got.State != codalab.StateRunning {
		t.Errorf("a run that is reported: %s", got.State)
	}
}

func TestResultsOfARunAreNotReplacedByItsReports(t *testing.T) {
	t.Parallel()
	run := onWorker(codalab.StateRunning).TakeResults("results", codalab.Extent{Bytes: 42, Entries: 3})
	if again := run.TakeResults("others", codalab.Extent{Bytes: 7}); !cmp.Equal(run, again) {
		t.Errorf("taken twice: %+v", again)
	}
	run = run.ApplyReport(codalab.RunReport{State: codalab.StateFinalizing, DiskUtilization: 1 << 40}, time.Unix(9, 0), false)
	if run.Contents != "results" || run.DataSize != 42 || run.Entries != 3 || run.Metadata.Int("data_size") != 42 {
		t.Errorf("%s of %d bytes, %v", run.Contents, run.DataSize, run.Metadata)
	}
	if b := (Bundle{State: codalab.StateStaged}).TakeResults("results", codalab.Extent{Bytes: 42, Entries: 3}); b.Contents != "" {
		t.Error("a run without a worker has results")
	}
}

// incrementDiskUsed counts an upload's bytes before they arrive. Bytes that never arrive must not count
// against their owner's quota.
func TestBundleWithoutContentsCountsNothingAfterItsEnd(t *testing.T) {
	t.Parallel()
	b := Bundle{Type: codalab.TypeDataset, State: codalab.StateUploading, Metadata: codalab.Metadata{}}.Announce(1 << 30)
	if b.DataSize != 1<<30 || b.Metadata.Int("data_size") != 1<<30 {
		t.Fatalf("announced: %d bytes, %v", b.DataSize, b.Metadata)
	}
	if got := b.Uncount(); got.DataSize != 0 || got.State != codalab.StateUploading {
		t.Errorf("the bytes arrive: %s with %d bytes", got.State, got.DataSize)
	}
	child := Bundle{
		Type: codalab.TypeMake, State: codalab.StateCreated, Metadata: codalab.Metadata{},
		Dependencies: []codalab.Dependency{{ParentUUID: "0x1"}},
	}.Announce(1 << 30)
	orphan, _ := child.Stage(nil)
	without, _ := b.EndUpload(codalab.StateReady)
	offline := onWorker(codalab.StateRunning).ApplyReport(codalab.RunReport{State: codalab.StateRunning, DiskUtilization: 9}, time.Unix(9, 0), false).GoOffline(time.Unix(10, 0))
	for how, ended := range map[string]Bundle{
		"its upload fails": b.FailUpload("no"), "its upload ends without contents": without, "its client does not come back": b.Expire(b.Created.Add(StuckAfter)),
		"a user kills it": b.Kill(), "its parent is missing": orphan, "its worker does not come back": offline.Expire(offline.Created.Add(StuckAfter)),
	} {
		if !ended.State.Final() || ended.DataSize != 0 || ended.Metadata.Int("data_size") != 0 {
			t.Errorf("%s: %s with %d bytes, %v", how, ended.State, ended.DataSize, ended.Metadata)
		}
		if late := ended.Announce(1); late.DataSize != 0 {
			t.Errorf("%s, and its client announces bytes: it counts %d", how, late.DataSize)
		}
	}
	run := onWorker(codalab.StateRunning)
	if got := run.FailUpload("no"); got.State != codalab.StateRunning {
		t.Errorf("a run whose results cannot be uploaded: %s", got.State)
	}
}

func TestMakingThatWasCutOffBeginsAgain(t *testing.T) {
	t.Parallel()
	b := Bundle{Type: codalab.TypeMake, State: codalab.StateStaged}
	b, begins := b.Making()
	if !begins || b.State != codalab.StateMaking {
		t.Errorf("%v %s", begins, b.State)
	}
	if cut, begins := b.Making(); begins || cut.State != codalab.StateStaged {
		t.Errorf("cut off: %v %s", begins, cut.State)
	}
	if killed, ok := b.Kill().Made(); ok || killed.State != codalab.StateKilled {
		t.Errorf("killed: %v %s", ok, killed.State)
	}
	if made, ok := b.Made(); !ok || made.State != codalab.StateReady {
		t.Errorf("made: %v %s", ok, made.State)
	}
}

// A worker may report no sentence, and rows of older servers may have none.
func TestStateIsExplainedUntilTheEnd(t *testing.T) {
	t.Parallel()
	for bundleType, states := range map[string][]codalab.State{
		codalab.TypeProgram: {codalab.StateCreated, codalab.StateUploading},
		codalab.TypeDataset: {codalab.StateCreated, codalab.StateUploading},
		codalab.TypeMake:    {codalab.StateCreated, codalab.StateUploading, codalab.StateStaged, codalab.StateMaking},
		codalab.TypeRun: {
			codalab.StateCreated, codalab.StateUploading, codalab.StateStaged, codalab.StateStarting, codalab.StatePreparing,
			codalab.StateRunning, codalab.StateFinalizing, codalab.StateWorkerOffline,
		},
	} {
		for _, state := range states {
			for _, metadata := range []codalab.Metadata{{}, {"staged_status": "", "run_status": ""}, {"staged_status": nil, "run_status": nil}} {
				if (Bundle{Type: bundleType, State: state, Metadata: metadata}).Details() == "" {
					t.Errorf("%s %s with %v is not explained", bundleType, state, metadata)
				}
			}
		}
	}
}
