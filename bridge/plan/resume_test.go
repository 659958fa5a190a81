package plan_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// asksFor returns the row of a running bundle that may be resumed n times.
func asksFor(n int) plan.Row {
	r := rowIn(plan.Running)
	r.Run.Metadata["tags"] = []string{codalab.ResumeTag(n)}
	r.Spent.StagedAt = epoch
	return r
}

// interrupt ends the bench's attempt after ten minutes of its command, by a preemption.
func (b *bench) interrupt() *bench {
	b.t.Helper()
	code := 143
	began := b.now
	b.now = b.now.Add(10 * time.Minute)
	ended := job(sbatch.StatePreempted)
	ended.ID, ended.Name, ended.Start = b.row.Job.ID, string(b.row.SubmissionName), began
	b.decide(plan.News{Observation: &plan.Observation{SubmissionName: b.row.SubmissionName, Job: b.row.Job.ID, Asked: b.now, Jobs: []sbatch.Job{ended}}})
	return b.decide(plan.News{Records: &plan.Records{Attempt: b.row.Attempt.Number, Read: b.now, Records: spool.Records{Started: b.row.Begun, Exit: &spool.Exit{
		Token: b.row.Begun.Token, Cause: spool.CausePlatform, ExitCode: &code, Terminated: true, CommandStarted: began, CommandEnded: b.now, At: b.now,
		Usage: spool.Usage{UserSeconds: 60, SystemSeconds: 6},
	}}}})
}

// begins submits the next attempt of the bench's row, which begins as a job of its own.
func (b *bench) begins(generation int64) {
	b.t.Helper()
	b.now = b.row.DueAt
	b.decide(plan.News{}).is(plan.Staging, plan.Carry)
	if b.row.WaitsToSubmit(b.now) {
		b.t.Fatal("it may be submitted before it has its files")
	}
	b.decide(plan.News{Carried: &plan.Outcome{}}).is(plan.Staging)
	b.row = b.policy.NewAttempt(b.now, b.row, generation)
	b.decide(plan.News{Prepared: &plan.Outcome{}}).is(plan.Submitting, plan.Submit)
	n := b.row.Attempt.Number
	b.decide(plan.News{Submitted: &plan.SbatchAnswer{Attempt: n, Job: sbatch.JobID(100 + n)}}).is(plan.Queued)
	b.decide(plan.News{Records: &plan.Records{Attempt: n, Read: b.now, Records: spool.Records{
		Started: &spool.Started{Token: fmt.Sprint("token ", n), Node: fmt.Sprint("n", n), Job: fmt.Sprint(100 + n), At: b.now},
		Status:  &spool.Status{Token: fmt.Sprint("token ", n), Stage: spool.StageRunning, At: b.now, CommandStarted: b.now},
	}}}).is(plan.Running)
}

// Times and cost are those of all attempts, and never go back: a server charges what they grow by.
func TestFiftyInterruptionsAreOneBundle(t *testing.T) {
	t.Parallel()
	const n = 50
	b := given(t, asksFor(n))
	total := 0.
	for i := range n {
		b.interrupt().is(plan.Staging)
		if got := b.row.Resumption; got.Count != i+1 || got.From != spool.NameAttempt(i+1, "b1b2b3") || got.Copied != 0 || b.row.FilesIn() != got.From {
			t.Fatalf("after %d interruptions: %+v", i+1, got)
		}
		b.begins(int64(i + 2))
		report := b.row.Report("w")
		if report.ContainerTimeTotal < total || report.ContainerTimeTotal != float64(i+1)*600 || report.ContainerTimeUser != float64(i+1)*60 {
			t.Fatalf("time %v after %v", report.ContainerTimeTotal, total)
		}
		total = report.ContainerTimeTotal
		if spec := b.policy.Spec(b.row); !spec.Resumed || spec.Attempt != i+2 || !strings.HasSuffix(spec.RunDir, "/"+string(b.row.OnDisk)) {
			t.Fatalf("specification %+v", spec)
		}
	}
	b.interrupt().is(plan.Collecting, plan.Collect)
	want := "The run was resumed 50 times before, as often as it asks for (--resume 50). Its last 10 attempts before ran on n41 (Slurm job 141), n42 (Slurm job 142), "
	if got := b.row.Verdict.Failure; !strings.HasPrefix(got, "Slurm preempted job 151 ") || !strings.Contains(got, want) {
		t.Errorf("verdict %q", got)
	}
	if got := b.row.Report("w"); len(got.Attempts) != n+1 || got.Cost.Attempts != n+1 || got.Cost.AllocatedSeconds != (n+1)*600 {
		t.Errorf("%d attempts, cost %+v", len(got.Attempts), got.Cost)
	} else if first := got.Attempts[0]; !regexp.MustCompile(`^n1 \(Slurm job 7 from \S+:\d\dZ to \S+:\d\dZ\)$`).MatchString(first) {
		t.Errorf("the first attempt is told as %q", first)
	}
}

// The queue's retry_begun begins a bundle anew, with no files.
func TestRetryBegunIsNotForBundlesThatAreResumed(t *testing.T) {
	t.Parallel()
	b := given(t, asksFor(1))
	q := b.policy.Queues["cpu"]
	q.RetryBegun = plan.RetryOnPlatform
	b.policy.Queues["cpu"] = q
	b.interrupt().is(plan.Staging)
	b.begins(2)
	b.interrupt().is(plan.Collecting, plan.Collect)
}

