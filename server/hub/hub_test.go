package hub

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

var (
	key   = plan.Worker{User: "0xa", ID: "w"}
	start = time.Unix(1e9, 0)
)

// run is a run that a worker has.
func run(uuid string, state codalab.State) plan.Bundle {
	return plan.Bundle{UUID: uuid, OwnerID: "0xa", Type: codalab.TypeRun, State: state, Worker: key, Assigned: start, Metadata: codalab.Metadata{}}
}

func track(h *Hub, bundles ...plan.Bundle) { h.Track(bundles, plan.Site{}.Resources) }

// checkIn begins a check-in.
func checkIn(t *testing.T, h *Hub, in codalab.CheckIn, now time.Time) *CheckIn {
	t.Helper()
	c, _, err := h.BeginCheckIn(key, Arrival{CheckIn: in}, now)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// woken reports whether a check-in waits no more, without waiting.
func woken(t *testing.T, c *CheckIn) bool {
	t.Helper()
	end := make(chan time.Time, 1)
	select {
	case <-c.over:
		return true
	case <-c.wake:
		c.wake <- struct{}{}
		again, err := c.Wait(t.Context(), end)
		return again && err == nil
	default:
		return false
	}
}

func TestOfTwoInstancesThatCheckInAtOnceOneIsRefused(t *testing.T) {
	t.Parallel()
	for range 100 {
		h, refused := New(time.Minute, start), make(chan error)
		for _, instance := range []string{"9f02ab", "b1b2b3"} {
			go func() {
				_, _, err := h.BeginCheckIn(key, Arrival{CheckIn: codalab.CheckIn{Instance: instance}}, start)
				refused <- err
			}()
		}
		one, other := <-refused, <-refused
		var inUse *InUseError
		if (one == nil) == (other == nil) || !errors.As(errors.Join(one, other), &inUse) {
			t.Fatalf("%v and %v, want one refused", one, other)
		}
	}
}

func TestWorkerThatIsSilentGivesItsIDAway(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	checkIn(t, h, codalab.CheckIn{Instance: "one"}, start)
	if _, _, err := h.BeginCheckIn(key, Arrival{CheckIn: codalab.CheckIn{Instance: "two"}}, start.Add(time.Minute)); err == nil {
		t.Error("an id in use is given away")
	}
	checkIn(t, h, codalab.CheckIn{Instance: "two"}, start.Add(time.Minute+1))
	checkIn(t, h, codalab.CheckIn{Instance: "two", IsTerminating: true}, start.Add(time.Minute+2))
	checkIn(t, h, codalab.CheckIn{Instance: "three"}, start.Add(time.Minute+3)) // two has no runs, and ends
}

// One check-in with 150,000 runs of nobody once held the one write transaction for 9 s.
func TestReportsOfRunsThatTheWorkerDoesNotHaveAreFew(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	own := run("0xown", codalab.StateRunning)
	track(h, own)
	var runs []codalab.RunReport
	for i := range 150_000 {
		state := codalab.StateRunning
		if i%2 == 0 {
			state = codalab.StateFinalizing
		}
		runs = append(runs, codalab.RunReport{UUID: "0x" + strconv.Itoa(i), State: state})
	}
	runs = append(runs, codalab.RunReport{UUID: own.UUID, State: codalab.StateRunning})
	fresh := checkIn(t, h, codalab.CheckIn{}, start).ReportsToStore(runs, start)
	if len(fresh) > 201 || fresh[len(fresh)-1].UUID != own.UUID {
		t.Errorf("%d reports, the last is %+v", len(fresh), fresh[len(fresh)-1])
	}
}

// After a restart the hub has no runs until Track. A worker may report many that run before one that has ended.
func TestEndIsReportedBehindManyRunsThatTheWorkerDoesNotHave(t *testing.T) {
	t.Parallel()
	var runs []codalab.RunReport
	for i := range 1000 {
		runs = append(runs, codalab.RunReport{UUID: "0x" + strconv.Itoa(i), State: codalab.StateRunning})
	}
	end := codalab.RunReport{UUID: "0xend", State: codalab.StateFinalizing}
	fresh := checkIn(t, New(time.Minute, start), codalab.CheckIn{}, start).ReportsToStore(append(runs, end), start)
	if len(fresh) != 1 || fresh[0].UUID != end.UUID {
		t.Errorf("%d reports, want the one of the end", len(fresh))
	}
}

func TestReportIsStoredAgainWhenItDiffersOrIsOld(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	track(h, run("0x1", codalab.StateRunning))
	c := checkIn(t, h, codalab.CheckIn{}, start)
	report := codalab.RunReport{UUID: "0x1", State: codalab.StateRunning, RunStatus: "a"}
	fresh := func(change func(*codalab.RunReport), now time.Time) int {
		other := report
		change(&other)
		return len(c.ReportsToStore([]codalab.RunReport{other}, now))
	}
	same := func(*codalab.RunReport) {}
	if fresh(same, start) != 1 {
		t.Error("the first report is not stored")
	}
	c.NoteStored(report, start)
	if n := fresh(func(r *codalab.RunReport) { r.CPUUsage = 1 }, start.Add(30*time.Second)); n != 0 {
		t.Error("new usage alone is stored")
	}
	if fresh(func(r *codalab.RunReport) { r.DiskUtilization = 1 }, start) != 1 {
		t.Error("the disk use, by which a quota is enforced, is not stored")
	}
	if fresh(same, start.Add(31*time.Second)) != 1 || fresh(func(r *codalab.RunReport) { r.RunStatus = "b" }, start) != 1 || fresh(func(r *codalab.RunReport) { r.State = codalab.StateFinalizing }, start) != 1 {
		t.Error("an old report, a new status or an end is not stored")
	}
	offline := run("0x1", codalab.StateWorkerOffline)
	if track(h, offline); fresh(same, start) != 1 {
		t.Error("the report that brings a run back is not stored")
	}
}

func TestReportOfAnOlderCheckInIsNotAccepted(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	track(h, run("0x1", codalab.StateRunning), run("0x2", codalab.StateRunning))
	older, newer := checkIn(t, h, codalab.CheckIn{}, start), checkIn(t, h, codalab.CheckIn{}, start)
	if !newer.AcceptReport("0x1") || older.AcceptReport("0x1") || !older.AcceptReport("0x2") || !newer.AcceptReport("0x1") {
		t.Error("an older check-in's report is accepted after a newer one's, or a report is lost")
	}
	for _, c := range []*CheckIn{older, newer} {
		c.NoteStored(codalab.RunReport{UUID: "0x1"}, start)
	}
	ended := run("0x1", codalab.StateReady)
	if track(h, ended); len(newer.worker.applied) != 1 || len(newer.worker.stored) != 0 {
		t.Errorf("of a run that has ended it remembers %v and %v", newer.worker.applied, newer.worker.stored)
	}
}

func TestNewerCheckInEndsTheOlder(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	older := checkIn(t, h, codalab.CheckIn{}, start)
	if woken(t, older) {
		t.Error("a check-in without messages is answered")
	}
	newer := checkIn(t, h, codalab.CheckIn{}, start)
	track(h, run("0x1", codalab.StateStarting))
	if again, _ := older.Wait(t.Context(), nil); again {
		t.Error("the older check-in is told of a message")
	}
	if duties, _ := older.Due(start); len(duties) != 0 || !woken(t, newer) {
		t.Errorf("the older check-in gets %v", duties)
	}
	h.Stop()
	if again, err := newer.Wait(t.Context(), nil); again || err != nil || !woken(t, newer) {
		t.Errorf("when the server stops a check-in waits: %v, %v", again, err)
	}
	if late := checkIn(t, h, codalab.CheckIn{}, start); !woken(t, late) {
		t.Error("a check-in that begins after that waits")
	}
}

func TestDutyIsRepeatedUntilTheWorkerHasDoneIt(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	c := checkIn(t, h, codalab.CheckIn{}, start)
	due := func(after time.Duration) string {
		duties, _ := c.Due(start.Add(after))
		words := ""
		for _, d := range duties {
			words += string(d.Kind) + " " + d.UUID + " " + d.KillMessage + "; "
		}
		return words
	}
	track(h, run("0x1", codalab.StateStarting), run("0x2", codalab.StateStarting))
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{0, "run 0x1 ; run 0x2 ; "}, {9 * time.Second, ""}, {10 * time.Second, "run 0x1 ; run 0x2 ; "}} {
		if got := due(test.after); got != test.want {
			t.Errorf("after %s: %q, want %q", test.after, got, test.want)
		}
	}
	killed := run("0x2", codalab.StatePreparing)
	killed.KillMessage = "stop"
	track(h, run("0x1", codalab.StatePreparing), killed)
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{11 * time.Second, "kill 0x2 stop; "}, {15 * time.Second, ""}, {16 * time.Second, "kill 0x2 stop; "}} {
		if got := due(test.after); got != test.want {
			t.Errorf("killed, after %s: %q, want %q", test.after, got, test.want)
		}
	}
	killed.KillMessage = "stop, for another reason"
	if track(h, killed); due(21*time.Second) != "kill 0x2 stop, for another reason; " {
		t.Error("the worker gets the reason that is no longer the bundle's")
	}
	if track(h, run("0x2", codalab.StateKilled)); due(time.Hour) != "" {
		t.Error("a run that has ended is killed")
	}
}

