package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// due are the runs of a queue that have something to report and that the next check-in may report.
type due struct {
	// Each run is in one list: in verdicts if its bundle has ended; else in states if its state has
	// not been reported; else in old if its last report is RefreshEvery old, or may be lost; else in
	// words, for a new sentence.
	verdicts, states, old, words []*run
	// blocked counts the runs whose report has to wait: a check-in that is not answered yet carries
	// their last report.
	blocked int
	// stuck counts those of them with a new state whose last report the newest check-in carries, if
	// the server cannot show whether it has applied that report.
	stuck int
}

// due returns the runs of a queue that have something to report. Its cost grows with their number,
// and not with the number of rows.
func (b *Book) due(q *queue, now time.Time) due {
	var d due
	for bundle := range q.unreported {
		r := q.runs[bundle]
		row, last := r.row, r.last
		switch {
		case b.Acknowledged(bundle):
		case last != nil && last.carrier != 0:
			d.blocked++
			if last.carrier == q.number && !last.provable && last.row.State() != row.State() {
				d.stuck++
			}
		case row.Phase == plan.Finalizing:
			d.verdicts = append(d.verdicts, r)
		case last == nil || last.row.State() != row.State():
			d.states = append(d.states, r)
		case last.place == nil || now.Sub(last.at) >= RefreshEvery:
			d.old = append(d.old, r)
		default:
			d.words = append(d.words, r)
		}
	}
	for e := q.aging.Front(); e != nil; e = e.Next() {
		last := e.Value.(*report) //nolint:forcetypeassert // aging has nothing else
		if now.Sub(last.at) < RefreshEvery {
			break
		}
		bundle := last.row.Bundle
		if _, more := q.unreported[bundle]; !more && last.carrier == 0 && !b.Acknowledged(bundle) {
			d.old = append(d.old, q.runs[bundle])
		}
	}
	return d
}

// sort brings the runs that have waited longest to the front of each list.
func (d *due) sort() {
	bySince := func(a, b *run) int {
		return cmp.Or(a.row.PhaseSince.Compare(b.row.PhaseSince), cmp.Compare(a.row.Bundle, b.row.Bundle))
	}
	byReport := func(a, b *run) int {
		return cmp.Or(a.last.waits.Compare(b.last.waits), cmp.Compare(a.row.Bundle, b.row.Bundle))
	}
	slices.SortFunc(d.verdicts, bySince)
	slices.SortFunc(d.states, bySince)
	slices.SortFunc(d.old, byReport)
	slices.SortFunc(d.words, byReport)
}

// take takes the rows for a check-in of most bytes, and at least one: verdicts first, then new states.
// These leave half of the room to old reports, so that neither keeps the other waiting. There may be room for one report
// alone: then oldFirst gives it to an old one.
func (d *due) take(workerID string, most int, oldFirst bool) (rows []*plan.Row, reports []codalab.RunReport, bytes int) {
	fill := func(from *[]*run, limit int) {
		for len(*from) > 0 {
			row := (*from)[0].row
			report := row.Report(workerID)
			size := bytesOf(&report)
			if len(rows) > 0 && bytes+size > limit {
				return
			}
			rows, reports, bytes, *from = append(rows, row), append(reports, report), bytes+size, (*from)[1:]
		}
	}
	if oldFirst {
		fill(&d.old, most/2)
	}
	fill(&d.verdicts, most/2)
	fill(&d.states, most/2)
	fill(&d.old, most)
	fill(&d.verdicts, most)
	fill(&d.states, most)
	fill(&d.words, most)
	return rows, reports, bytes
}

// bytesOf estimates the bytes of a report in a check-in. To encode each one only for its size would cost
// more than the rest of the check-in.
func bytesOf(report *codalab.RunReport) int {
	const others = 860 // the names of fields, times and numbers
	n := others + len(report.UUID) + len(report.RunStatus) + len(report.Remote)
	if report.JobHandle != "" {
		n += len(`,"job_handle":""`) + len(report.JobHandle)
	}
	for _, a := range report.Attempts {
		n += len(a) + len(`,""`)
	}
	for _, words := range []*string{report.PinnedReference, report.FailureMessage} {
		if words != nil {
			n += len(*words)
		}
	}
	if p := report.Platform; p != nil {
		n += bytesOfPlatform(p)
	}
	return n
}

// bytesOfPlatform estimates the bytes of a report's platform.
func bytesOfPlatform(p *codalab.Platform) int {
	const names = 80 // of its fields
	n := names + len(p.Site) + len(p.GPUDriver)
	for _, model := range p.GPUs {
		n += len(model) + len(`"",`)
	}
	for _, s := range p.Software {
		n += len(s.Name) + len(s.Version) + len(`{"name":"","version":""},`)
	}
	for _, in := range p.Inputs {
		n += len(in.ChildPath) + len(in.Digest) + len(`{"child_path":"","digest":""},`)
	}
	return n
}
