package doctor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestLimitsOfAQueueAreListedWithTheirUse(t *testing.T) {
	t.Parallel()
	q := plan.Queue{Name: "cpu", Account: "lab", MaxTime: 3 * 24 * time.Hour}
	lab := sbatch.LimitHolder{Account: "lab"}
	jobs := sbatch.Limit{Holder: lab, Kind: sbatch.GrpJobs, Most: 40, Used: 38, Known: true}
	submitted := sbatch.Limit{Holder: lab, Kind: sbatch.GrpSubmitJobs, Most: 50, Used: 50, Known: true}
	wall := sbatch.Limit{Holder: sbatch.LimitHolder{QOS: "normal"}, Kind: sbatch.MaxWallPJ, Most: 2 * 24 * 60}
	for name, c := range map[string]struct {
		limits []sbatch.Limit
		want   []string
	}{
		"none": {nil, nil},
		"some": {[]sbatch.Limit{jobs}, []string{"ok queue.cpu.limits: account lab: 38 of 40 jobs run; "}},
		"full": {[]sbatch.Limit{jobs, submitted}, []string{"warning queue.cpu.limits: account lab: 38 of 40 jobs run; account lab: 50 of 50 jobs wait or run; Slurm takes no more of these jobs until some end: the bridge waits for that"}},
		"time": {[]sbatch.Limit{wall}, []string{
			"ok queue.cpu.limits: QOS normal: at most 2d for a job; ",
			"failed queue.cpu.max_time: 3d is above the 2d that a QOS or an association allows a job: such a job would never start; write max_time = \"2d\"",
		}},
	} {
		var got []string
		of := plan.Policy{Queues: map[string]plan.Queue{"cpu": q}}.JobKinds("cpu")
		for _, check := range doctor.Limits(q, of, plan.Limits{{Account: "lab"}: c.limits}) {
			got = append(got, string(check.Verdict)+" "+check.Name+": "+check.Found+"; "+check.Do)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestLimitsThatAreNotKnownAreSaid(t *testing.T) {
	t.Parallel()
	known := sbatch.Settings{Accounting: true, Limits: true}
	for want, check := range map[string]doctor.Check{
		"ok QOS and associations limit no jobs: there is no accounting database": doctor.Learnt(sbatch.Settings{}, errors.New("x")),
		"ok QOS and associations limit no jobs: the site does not enforce them":  doctor.Learnt(sbatch.Settings{Accounting: true}, errors.New("x")),
		"ok Slurm tells the limits of QOS and associations, and their use":       doctor.Learnt(known, nil),
		"warning Access/permission denied":                                       doctor.Learnt(known, errors.New("Access/permission denied")),
	} {
		if got := string(check.Verdict) + " " + check.Found; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