func TestCapacityIsWhatRunsLeaveOfAWorker(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	in := codalab.CheckIn{CPUs: 4, MemoryBytes: 8 << 30, ExitAfterNumRuns: 3, Nodes: []codalab.NodeSize{{CPUs: 2, MemoryBytes: 4 << 30}}, FreeDiskBytes: 7}
	checkIn(t, h, in, start)
	starting, running := run("0x1", codalab.StateStarting), run("0x2", codalab.StateRunning)
	running.OwnerID, running.Metadata = "0xb", codalab.Metadata{"request_cpus": int64(2)}
	track(h, starting, running)
	capacities, counts, more := h.TakeCapacities(start)
	want := plan.Capacity{
		Worker: key, Total: codalab.Resources{CPUs: 4, Memory: 8 << 30, Disk: 7}, Free: codalab.Resources{CPUs: 1, Memory: 4 << 30, Disk: 7},
		Nodes: []codalab.Resources{{CPUs: 2, Memory: 4 << 30, Disk: 7}}, RunsLeft: 2, Running: 2,
	}
	if diff := cmp.Diff([]plan.Capacity{want}, capacities); diff != "" || !more {
		t.Errorf("more %v (-want +got):\n%s", more, diff)
	}
	if diff := cmp.Diff(plan.RunCounts{"0xa": {All: 1}, "0xb": {All: 1, Others: 1}}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if _, _, more = h.TakeCapacities(start); more || h.MoreRoom() {
		t.Error("more room without a change")
	}
	if track(h, run("0x1", codalab.StateKilled)); !h.MoreRoom() {
		t.Error("no more room after a run has ended")
	}
	if capacities, _, _ = h.TakeCapacities(start.Add(time.Minute + 1)); len(capacities) != 0 {
		t.Error("a silent worker has capacity")
	}
	in.IsTerminating = true
	checkIn(t, h, in, start)
	if capacities, _, _ = h.TakeCapacities(start); len(capacities) != 0 {
		t.Error("a worker that ends has capacity")
	}
}

// A worker that submits runs together gets another run ahead as soon as it has claimed one.
func TestWorkerTakesAsManyRunsAheadAsItSubmitsTogether(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	checkIn(t, h, codalab.CheckIn{CPUs: 4, MemoryBytes: 8 << 30, ExitAfterNumRuns: 99, Together: 3}, start)
	ahead := func() int64 {
		capacities, _, _ := h.TakeCapacities(start)
		return capacities[0].Ahead
	}
	if got := ahead(); got != 3 {
		t.Errorf("an idle worker takes %d runs ahead, want 3", got)
	}
	track(h, run("0x1", codalab.StateStarting), run("0x2", codalab.StateStarting))
	if got := ahead(); got != 1 {
		t.Errorf("a worker that has not claimed two runs takes %d ahead, want 1", got)
	}
	if track(h, run("0x1", codalab.StatePreparing)); !h.MoreRoom() || ahead() != 2 {
		t.Error("a worker takes no more runs ahead after it has claimed one")
	}
	if track(h, run("0x1", codalab.StateRunning)); h.MoreRoom() {
		t.Error("more room although a run only goes on")
	}
}

func TestSilenceIsFound(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	c := checkIn(t, h, codalab.CheckIn{}, start)
	track(h, run("0x1", codalab.StateStarting), run("0x2", codalab.StateRunning), run("0x3", codalab.StateRunning))
	if unclaimed, lost := h.Tick(start); len(unclaimed)+len(lost) != 0 {
		t.Errorf("%v are unclaimed and %v lost at once", unclaimed, lost)
	}
	c.End()
	checkIn(t, h, codalab.CheckIn{Reports: []codalab.RunReport{{UUID: "0x2"}}}, at(time.Minute)).End()
	if unclaimed, lost := h.Tick(at(time.Minute + 1)); len(unclaimed) != 0 || !cmp.Equal(lost, []string{"0x3"}) {
		t.Errorf("unclaimed %v while the worker checks in; lost %v, want the run that no check-in lists", unclaimed, lost)
	}
	track(h, run("0x3", codalab.StateWorkerOffline))
	if _, lost := h.Tick(at(time.Minute + 2)); len(lost) != 0 {
		t.Errorf("%v is lost again, although it is known to be", lost)
	}
	if unclaimed, _ := h.Tick(at(2 * time.Minute)); len(unclaimed) != 0 {
		t.Errorf("%v are unclaimed while the worker checks in", unclaimed)
	}
	if unclaimed, _ := h.Tick(at(2*time.Minute + 1)); !cmp.Equal(unclaimed, []string{"0x1"}) {
		t.Errorf("unclaimed %v, want the run of a worker that has gone", unclaimed)
	}
	track(h, run("0x1", codalab.StateKilled), run("0x2", codalab.StateKilled), run("0x3", codalab.StateKilled))
	h.Tick(at(3 * time.Minute))
	if n := len(h.workers) + len(h.workerOf); n != 0 {
		t.Errorf("it remembers %d things of a worker that has gone", n)
	}
}

func TestUnclaimedRunIsGivenBackAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	track(h, run("0x1", codalab.StateStarting))
	for after, want := range map[time.Duration]int{startLimit: 0, startLimit + 1: 1} {
		checkIn(t, h, codalab.CheckIn{}, start.Add(after))
		if unclaimed, _ := h.Tick(start.Add(after)); len(unclaimed) != want {
			t.Errorf("after %s: %v", after, unclaimed)
		}
	}
}

