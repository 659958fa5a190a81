package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestRunStatusSaysWhyInOneSentence(t *testing.T) {
	t.Parallel()
	pending := func(reason string, start time.Time) func(*plan.Row) {
		return func(r *plan.Row) { r.Job.Reason, r.Job.Start = reason, start }
	}
	trouble := func(text string) func(*plan.Row) {
		return func(r *plan.Row) { r.LastFailure, r.DueAt = text, epoch.Add(time.Minute) }
	}
	unstaged := func(r *plan.Row) { r.Staged = nil }
	for _, c := range []struct {
		phase  plan.Phase
		change func(*plan.Row)
		want   string
	}{
		{plan.Claiming, unstaged, "Claimed by the bridge."},
		{plan.Staging, unstaged, "Staging the image and the dependencies."},
		{plan.Staging, func(r *plan.Row) { r.Progress, r.LastFailure = "Pulling image python:3.", "it broke off" }, "Pulling image python:3."},
		{plan.Staging, func(r *plan.Row) { r.Progress = "Pulling image python:3." }, "Pulling image python:3."},
		{plan.Staging, func(r *plan.Row) { r.Staged = &spool.Inputs{} }, "Image and dependencies are ready; waiting to be submitted to Slurm."},
		{plan.Staging, trouble("no route to host"), "Trying again at 08:01:00: No route to host."},
		{plan.Staging, func(r *plan.Row) { r.LastFailure = "no route to host" }, "Trying again: No route to host."},
		{plan.Submitting, unstaged, "Being submitted to Slurm."},
		{plan.Submitting, trouble("job submit limit"), "Job submit limit."},
		{plan.Queued, pending("None", time.Time{}), "Slurm job 7 waits: Slurm has not considered it yet."},
		{plan.Queued, pending("", time.Time{}), "Slurm job 7 waits: Slurm has not considered it yet."},
		{plan.Queued, pending("Priority", time.Time{}), "Slurm job 7 waits (Priority): jobs with a higher priority come first."},
		{plan.Queued, func(r *plan.Row) {
			pending("Priority", epoch)(r)
			r.Turn = sbatch.Turn{Partition: "cpu", Ahead: 12}
		}, "Slurm job 7 waits (Priority): jobs with a higher priority come first. 12 jobs are ahead of it in partition cpu. Slurm expects to start it at 2027-01-15 08:00 UTC."},
		{plan.Queued, func(r *plan.Row) {
			pending("Priority", time.Time{})(r)
			r.Turn = sbatch.Turn{Partition: "cpu", Ahead: 1200}
		}, "Slurm job 7 waits (Priority): jobs with a higher priority come first. About 1200 jobs are ahead of it in partition cpu."},
		{plan.Queued, func(r *plan.Row) {
			pending("Resources", time.Time{})(r)
			r.Turn = sbatch.Turn{Partition: "cpu"}
		}, "Slurm job 7 waits (Resources): it is one of the next, and waits until enough processors, memory and GPUs are free. No job is ahead of it in partition cpu."},
		{plan.Queued, func(r *plan.Row) {
			pending("QOSMaxGRESPerUser", time.Time{})(r)
			r.Turn = sbatch.Turn{Partition: "cpu", Ahead: 3}
		}, "Slurm job 7 waits (QOSMaxGRESPerUser): with it, the jobs of the bridge's Slurm user that run would have more GPUs or other generic resources than the QOS allows at once. It can begin when some of them have ended."},
		{plan.Queued, pending("CosmicRays", time.Time{}), "Slurm job 7 waits (CosmicRays)."},
		{plan.Queued, func(r *plan.Row) { r.Job = job(sbatch.StateRunning) }, "Slurm job 7 is starting on n1 (RUNNING)."},
		{plan.Running, unstaged, "Running job in container (Slurm job 7)."},
		{plan.Running, func(r *plan.Row) { r.Job.ID = 0 }, "Running job in container."},
		{plan.Running, func(r *plan.Row) { r.Status = &spool.Status{Stage: spool.StageRunning} }, "Running job in container (Slurm job 7)."},
		{plan.Running, settingUp, "Setting the container up on n1 (Slurm job 7)."},
		{plan.Running, func(r *plan.Row) { settingUp(r); r.Begun, r.Job.Nodes = &spool.Started{}, "" }, "Setting the container up (Slurm job 7)."},
		{plan.Running, func(r *plan.Row) { settingUp(r); r.Standalone = true }, "Setting the container up."},
		{plan.Running, func(r *plan.Row) { settingUp(r); r.Status = &spool.Status{Stage: spool.StageUnpacking} }, "Unpacking the image on n1 (Slurm job 7)."},
		{plan.Running, func(r *plan.Row) {
			settingUp(r)
			r.Status = &spool.Status{Waits: "Kubernetes has no node for the pod: 0/2 nodes are available"}
		}, "Waiting: Kubernetes has no node for the pod: 0/2 nodes are available."},
		{plan.Running, func(r *plan.Row) { settingUp(r); r.Exit = &spool.Exit{Terminated: true, NotStarted: true} }, "Being stopped."},
		{plan.Running, func(r *plan.Row) { r.Status = &spool.Status{Stage: spool.StageCopying} }, "Copying results from the node's own disk to the shared one."},
		{plan.Stopping, unstaged, "Being stopped."},
		{plan.Collecting, unstaged, "Uploading results."},
		{plan.Collecting, trouble("connection refused"), "Uploading results; the last try failed: Connection refused."},
		{plan.Collecting, func(r *plan.Row) { r.LastFailure, r.Progress = "connection refused", "Uploading results: 1 of 2." }, "Uploading results: 1 of 2."},
		{plan.Finalizing, unstaged, "Finalizing bundle."},
		{plan.Done, unstaged, "Finished"},
	} {
		r := rowIn(c.phase)
		c.change(&r)
		if got := r.RunStatus(); got != c.want {
			t.Errorf("%s: %q, want %q", c.phase, got, c.want)
		}
	}
}

