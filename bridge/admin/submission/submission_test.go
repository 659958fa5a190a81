package submission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// answering is a Slurm with one answer. TestDrainedBridgeFinishesWhatItHas asks the real one.
type answering struct {
	sbatch.Client

	asked    int
	expected *sbatch.Expected
	err      error
}

func (a *answering) Expect(context.Context, sbatch.Request) (*sbatch.Expected, error) {
	a.asked++
	return a.expected, a.err
}

func policy() plan.Policy {
	return plan.Policy{
		Bridge: "9f02ab", Owner: "ann", Layout: "/shared", Worker: sbatch.Program{Path: "/shared/bin/x/cl-worker"},
		Queues: map[string]plan.Queue{"gpu": {Name: "gpu", Tag: "gpu", Partition: "gpu", Constraint: "a100&nvlink", MaxTime: time.Hour}},
	}
}

func row(seconds int64) plan.Row {
	return plan.NewRow(noon, "gpu", codalab.Message{
		Bundle:    &codalab.RunBundle{UUID: "0x1a2b3c4d5e6f708192a3b4c5d6e7f809", OwnerID: "7"},
		Resources: &codalab.Resources{CPUs: 2, GPUs: 1, Memory: 4 << 30, Time: seconds},
	})
}

func TestSubmissionIsTheOneThatTheBridgeWouldMake(t *testing.T) {
	t.Parallel()
	slurm := &answering{expected: &sbatch.Expected{Start: noon, Nodes: "n3", Partition: "gpu"}}
	s, err := Of(t.Context(), slurm, policy(), nil, row(1800), nil, 41, noon)
	if err != nil {
		t.Fatal(err)
	}
	bridges := policy().NewAttempt(noon, row(1800), 42)
	want := policy().Request(bridges)
	if got := strings.Join(s.Command, "\n"); got != strings.Join(slurm.CommandLine(want), "\n") || s.Script != want.Script {
		t.Errorf("it differs from the bridge's:\n%s\n%s", got, s.Script)
	}
	said := s.Text(nil)
	for _, part := range []string{
		"Bundle 0x1a2b3c4d5e6f708192a3b4c5d6e7f809 would go to queue gpu:\n\nsbatch \\\n  --parsable \\\n",
		" \\\n  --gres=gpu:1 \\\n", " \\\n  '--constraint=a100&nvlink' \\\n", "#!/bin/sh\n", "exec '/shared/bin/x/cl-worker' exec ",
		" on n3, by its present plan.\nNothing was submitted.\n",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("no %q in\n%s", part, said)
		}
	}
}

func TestSubmissionThatSlurmHasIsShownAndNotAskedAbout(t *testing.T) {
	t.Parallel()
	r := policy().NewAttempt(noon, row(1800), 42)
	r.Phase, r.Job = plan.Queued, sbatch.Job{ID: 4711}
	slurm := &answering{}
	s, err := Of(t.Context(), slurm, policy(), nil, r, nil, 50, noon)
	if err != nil || slurm.asked != 0 || s.Job != 4711 || !strings.Contains(strings.Join(s.Command, " "), "--job-name="+string(r.SubmissionName)+" ") {
		t.Errorf("%v, asked %d times: %+v", err, slurm.asked, s)
	}
	if said := s.Text(nil); !strings.Contains(said, " went to queue gpu:") || !strings.Contains(said, "It is job 4711.\nNothing was submitted.\n") {
		t.Errorf("it says\n%s", said)
	}
}