// A bridge that is stopped or drained does not claim a run that was on its way to it. Other workers may have room.
func TestRunOnItsWayToAWorkerThatHasClosedIsGivenBackAtOnce(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	track(h, run("0x1", codalab.StateStarting), run("0x2", codalab.StateRunning))
	checkIn(t, h, codalab.CheckIn{Closed: "the bridge was stopped"}, start)
	for after, want := range map[time.Duration]int{closedLimit: 0, closedLimit + 1: 1} {
		unclaimed, lost := h.Tick(start.Add(after))
		if len(unclaimed) != want || len(lost) != 0 {
			t.Errorf("after %s: unclaimed %v, lost %v; want %d, and that the claimed run stays", after, unclaimed, lost, want)
		}
	}
}

// ask asks the worker of a run, and returns a channel with the error of Ask.
func ask(ctx context.Context, h *Hub, uuid string, kind codalab.MessageType) <-chan error {
	over := make(chan error, 1)
	go func() {
		_, err := h.Ask(ctx, key, codalab.Message{Type: kind, UUID: uuid}, time.Now)
		over <- err
	}()
	return over
}

// The check-in of an earlier start may be on its way when the later one comes.
func TestLaterStartReplacesTheEarlierOneAndItsReports(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	begin := func(number int64, instance string, runs ...codalab.RunReport) (*CheckIn, error) {
		c, _, err := h.BeginCheckIn(key, Arrival{CheckIn: codalab.CheckIn{Instance: instance, Hostname: instance, Reports: runs}, Start: number}, start)
		return c, err
	}
	report := codalab.RunReport{UUID: "0x1", State: codalab.StateRunning}
	first, err := begin(1, "one", report)
	if err != nil || first.Replaces() != "" {
		t.Fatalf("%v, replaces %q", err, first.Replaces())
	}
	track(h, run("0x1", codalab.StateRunning), run("0x2", codalab.StateRunning), run("0x3", codalab.StateStarting))
	h.Tick(start)
	second, err := begin(2, "two", codalab.RunReport{UUID: "0x2"})
	if err != nil || second.Replaces() != "one" {
		t.Fatalf("%v, replaces %q", err, second.Replaces())
	}
	select {
	case <-first.over:
	default:
		t.Error("the earlier one waits on")
	}
	if duties, _ := first.Due(start); len(duties) != 0 {
		t.Errorf("the earlier one gets %v", duties)
	}
	if first.AcceptReport("0x1") || len(first.ReportsToStore([]codalab.RunReport{report}, start)) != 0 {
		t.Error("a report of the earlier one is accepted")
	}
	if _, err := begin(1, "one"); !errors.Is(err, ErrReplaced) {
		t.Errorf("the earlier one comes back: %v", err)
	}
	if _, lost := h.Tick(start); !cmp.Equal(lost, []string{"0x1"}) {
		t.Errorf("lost are %v", lost)
	}
	if duties, _ := second.Due(start); len(duties) != 1 || duties[0].UUID != "0x3" {
		t.Errorf("the later one gets %v, want the run that nobody has claimed", duties)
	}
	for _, number := range []int64{2, 0} {
		if _, err := begin(number, "three"); err == nil || errors.Is(err, ErrReplaced) {
			t.Errorf("another program of the same start, or with a password: %v", err)
		}
	}
}

