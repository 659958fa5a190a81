package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestSiteChangesAreThoseThatMayKeepAJobFromStarting(t *testing.T) {
	t.Parallel()
	p := policy()
	q := p.Queues["cpu"]
	q.Partition, q.QOS = "batch,long", "normal"
	p.Queues["cpu"] = q
	row := rowIn(plan.Queued)
	row.Resources.Time = 3600
	asked := sbatch.Details{Partition: "batch,long", QOS: "normal", Time: 62 * time.Minute}
	with := func(change func(*sbatch.Details)) sbatch.Details {
		d := asked
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		now  sbatch.Details
		want string
	}{
		"none":                          {asked, ""},
		"one of the partitions is left": {with(func(d *sbatch.Details) { d.Partition = "long" }), ""},
		"a shorter time":                {with(func(d *sbatch.Details) { d.Time = time.Minute }), ""},
		"a name":                        {with(func(d *sbatch.Details) { d.Name, d.Comment, d.Account = "vip", "charge=1234", "other" }), ""},
		"a longer time":                 {with(func(d *sbatch.Details) { d.Time = 72 * time.Hour }), "its time limit is 3d0h instead of 1h2m"},
		"another partition":             {with(func(d *sbatch.Details) { d.Partition = "short" }), "its partition is short instead of batch,long"},
		"another QOS, and partition":    {with(func(d *sbatch.Details) { d.QOS, d.Partition = "low", "short,long" }), "its partition is short,long instead of batch,long, and its QOS is low instead of normal"},
	} {
		if got := p.SiteChanges(row, c.now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	q.Partition, q.QOS = "", ""
	p.Queues["cpu"] = q
	if got := p.SiteChanges(row, asked); got != "" {
		t.Errorf("of a queue without a partition: %q", got)
	}
}

// An administrator moves a waiting job to a partition with a shorter limit, or a plugin of the site gives it more time.
func TestI10JobThatTheSiteHasChangedIsNoVerdictOnItsBundle(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "PartitionTimeLimit"
	changed := plan.News{Canary: &plan.Canary{SiteChanges: "its partition is short instead of batch"}}
	row := rowIn(plan.Queued)
	row.Resources.Time = 3600
	b := given(t, row).at(late).decide(seen(late, never)).is(plan.Queued)
	asked := late + 10*time.Second
	b.at(asked).decide(seen(asked, never)).is(plan.Queued, plan.AskQueue)
	b.decide(changed).is(plan.Queued)
	const said = "The site has changed the job: its partition is short instead of batch. The site's administrators can change it back."
	if status := b.row.Report("worker").RunStatus; !strings.HasSuffix(status, said) {
		t.Errorf("run_status %q", status)
	}
	for at := asked; at < asked+23*time.Hour; at += time.Hour {
		b.at(at).decide(seen(at, never)).is(plan.Queued)
	}
	mended := *b
	waits := job(sbatch.StatePending)
	waits.Reason = "Priority"
	if mended.decide(seen(asked+23*time.Hour, waits)).is(plan.Queued); mended.row.SiteChanges != "" {
		t.Errorf("it was changed back, and %q", mended.row.SiteChanges)
	}
	over := late + 25*time.Hour
	b.at(over).decide(seen(over, never)).is(plan.Queued, plan.AskQueue)
	b.decide(changed).is(plan.Stopping, plan.Cancel, plan.Fence)
	if v := b.row.StopVerdict; v.Cause != spool.CausePlatform || !strings.HasSuffix(v.Failure, said) || strings.Contains(v.Failure, "Ask for less") {
		t.Errorf("%+v", v)
	}
}

// The job asks for too much itself.
func TestJobThatNobodyHasChangedFailsItsBundleSoon(t *testing.T) {
	t.Parallel()
	never := job(sbatch.StatePending)
	never.Reason = "PartitionTimeLimit"
	b := given(t, rowIn(plan.Queued), func(r *plan.Row) { r.Resources = codalab.Resources{CPUs: 1, Time: 3600} })
	b.at(late).decide(seen(late, never))
	b.at(late+10*time.Second).decide(seen(late+10*time.Second, never)).is(plan.Queued, plan.AskQueue)
	b.decide(plan.News{Canary: &plan.Canary{}}).is(plan.Stopping, plan.Cancel, plan.Fence)
	if v := b.row.StopVerdict; v.Cause != spool.CauseUser {
		t.Errorf("%+v", v)
	}
}