// Sentences repeat texts of images, servers and commands. A server may store run_status as one line, and the bridge
// compares the stored text with its report.
func TestReportSteersNoTerminal(t *testing.T) {
	t.Parallel()
	r := plan.Row{Phase: plan.Staging, Retry: plan.Retry{FailedTries: 1, LastFailure: "no\r\n\x1b[2J\u202eroute"}}
	if got := r.Report("w").RunStatus; got != `Trying again: No \u001b[2J\u202eroute.` {
		t.Errorf("run_status %q", got)
	}
	r = plan.Row{Phase: plan.Finalizing, Verdict: &plan.Verdict{Failure: "no\x1b[2J\nshell"}}
	if got := *r.Report("w").FailureMessage; got != `no\u001b[2J`+"\nshell" {
		t.Errorf("failure_message %q", got)
	}
}

func TestReportNamesTheSlurmJob(t *testing.T) {
	t.Parallel()
	for _, p := range plan.Phases() {
		r := rowIn(p)
		want := ""
		if r.Job.ID != 0 {
			want = "7"
		}
		if got := r.Report("w").JobHandle; got != want || p == plan.Running && want == "" {
			t.Errorf("%s: job_handle %q, want %q", p, got, want)
		}
	}
}

func TestReportSaysTheStateOnTheWire(t *testing.T) {
	t.Parallel()
	want := map[plan.Phase]codalab.State{
		plan.Staging: codalab.StatePreparing, plan.Submitting: codalab.StatePreparing, plan.Queued: codalab.StatePreparing,
		plan.Running: codalab.StateRunning, plan.Stopping: codalab.StateRunning, plan.Collecting: codalab.StateRunning,
		plan.Finalizing: codalab.StateFinalizing,
	}
	for _, p := range plan.Phases() {
		r := rowIn(p)
		state, reported := want[p]
		if r.Reportable() != reported {
			t.Errorf("%s: reported %v", p, r.Reportable())
		}
		if run := r.Report("ann-cpu"); reported && run.State != state {
			t.Errorf("%s: state %s, want %s", p, run.State, state)
		}
	}
	unbegun := rowIn(plan.Stopping)
	settingUp(&unbegun)
	unbegun.Begun = nil
	if got := unbegun.Report("ann-cpu"); got.State != codalab.StatePreparing || got.Remote != "ann-cpu" {
		t.Errorf("stopped before it began: %s at %s", got.State, got.Remote)
	}
}

// settingUp makes a row's worker one that sets the container up.
func settingUp(r *plan.Row) { r.CommandBegan, r.RunningAt = false, time.Time{} }