// The first check-in of a start may lack a run that a later one lists, and a third start may have a run of the first.
func TestRunThatTheLatestStartListsIsNotLost(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	arrive := func(number int64, runs ...codalab.RunReport) {
		t.Helper()
		in := codalab.CheckIn{Instance: strings.Repeat("i", int(number)), Reports: runs}
		if _, _, err := h.BeginCheckIn(key, Arrival{CheckIn: in, Start: number}, start); err != nil {
			t.Fatal(err)
		}
	}
	report := codalab.RunReport{UUID: "0x1", State: codalab.StateRunning}
	arrive(1, report)
	track(h, run("0x1", codalab.StateRunning))
	arrive(2)
	if _, lost := h.Tick(start); len(lost) != 1 {
		t.Fatalf("lost are %v", lost)
	}
	track(h, run("0x1", codalab.StateWorkerOffline))
	arrive(3)
	arrive(3, report)
	track(h, run("0x1", codalab.StateRunning))
	if _, lost := h.Tick(start); len(lost) != 0 {
		t.Errorf("lost are %v, which the worker lists", lost)
	}
}

func TestWorkerMayComeBackWithAPassword(t *testing.T) {
	t.Parallel()
	h := New(time.Minute, start)
	arrive := func(number int64, instance string, now time.Time) (*CheckIn, error) {
		c, _, err := h.BeginCheckIn(key, Arrival{CheckIn: codalab.CheckIn{Instance: instance}, Start: number}, now)
		return c, err
	}
	if _, err := arrive(7, "one", start); err != nil {
		t.Fatal(err)
	}
	later := start.Add(time.Minute + 1)
	c, err := arrive(0, "two", later)
	if err != nil {
		t.Fatal(err)
	}
	track(h, run("0x1", codalab.StateRunning))
	report := codalab.RunReport{UUID: "0x1", State: codalab.StateRunning}
	if !c.AcceptReport("0x1") || len(c.ReportsToStore([]codalab.RunReport{report}, later)) != 1 {
		t.Error("its report is not accepted")
	}
	if _, err := arrive(7, "one", later); err == nil {
		t.Error("the first program comes back at once")
	}
}
