package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// SiteChanges says which values of a row's waiting job the site has changed, so that Slurm's reason for its waiting may be
// no fault of the bundle's request; empty for none. An administrator moves a job (scontrol update), and a plugin of
// job_submit rewrites one. A shorter time limit keeps no job waiting.
func (p Policy) SiteChanges(r Row, d sbatch.Details) string {
	asked := p.Request(r)
	var changes []string
	among := strings.Split(asked.Partition, ",")
	if asked.Partition != "" && slices.ContainsFunc(strings.Split(d.Partition, ","), func(name string) bool { return !slices.Contains(among, name) }) {
		changes = append(changes, fmt.Sprintf("its partition is %s instead of %s", d.Partition, asked.Partition))
	}
	if asked.QOS != "" && d.QOS != asked.QOS {
		changes = append(changes, fmt.Sprintf("its QOS is %s instead of %s", d.QOS, asked.QOS))
	}
	if limit := (asked.Time + time.Minute - 1).Truncate(time.Minute); limit > 0 && d.Time > limit {
		changes = append(changes, fmt.Sprintf("its time limit is %s instead of %s", codalab.FormatDuration(d.Time), codalab.FormatDuration(limit)))
	}
	return strings.Join(changes, ", and ")
}

// siteChanged names the changes of the site to the job, in a sentence.
func (r Row) siteChanged() string {
	return "The site has changed the job: " + r.SiteChanges + ". The site's administrators can change it back."
}

// applyCanary applies the answer to the question whether the row's queue, or the site, is at fault for a job that can
// never start.
func (d *decision) applyCanary(c Canary) {
	r := &d.row
	atFault := c.Refusal != "" || c.SiteChanges != ""
	if r.SiteChanges = c.SiteChanges; r.QueueTrouble == atFault {
		return
	}
	if r.QueueTrouble = atFault; !atFault {
		r.ImpossibleSince = d.now // Slurm gives its reasons again in its next round
	}
}