// A member's own request is none that anybody submits.
func TestSubmissionOfAPackIsThePacks(t *testing.T) {
	t.Parallel()
	p := policy()
	q := p.Queues["gpu"]
	q.PackRuns, q.PackSideBySide, q.PackTime = 100, 4, 50*time.Minute
	p.Queues["gpu"] = q
	first, second := row(600), row(600)
	s, err := Of(t.Context(), &answering{}, p, nil, first, nil, 41, noon)
	const shares = "With others of its owner that wait and ask for the same it goes in a pack: one job for up to 100 runs, 4 at a time, that asks for the resources of so many and for at most 50m."
	if said := s.Text(err); !strings.Contains(said, "--gres=gpu:1") || !strings.Contains(said, shares) {
		t.Errorf("before its submission it says\n%s", said)
	}
	second.Bundle += "0"
	rows := p.NewAttempts(noon, []*plan.Row{&first, &second}, 42)
	shared := plan.NewSubmission(noon, rows)
	shared.Members, shared.Width, shared.Time = []plan.Member{{Bundle: first.Bundle, Name: rows[0].OnDisk}, {Bundle: second.Bundle, Name: rows[1].OnDisk}}, 2, 24*time.Minute
	rows[1].Phase, rows[1].Job = plan.Queued, sbatch.Job{ID: 4711}
	s, err = Of(t.Context(), &answering{}, p, nil, rows[1], &shared, 42, noon)
	if said := s.Text(err); !strings.Contains(said, "--gres=gpu:2") || !strings.Contains(said, "--time=24") || !strings.Contains(said, "--side-by-side=2") || strings.Contains(said, "goes alone") {
		t.Errorf("after its submission it says\n%s", said)
	}
}

func TestRefusalsAndOutagesAreTold(t *testing.T) {
	t.Parallel()
	refusal := &sbatch.Error{Op: "try", Message: "Requested node configuration is not available", Refused: true, Err: errors.New("x")}
	away := &sbatch.Error{Op: "try", Message: "Unable to contact slurm controller", Refused: true, Retry: true, Err: errors.New("x")}
	full := &sbatch.Error{Op: "try", Message: "Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)", Refused: true, Retry: true, Err: errors.New("x")}
	for _, c := range []struct {
		name    string
		seconds int64
		slurm   answering
		want    string
		refused bool
		fails   bool
		asked   int
	}{
		{"the queue's limit", 7200, answering{}, "Queue gpu runs bundles for at most 1h0m, and 2h0m was asked for: ", true, false, 0},
		{"Slurm's refusal", 60, answering{err: refusal}, "Slurm refuses it: Requested node configuration is not available.\n", true, false, 1},
		{"Slurm is away", 60, answering{err: away}, "Slurm does not say when it would start it.\n", false, true, 1},
		{"a full limit", 60, answering{err: full}, "Slurm takes it when others have ended: Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit).\n", false, false, 1},
		{"no time", 60, answering{}, "Slurm takes it, and does not say when it would start.\n", false, false, 1},
	} {
		s, err := Of(t.Context(), &c.slurm, policy(), nil, row(c.seconds), nil, 0, noon)
		if said := s.Text(err); (err != nil) != c.fails || (s.Refusal != "") != c.refused || c.slurm.asked != c.asked || !strings.Contains(said, c.want) {
			t.Errorf("%s: %v, asked %d times, refusal %q, no %q in\n%s", c.name, err, c.slurm.asked, s.Refusal, c.want, said)
		}
	}
}

func TestLimitsOnARunAreToldAndDecideWhetherItCanStart(t *testing.T) {
	t.Parallel()
	gpu := sbatch.LimitHolder{Account: "lab"}
	jobs := sbatch.Limit{Holder: gpu, Kind: sbatch.GrpJobs, Most: 40, Used: 40, Known: true}
	cpus := sbatch.Limit{Holder: sbatch.LimitHolder{QOS: "normal"}, Kind: sbatch.MaxTRESPJ, TRES: "cpu", Most: 2}
	kind := plan.JobKind{Partition: "gpu"}
	slurm := &answering{}
	s, err := Of(t.Context(), slurm, policy(), plan.Limits{kind: {jobs, cpus}}, row(1800), nil, 41, noon)
	if said := s.Text(err); err != nil || s.Refusal != "" || !strings.HasSuffix(said, "Account lab may run 40 jobs at once, and 40 run.\nNothing was submitted.\n") {
		t.Errorf("%v, refusal %q:\n%s", err, s.Refusal, said)
	}
	cpus.Most = 1
	s, err = Of(t.Context(), slurm, policy(), plan.Limits{kind: {jobs, cpus}}, row(1800), nil, 41, noon)
	if want := "It could never start: QOS normal allows one job at most 1 CPU."; err != nil || s.Refusal != want || slurm.asked != 1 {
		t.Errorf("%v, asked %d times, refusal %q, want %q", err, slurm.asked, s.Refusal, want)
	}
}