// TestBundleIsRunningWhenItsCommandHasBegun reads the records of a worker in the order in which it writes them.
func TestBundleIsRunningWhenItsCommandHasBegun(t *testing.T) {
	t.Parallel()
	starting := &spool.Status{Token: "token-1", Stage: spool.StageStarting}
	began := &spool.Status{Token: "token-1", Stage: spool.StageRunning, CommandStarted: epoch}
	neverBegan := exit(1)
	neverBegan.ExitCode, neverBegan.NotStarted = nil, true
	for _, standalone := range []bool{false, true} {
		for _, c := range []struct {
			name    string
			records spool.Records
			want    codalab.State
			running bool // the stage "running" has a beginning
		}{
			{"the worker has begun", spool.Records{}, codalab.StatePreparing, false},
			{"it sets the container up", spool.Records{Status: starting}, codalab.StatePreparing, false},
			{"the command has begun", spool.Records{Status: began}, codalab.StateRunning, true},
			{"the command has begun and ended", spool.Records{Exit: exit(0)}, codalab.StateRunning, true},
			{"the container could not be set up", spool.Records{Status: starting, Exit: neverBegan}, codalab.StateRunning, false}, // its output is collected
			{"another worker's command has begun", spool.Records{Status: &spool.Status{Token: "token-2", CommandStarted: epoch}}, codalab.StatePreparing, false},
		} {
			b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Standalone = standalone }).at(early)
			b.decide(read(early, started(), nil))
			if run := b.row.Report("w"); run.State != codalab.StatePreparing || run.Profile[codalab.StageRunning].Start != nil {
				t.Errorf("%s, at first: %s, %+v", c.name, run.State, run.Profile)
			}
			c.records.Started = started()
			b.at(late).decide(plan.News{Records: &plan.Records{Attempt: 1, Read: epoch.Add(late), Records: c.records}})
			run := b.row.Report("w")
			if run.State != c.want {
				t.Errorf("%s: %s, want %s", c.name, run.State, c.want)
			}
			start := run.Profile[codalab.StageRunning].Start
			if c.running != (start != nil) || start != nil && *start != float64(epoch.Add(late).Unix()) {
				t.Errorf("%s: running since %v", c.name, start)
			}
		}
	}
}

// An earlier version noted the begin of the attempt in the row, and no begin of the command.
func TestRunOfAnEarlierVersionKeepsItsBegin(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Running), func(r *plan.Row) { r.CommandBegan = false }).at(late)
	status := &spool.Status{Token: "token-1", Stage: spool.StageRunning, CommandStarted: epoch}
	b.decide(plan.News{Records: &plan.Records{Attempt: 1, Read: epoch.Add(late), Records: spool.Records{Started: started(), Status: status}}})
	if b.row.State() != codalab.StateRunning || !b.row.RunningAt.Equal(epoch) {
		t.Errorf("%s since %s", b.row.State(), b.row.RunningAt)
	}
}

func TestReportHasAllFiveStages(t *testing.T) {
	t.Parallel()
	for _, p := range plan.Phases() {
		profile := rowIn(p).Report("w").Profile
		for _, stage := range codalab.Stages() {
			if _, ok := profile[stage]; !ok || len(profile) != 5 {
				t.Errorf("%s: profile %v lacks %s, and a server drops it in silence", p, profile, stage)
			}
		}
	}
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	r := rowIn(plan.Finalizing)
	r.RunningAt = at(10)
	r.Times = plan.Times{Preparing: at(0), CleaningUp: at(30), Uploading: at(30), Finalizing: at(35)}
	number := func(f float64) *float64 { return &f }
	times := func(start, end int) codalab.StageTimes {
		return codalab.StageTimes{
			Start: number(float64(at(start).Unix())), End: number(float64(at(end).Unix())), Elapsed: number(float64(end - start)),
		}
	}
	want := map[string]codalab.StageTimes{
		codalab.StagePreparing: times(0, 10), codalab.StageRunning: times(10, 30), codalab.StageCleaningUp: times(30, 30),
		codalab.StageUploading: times(30, 35), codalab.StageFinalizing: {Start: number(float64(at(35).Unix()))},
	}
	if diff := cmp.Diff(want, r.Report("w").Profile); diff != "" {
		t.Errorf("profile (-want +got):\n%s", diff)
	}
	r.RunningAt, r.Times = time.Time{}, plan.Times{Preparing: at(0), Finalizing: at(4)} // it never ran
	want = map[string]codalab.StageTimes{
		codalab.StagePreparing: times(0, 4), codalab.StageRunning: {}, codalab.StageCleaningUp: {}, codalab.StageUploading: {},
		codalab.StageFinalizing: {Start: number(float64(at(4).Unix()))},
	}
	if diff := cmp.Diff(want, r.Report("w").Profile); diff != "" {
		t.Errorf("profile of a bundle that never ran (-want +got):\n%s", diff)
	}
}

