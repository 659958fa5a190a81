package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// rewriting is a site with a plugin that changes submissions.
type rewriting struct {
	doctor.Slurm
	change func(r *sbatch.Request)
}

func (s rewriting) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	s.change(&r)
	return s.Slurm.Submit(ctx, r)
}

// mute loses Slurm's answer to a submission.
type mute struct{ doctor.Slurm }

func (s mute) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	if _, err := s.Slurm.Submit(ctx, r); err != nil {
		return 0, err
	}
	return 0, &sbatch.Error{Op: "submit", Message: "Socket timed out on send/recv operation"}
}

// stale does not show a new job by its id.
type stale struct{ doctor.Slurm }

func (stale) Describe(context.Context, sbatch.JobID) (sbatch.Details, error) {
	return sbatch.Details{}, errors.New("Invalid job id specified")
}

func TestDoctorSaysWhatTheSiteMakesOfASubmission(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Name: "cpu", Partition: "cpu,short", Account: "lab", DefaultTime: 4 * time.Minute, MaxTime: 10 * time.Minute, TimeGrace: 2 * time.Minute}
	changed := func(change func(r *sbatch.Request)) func(doctor.Slurm) doctor.Slurm {
		return func(k doctor.Slurm) doctor.Slurm { return rewriting{k, change} }
	}
	renamed := func(r *sbatch.Request) { r.Name = "lab_" + r.Name }
	for want, site := range map[string]func(doctor.Slurm) doctor.Slurm{
		"": changed(func(*sbatch.Request) {}),
		`warning queue.cpu.submission: the site renames jobs: "NAME" became "lab_NAME"; jobs are found by id; a job whose submission got no answer cannot be found, and its bundle waits: ask the administrator to let names that begin with cl- be`:                                     changed(renamed),
		`warning queue.cpu.submission: the site rewrites comments: "codalab doctor queue=cpu" became "stdout=/dev/null"; jobs are found by id; orphan jobs, and a ledger from an old copy, are not noticed: ask the administrator to let comments of jobs whose names begin with cl- be`: changed(func(r *sbatch.Request) { r.Comment = "stdout=/dev/null" }),
		"warning queue.cpu.account: the site changes options of jobs: lab became nlp; write what the site allows, or ask the administrator why":                                                                                                                                          changed(func(r *sbatch.Request) { r.Account = "nlp" }),
		"warning queue.cpu.partition: the site changes options of jobs: cpu,short became gpu; write what the site allows, or ask the administrator why":                                                                                                                                  changed(func(r *sbatch.Request) { r.Partition = "gpu" }),
		"warning queue.cpu.max_time: the site changes options of jobs: 6m became 5m; write what the site allows, or ask the administrator why":                                                                                                                                           changed(func(r *sbatch.Request) { r.Time = 5 * time.Minute }),
		"failed queue.cpu.qos: Slurm refuses a job: Invalid qos specification; try it by hand: sbatch --test-only":                                                                                                                                                                       changed(func(r *sbatch.Request) { r.QOS = "nosuch" }),
		"failed queue.cpu: Slurm does not say whether it takes a job: submit: Socket timed out on send/recv operation; try again later":                                                                                                                                                  func(k doctor.Slurm) doctor.Slurm { return mute{k} },
		"failed queue.cpu.submission: held job 1 was submitted, and squeue does not show it: Invalid job id specified; does squeue show your jobs at once? A wrapper that remembers its answers has to go":                                                                               func(k doctor.Slurm) doctor.Slurm { return stale{rewriting{k, renamed}} },
	} {
		k := slurmtest.NewCluster(t, slurmtest.NewSite())
		k.Do(func(_ time.Time, c *slurmtest.Controller) {
			c.AddPartition(slurmtest.Partition{Name: "cpu,short", Nodes: []string{"n1"}}) // slurmtest knows no lists
		})
		h := doctor.Hold(t.Context(), site(k), q, 0, time.Now)
		if got := strings.ReplaceAll(said(doctor.Rewritten(q, h)...), h.Asked.Name, "NAME"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		s, err := k.Observe(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range s.Jobs {
			if j.State != sbatch.StateCancelled {
				t.Errorf("%s: it left %+v", want, j)
			}
		}
	}
}

func TestKeptSubmissionIsSaidWithItsTimeAndAccount(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	q := plan.Queue{Name: "cpu", DefaultTime: time.Hour}
	h := doctor.Hold(t.Context(), k, q, 0, time.Now)
	want := "held job 1 has its options as requested, name and comment too: submitted at " + h.Shown.Submitted.UTC().Format("15:04:05 UTC") + " to cpu, account lab, QOS normal, 1h; it was cancelled"
	if checks := doctor.Rewritten(q, h); len(checks) != 1 || checks[0].Verdict != doctor.OK || checks[0].Found != want {
		t.Errorf("%+v, want %q", checks, want)
	}
}

func TestRealSlurmKeepsAHeldJobAsItWasAskedFor(t *testing.T) {
	t.Parallel()
	cluster := testenv.Slurm(t)
	if !testenv.AsResearcher(t) {
		return
	}
	slurm := &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}
	q := plan.Queue{Name: "gpu", Partition: "short,gpu", Account: "nlp", QOS: "normal", GPUType: "a100", MaxTime: 5 * time.Minute}
	before := time.Now().Truncate(time.Second)
	h := doctor.Hold(t.Context(), slurm, q, 1, time.Now)
	if got := said(doctor.Rewritten(q, h)...); got != "" || h.Shown.Submitted.Before(before) || h.Shown.Submitted.After(time.Now()) {
		t.Errorf("%s; %+v", got, h)
	}
	s, err := slurm.Observe(t.Context(), time.Now())
	if left := s.ByName()[h.Asked.Name]; err != nil || len(left) != 1 || left[0].State != sbatch.StateCancelled {
		t.Errorf("%v, %v; want the job cancelled", left, err)
	}
}

// doctor cancels the held job by the name that Slurm shows. If it cannot, it says which job may be left.
func TestHeldJobThatMayBeLeftIsNamed(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, slurmtest.NewSite())
	q := plan.Queue{Name: "cpu"}
	h := doctor.Hold(t.Context(), down{k}, q, 0, time.Now)
	want := "warning queue.cpu.submission: a held job named " + h.Asked.Name + " may be left in Slurm: no answer; cancel it: scancel --name=" + h.Asked.Name
	if got := said(doctor.Rewritten(q, h)...); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// down cancels nothing.
type down struct{ doctor.Slurm }

func (down) Cancel(context.Context, string, ...sbatch.JobID) error { return errors.New("no answer") }
