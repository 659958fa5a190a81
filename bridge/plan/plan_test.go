package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const (
	uuid       = "0x0123456789abcdef0123456789abcdef"
	submission = plan.SubmissionName("cl-ann-0123456789ab.1-1-b1b2b3")
)

// firstQuestion is the pause from a report, or an acknowledgement, to the first question to the server.
const firstQuestion = 15 * time.Second

// epoch is the time at which the bundles of these tests were claimed.
var epoch = time.Unix(1_800_000_000, 0).UTC()

func policy() plan.Policy {
	return plan.Policy{
		Bridge: "b1b2b3", Owner: "ann", Layout: "/shared", Worker: sbatch.Program{Path: "/shared/bin/0123456789ab/cl-worker"},
		Queues: map[string]plan.Queue{"cpu": {
			Name: "cpu", Tag: "cpu", Partition: "batch", DefaultTime: time.Hour, MaxTime: 10 * time.Hour,
			TimeGrace: 2 * time.Minute, MemoryOverhead: 64 << 20, RetryBegun: plan.RetryNever,
		}},
		SubmitGrace: 90 * time.Second, OrphanGrace: 5 * time.Minute, CancelOrphans: true, RecordAge: 300 * time.Second, Accounting: true, Settle: 10 * time.Second,
		StuckFor: 5 * time.Second, StagePatience: 5 * time.Minute, OutagePatience: 24 * time.Hour, CollectPatience: 72 * time.Hour, QuotaPatience: 7 * 24 * time.Hour, LongestAckPause: 10 * time.Minute, MaxAttempts: 3,
		KeepAfterAck: 24 * time.Hour,
	}
}

func started() *spool.Started {
	return &spool.Started{Token: "token-1", Node: "n1", Job: "7", At: epoch}
}

func job(state sbatch.State) sbatch.Job {
	j := sbatch.Job{ID: 7, Name: string(submission), State: state, Reason: "None", Nodes: "n1", Submitted: epoch}
	if state == sbatch.StatePending {
		j.Nodes = ""
	}
	return j
}

// ghostJob returns the record that a refused submission leaves.
func ghostJob() sbatch.Job {
	return sbatch.Job{ID: 6, Name: string(submission), State: sbatch.StateFailed, Reason: "BadConstraints"}
}

// rowIn returns the row of a bundle that came to a phase in the ordinary way.
func rowIn(phase plan.Phase) plan.Row {
	r := plan.NewRow(epoch, "cpu", codalab.Message{
		Type:      codalab.MessageRun,
		Bundle:    &codalab.RunBundle{UUID: uuid, OwnerID: "1", Command: "true", Metadata: codalab.Metadata{}},
		Resources: &codalab.Resources{CPUs: 2, Memory: 2 << 30, ImageReference: "python:3"},
	})
	r.Phase, r.PhaseSince, r.Reason, r.Version = phase, epoch, "the test begins here", 1
	at := slices.Index(plan.Phases(), phase)
	since := func(p plan.Phase) bool { return at >= slices.Index(plan.Phases(), p) }
	if since(plan.Staging) {
		r.Times.Preparing = epoch
	}
	if since(plan.Submitting) {
		r.Staged = &spool.Inputs{SIF: "/shared/cache/x.sif", PinnedReference: "a/b@sha256:1"}
		r.Attempt.Number, r.OnDisk, r.Generation, r.SubmissionName, r.Prepared, r.SbatchCount, r.SubmittedAt = 1, "1-b1b2b3", 1, submission, true, 1, epoch
	}
	if since(plan.Queued) {
		r.Job = job(sbatch.StatePending)
	}
	if since(plan.Running) {
		r.Begun, r.Job, r.CommandBegan, r.RunningAt = started(), job(sbatch.StateRunning), true, epoch
	}
	switch phase {
	case plan.Stopping:
		r.StopVerdict = &plan.Verdict{Cause: spool.CauseUser, Failure: codalab.KillRequested}
	case plan.Collecting, plan.Finalizing, plan.Done:
		r.Exit = exit(0)
		r.Verdict = &plan.Verdict{Cause: spool.CauseSucceeded, ExitCode: r.Exit.ExitCode}
		r.Times.CleaningUp, r.Times.Uploading = epoch, epoch
		if since(plan.Finalizing) {
			r.Times.Finalizing = epoch
		}
		switch phase {
		case plan.Finalizing:
			r.ReportCount, r.DueAt = 1, epoch.Add(firstQuestion)
		case plan.Done:
			r.ReportCount, r.DueAt, r.KeepUntil = 1, epoch.Add(firstQuestion), epoch.Add(policy().KeepAfterAck)
		}
	case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued, plan.Running:
	}
	return r
}