func TestReportTellsUsageAndVerdict(t *testing.T) {
	t.Parallel()
	r := rowIn(plan.Running)
	r.Status = &spool.Status{
		CommandStarted: epoch, At: epoch.Add(10 * time.Second),
		Usage: spool.Usage{UserSeconds: 9, SystemSeconds: 1, MemoryBytes: 1 << 30, DiskBytes: 5},
	}
	run := r.Report("ann-cpu")
	if run.CPUUsage != 0.5 || run.MemoryUsage != 0.5 || run.ContainerTimeTotal != 10 || run.DiskUtilization != 5 || run.Remote != "n1" {
		t.Errorf("usage of a running bundle: %+v", run)
	}
	if diff := cmp.Diff(&codalab.UsageNow{MemoryBytes: 1 << 30}, run.Usage); diff != "" {
		t.Errorf("use at the moment, without GPUs (-want +got):\n%s", diff)
	}
	r.Status.Usage.GPU = spool.GPUUsage{Busy: .25, BusyMean: .75, MemoryBytes: 3, MemoryPeak: 4, Samples: 2}
	if diff := cmp.Diff(&codalab.GPUsNow{Busy: .25, MemoryBytes: 3}, r.Report("ann-cpu").Usage.GPUs); diff != "" {
		t.Errorf("use of GPUs at the moment (-want +got):\n%s", diff)
	}
	r = rowIn(plan.Finalizing)
	r.Exit.CommandStarted, r.Exit.CommandEnded = epoch, epoch.Add(3*time.Second)
	r.Exit.Usage = spool.Usage{UserSeconds: 2, SystemSeconds: 1, DiskBytes: 7}
	code := 3
	r.Verdict = &plan.Verdict{Cause: spool.CauseUser, ExitCode: &code, Failure: "It failed."}
	run = r.Report("ann-cpu")
	if run.ContainerTimeTotal != 3 || run.ContainerTimeUser != 2 || run.DiskUtilization != 7 ||
		*run.ExitCode != 3 || *run.FailureMessage != "It failed." || *run.PinnedReference != "a/b@sha256:1" || run.BundleStart != float64(epoch.Unix()) {
		t.Errorf("report of an ended bundle: %+v", run)
	}
}

func TestEndedBundleStillTellsWhatItUsed(t *testing.T) {
	t.Parallel()
	used := spool.Usage{UserSeconds: 5, SystemSeconds: 1, MemoryBytes: 4096, MemoryPeak: 1 << 30, DiskBytes: 7}
	for _, c := range []struct {
		name        string
		change      func(*plan.Row)
		cpu, memory float64
		most        int64
	}{
		{"processors and memory", func(*plan.Row) {}, 0.75, 0.5, 1 << 30},
		{"up to its limit", func(r *plan.Row) { r.Exit.Usage.MemoryPeak = 2<<30 + 1<<20 }, 0.75, 1, 2<<30 + 1<<20},
		{"without a limit", func(r *plan.Row) { r.Resources.Memory = 0 }, 0.75, 0, 1 << 30},
		{"killed before its command began", func(r *plan.Row) {
			r.Exit.CommandStarted, r.Exit.CommandEnded, r.Exit.Usage = time.Time{}, time.Time{}, spool.Usage{}
		}, 0, 0, 0},
		{"of whose end the worker knows nothing", func(r *plan.Row) { r.Exit.CommandEnded = time.Time{} }, 0, 0.5, 1 << 30},
		{
			"whose worker died", func(r *plan.Row) {
				r.Exit, r.Status = nil, &spool.Status{CommandStarted: epoch, At: epoch.Add(4 * time.Second), Usage: used}
			}, 0.75, 4096. / (2 << 30), 1 << 30,
		},
	} {
		for _, phase := range []plan.Phase{plan.Collecting, plan.Finalizing} {
			r := rowIn(phase)
			r.Exit.CommandStarted, r.Exit.CommandEnded, r.Exit.Usage = epoch, epoch.Add(4*time.Second), used
			r.Status = &spool.Status{CommandStarted: epoch, At: epoch.Add(time.Second), Usage: spool.Usage{UserSeconds: .1}}
			c.change(&r)
			run := r.Report("ann-cpu")
			if run.CPUUsage != c.cpu || run.MemoryUsage != c.memory || run.MemoryMax != c.most || run.ContainerTimeTotal < 0 {
				t.Errorf("%s, %s: %+v", c.name, phase, run)
			}
		}
	}
}
