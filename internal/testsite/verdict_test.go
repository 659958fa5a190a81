package testsite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// I7: a job that an administrator cancels gives the bundle one verdict.
func TestI7JobCancelledByRootIsOneVerdict(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	bundle := run(t, s, "cpu", "echo once; sleep 3000")
	job := begun(t, s, bundle)
	admin(t, "scancel", job)
	if state := ended(t, s, bundle); state != "failed" {
		t.Errorf("state %s, want failed", state)
	}
	want := "Slurm job " + job + " was cancelled outside CodaLab by an administrator (root) while it ran on n"
	if got := field(t, s, bundle, "failure_message"); !strings.HasPrefix(got, want) {
		t.Errorf("failure_message %q, want %q", got, want)
	}
	oneVerdict(t, s, bundle)
}

// requeue lets root put a job that runs back into the queue, and start it again at once. Slurm shows it PENDING before the old
// start has ended, and then sets the earliest time of the next start, two minutes later.
func requeue(t *testing.T, s *testsite.Site, job string) {
	t.Helper()
	admin(t, "scontrol", "update", "jobid="+job, "requeue=1") // it was submitted with --no-requeue
	admin(t, "scontrol", "requeue", job)
	testenv.Await(t, "the job waits again", func() bool {
		f := facts(t, s, job)
		return f["Restarts"] == "1" || !slices.Contains([]string{"RUNNING", "COMPLETING", "PENDING"}, f["JobState"])
	})
	_ = tryAdmin(t, "scontrol", "update", "jobid="+job, "starttime=now") // unless the bridge has ended it already
}

// I7, I4: a job that root requeues does not run the command again.
func TestI7JobRequeuedByRootIsOneVerdict(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	bundle := run(t, s, "cpu", "echo once; sleep 3000")
	job := begun(t, s, bundle)
	untilPrinted(t, s, bundle, "once")
	requeue(t, s, job)
	if state := ended(t, s, bundle); state != "failed" {
		t.Errorf("state %s, want failed", state)
	}
	// squeue may not have shown the job to the bridge while it waited.
	got := field(t, s, bundle, "failure_message")
	if !strings.HasPrefix(got, "Slurm job "+job+" was put back into the queue while it ran on n") && !strings.Contains(got, "put it back into the queue") {
		t.Errorf("failure_message %q does not say that the job was put back", got)
	}
	if n := len(begins(t, s, bundle)); n != 1 {
		t.Errorf("the bundle began %d times", n)
	}
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "once" {
		t.Errorf("stdout %q", got)
	}
	oneVerdict(t, s, bundle)
}

// oneVerdict restarts the bridge, and checks that a bundle has no second verdict.
func oneVerdict(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	message := field(t, s, bundle, "failure_message")
	testenv.Await(t, "the server has acknowledged "+bundle, func() bool { return explain(t, s, bundle).Phase == "done" })
	restarted(t, s)
	e := explain(t, s, bundle)
	verdicts := 0
	for _, h := range e.History {
		if h.Phase == "collecting" {
			verdicts++
		}
	}
	if got := field(t, s, bundle, "failure_message"); verdicts != 1 || e.Phase != "done" || e.Attempt != 1 || got != message {
		t.Errorf("%d verdicts, attempt %d, phase %s, failure_message %q after %q", verdicts, e.Attempt, e.Phase, got, message)
	}
}

// A replay of the trace of a real run makes the same decisions, and the history of a
// bundle shows its phases.
func TestTraceOfARealRunIsReplayed(t *testing.T) {
	t.Parallel()
	need(t)
	trace := filepath.Join(testenv.SharedDir(t), "trace")
	s := own(t, testsite.Options{Flags: []string{"--trace", trace}})
	good, bad := run(t, s, "cpu", "echo once"), run(t, s, "short", "exit 3")
	killed := run(t, s, "cpu", "sleep 3000")
	begun(t, s, killed)
	cl(t, s, "kill", killed)
	ranOnce(t, s, good)
	for _, b := range []string{bad, killed} {
		ended(t, s, b)
	}
	testenv.Await(t, "all is done", func() bool { return explain(t, s, killed).Phase == "done" && explain(t, s, good).Phase == "done" })
	if err := s.StopBridge(); err != nil {
		t.Fatal(err)
	}
	out := must(t, s, program, "replay", trace)
	if last := out[strings.LastIndexByte(out, '\n')+1:]; !strings.Contains(last, " rows=3 different=0") {
		t.Errorf("replay prints %q", out)
	}
	var phases []string
	for _, h := range explain(t, s, good).History {
		if h.Phase != "running" { // a short run may be over when it is first seen
			phases = append(phases, h.Phase)
		}
	}
	want := "[claiming staging submitting queued collecting finalizing done]"
	if got := fmt.Sprint(slices.Compact(phases)); got != want {
		t.Errorf("phases %s, want %s", got, want)
	}
}