func exit(code int) *spool.Exit {
	e := &spool.Exit{Token: "token-1", Cause: spool.CauseSucceeded, ExitCode: &code}
	if code != 0 {
		e.Cause = spool.CauseUser
	}
	return e
}

// bench decides one row, step by step.
type bench struct {
	t       *testing.T
	policy  plan.Policy
	now     time.Time
	row     plan.Row
	effects []plan.Effect
}

func given(t *testing.T, r plan.Row, change ...func(*plan.Row)) *bench {
	t.Helper()
	for _, c := range change {
		c(&r)
	}
	return &bench{t: t, policy: policy(), now: epoch, row: r}
}

// at sets the clock to a time after epoch.
func (b *bench) at(d time.Duration) *bench {
	b.now = epoch.Add(d)
	return b
}

// decide decides the row with news.
func (b *bench) decide(n plan.News) *bench {
	b.t.Helper()
	if s := n.Observation; s != nil && s.Job == 0 { // the bridge looks for the row's job
		own := *s
		own.Job, n.Observation = b.row.Job.ID, &own
	}
	b.row, b.effects = b.policy.Next(b.now, b.row, n)
	return b
}

// is fails the test unless the row is in this phase and wants these effects.
func (b *bench) is(phase plan.Phase, effects ...plan.Kind) *bench {
	b.t.Helper()
	if b.row.Phase != phase {
		b.t.Fatalf("phase %s (%s), want %s", b.row.Phase, b.row.Reason, phase)
	}
	if diff := cmp.Diff(effects, b.kinds()); diff != "" {
		b.t.Fatalf("in %s (%s), effects (-want +got):\n%s", phase, b.row.Reason, diff)
	}
	return b
}

func (b *bench) kinds() []plan.Kind { return plan.KindsOf(b.effects) }

// verdict fails the test unless the row's verdict has this cause and this sentence.
func (b *bench) verdict(cause spool.Cause, failure string) {
	b.t.Helper()
	v := b.row.Verdict
	if v == nil {
		b.t.Fatalf("no verdict in %s (%s)", b.row.Phase, b.row.Reason)
	}
	if v.Cause != cause || !strings.Contains(v.Failure, failure) || failure == "" && v.Failure != "" {
		b.t.Fatalf("verdict %s %q, want %s %q", v.Cause, v.Failure, cause, failure)
	}
}

// The pieces of news.

func seen(at time.Duration, jobs ...sbatch.Job) plan.News {
	return plan.News{Observation: observation(at, jobs...)}
}

func observation(at time.Duration, jobs ...sbatch.Job) *plan.Observation {
	return &plan.Observation{SubmissionName: submission, Asked: epoch.Add(at), Jobs: jobs}
}

func accounted(at time.Duration, jobs ...sbatch.Job) plan.News {
	return plan.News{Accounting: observation(at, jobs...)}
}

func read(at time.Duration, begun *spool.Started, end *spool.Exit) plan.News {
	return plan.News{Records: &plan.Records{Attempt: 1, Read: epoch.Add(at), Records: spool.Records{Started: begun, Exit: end}}}
}

func answered(s plan.SbatchAnswer) plan.News {
	s.Attempt = 1
	return plan.News{Submitted: &s}
}

func fencing(standing spool.Started) plan.News {
	return plan.News{Fenced: &plan.Fencing{Attempt: 1, Started: standing}}
}

func told(messages ...codalab.Message) plan.News { return plan.News{Messages: messages} }

var (
	kill = codalab.Message{Type: codalab.MessageKill, UUID: uuid}
	ack  = codalab.Message{Type: codalab.MessageMarkFinalized, UUID: uuid}
)

func offered() codalab.Message {
	return codalab.Message{
		Type:      codalab.MessageRun,
		Bundle:    &codalab.RunBundle{UUID: uuid, Command: "true"},
		Resources: &codalab.Resources{CPUs: 1},
	}
}