// A long run must not end for failures before its begin that are of days ago.
func TestFailedStartsAreCountedAnewAfterAResumption(t *testing.T) {
	t.Parallel()
	b := given(t, asksFor(1), func(r *plan.Row) { r.FailedAttempts, r.FailedStarts, r.SickNodes = 2, 2, "n8,n9" })
	b.interrupt()
	if b.row.FailedAttempts != 0 || b.row.FailedStarts != 0 || b.row.SickNodes != "" {
		t.Errorf("%+v", b.row)
	}
}

// A ledger that was restored from an old copy does not know the inputs of a job that it takes up.
func TestResumedBundleWithoutInputsGetsThemAndItsFiles(t *testing.T) {
	t.Parallel()
	b := given(t, asksFor(1), func(r *plan.Row) { r.Staged = nil }).interrupt().is(plan.Staging)
	b.now = b.row.DueAt
	b.decide(plan.News{}).is(plan.Staging, plan.Stage)
	b.decide(plan.News{Staged: &plan.StageEnd{Inputs: spool.Inputs{SIF: "/x.sif"}}}).is(plan.Staging, plan.Carry)
	b.decide(plan.News{Carried: &plan.Outcome{}}).is(plan.Staging)
	if !b.row.WaitsToSubmit(b.now) {
		t.Errorf("%+v", b.row)
	}
}

func TestSignalComesAheadOfTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		queue         plan.Queue
		asked         time.Duration
		signal, grace time.Duration
		early         bool // at a preemption, too
	}{
		{plan.Queue{}, time.Hour, 0, 0, false},
		{plan.Queue{KillGrace: time.Minute}, time.Hour, 0, time.Minute, true},
		{plan.Queue{Signal: 10 * time.Minute}, time.Hour, 10 * time.Minute, 10 * time.Minute, true},
		{plan.Queue{Signal: 10 * time.Minute, KillGrace: 15 * time.Minute}, time.Hour, 10 * time.Minute, 15 * time.Minute, true},
		{plan.Queue{Signal: 10 * time.Minute}, 4 * time.Minute, 2 * time.Minute, 2 * time.Minute, true},
		{plan.Queue{Signal: 10 * time.Minute}, 0, 0, 0, true}, // no limit
		{plan.Queue{Signal: 10 * time.Minute, MaxTime: time.Hour}, 0, 10 * time.Minute, 10 * time.Minute, true},
	} {
		p, r := policy(), rowIn(plan.Submitting)
		c.queue.Name = "cpu"
		p.Queues = map[string]plan.Queue{"cpu": c.queue}
		r.Resources.Time = int64(c.asked.Seconds())
		spec := p.Spec(r)
		early := strings.Contains(strings.Join(p.Request(r).Args(), " "), "--signal=B:TERM@1")
		if spec.SignalSeconds != c.signal.Seconds() || spec.KillGraceSeconds != c.grace.Seconds() || early != c.early {
			t.Errorf("%+v, %s asked for: signal %v s, grace %v s, early %t", c.queue, c.asked, spec.SignalSeconds, spec.KillGraceSeconds, early)
		}
	}
}

// The files come from the last attempt, and the queue may work on its nodes since.
func TestResumedAttemptWorksWhereItsFilesAre(t *testing.T) {
	t.Parallel()
	p, r := policy(), rowIn(plan.Submitting)
	q := p.Queues["cpu"]
	q.WorkingDirDisk = spool.WorkingDirLocal
	p.Queues["cpu"] = q
	if spec := p.Spec(r); spec.Resumed || spec.WorkingDirDisk != spool.WorkingDirLocal {
		t.Errorf("first attempt: %+v", spec)
	}
	r.Resumption = plan.Resumption{Count: 1, From: "1-b1b2b3", Copied: 2}
	if spec := p.Spec(r); !spec.Resumed || spec.WorkingDirDisk != spool.WorkingDirShared {
		t.Errorf("second attempt: %+v", spec)
	}
}

// It is one sentence for the researcher at any time.
func TestResumedBundleSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	b := given(t, asksFor(3)).interrupt()
	want := "Interrupted, and resumed with a copy of its files (1 of 3): Slurm preempted job 7 while it ran on n1: a job with a higher priority needed its resources."
	if got := b.row.RunStatus(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.now = b.row.DueAt
	b.decide(plan.News{}).is(plan.Staging, plan.Carry)
	b.decide(plan.News{Progress: "Copying the files of the interrupted attempt: 7 files so far."})
	if got := b.row.RunStatus(); !strings.HasPrefix(got, "Copying the files") {
		t.Errorf("%q", got)
	}
	low := "the site's disk has 1g free, below its low water of 50g"
	b.decide(plan.News{DiskLow: &low, Carried: &plan.Outcome{Failure: "no space left on device", Full: true}})
	if got := b.row.RunStatus(); got != "Waiting: "+low+"." {
		t.Errorf("%q", got)
	}
	b.at(time.Hour).decide(plan.News{}).is(plan.Staging)
	enough := ""
	b.at(2*time.Hour).decide(plan.News{DiskLow: &enough}).is(plan.Staging, plan.Carry)
}

// A row keeps little of a bundle's metadata, which would take more memory than the rest of it.
func TestRowKeepsTheRequestAndNoOtherTags(t *testing.T) {
	t.Parallel()
	m := offered()
	m.Bundle.Metadata = codalab.Metadata{"tags": []any{"vision", "resume=3"}, "description": "long"} // as a server's JSON is read
	r := throughJSON(t, plan.NewRow(epoch, "cpu", m))
	if n, err := r.Run.Metadata.Resumes(); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if tags := r.Run.Metadata.Strings("tags"); len(tags) != 1 || r.Run.Metadata.Has("description") {
		t.Errorf("%v", r.Run.Metadata)
	}
}
