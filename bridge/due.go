package bridge

import (
	"cmp"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// due are the rows of a queue that have something to report and that the next check-in may report.
type due struct {
	// Each row is in one list: in verdicts if its bundle has ended; else in states if its state has
	// not been reported; else in old if its last report is refreshEvery old, or may be lost; else in
	// words, for a new sentence.
	verdicts, states, old, words []*plan.Row
	// blocked is how many rows have news that has to wait: a check-in that is not answered yet carries
	// their last report.
	blocked int
	// stuck is how many of those have a new state, while the newest check-in carries their last report and
	// the server cannot show whether it has applied it.
	stuck int
}

// due returns the rows of a queue that have something to report. Its cost grows with their number,
// and not with the number of rows.
func (v *view) due(r *reports, now time.Time) due {
	var d due
	for bundle := range r.news {
		row, last := v.rows[bundle], r.last[bundle]
		switch {
		case v.acknowledged[bundle] > 0:
		case last != nil && last.carrier != 0:
			d.blocked++
			if last.carrier == r.number && !last.provable && last.row.State() != row.State() {
				d.stuck++
			}
		case row.Phase == plan.Finalizing:
			d.verdicts = append(d.verdicts, row)
		case last == nil || last.row.State() != row.State():
			d.states = append(d.states, row)
		case last.place == nil || now.Sub(last.at) >= refreshEvery:
			d.old = append(d.old, row)
		default:
			d.words = append(d.words, row)
		}
	}
	for e := r.aging.Front(); e != nil; e = e.Next() {
		last := e.Value.(*report) //nolint:forcetypeassert // aging has nothing else
		if now.Sub(last.at) < refreshEvery {
			break
		}
		bundle := last.row.Bundle
		if _, news := r.news[bundle]; !news && last.carrier == 0 && v.acknowledged[bundle] == 0 {
			d.old = append(d.old, v.rows[bundle])
		}
	}
	return d
}

// sort brings the rows that have waited longest to the front of each list.
func (d *due) sort(r *reports) {
	bySince := func(a, b *plan.Row) int {
		return cmp.Or(a.PhaseSince.Compare(b.PhaseSince), cmp.Compare(a.Bundle, b.Bundle))
	}
	byReport := func(a, b *plan.Row) int {
		return cmp.Or(r.last[a.Bundle].at.Compare(r.last[b.Bundle].at), cmp.Compare(a.Bundle, b.Bundle))
	}
	slices.SortFunc(d.verdicts, bySince)
	slices.SortFunc(d.states, bySince)
	slices.SortFunc(d.old, byReport)
	slices.SortFunc(d.words, byReport)
}

// take takes the rows for a check-in of most bytes of runs, and at least one: verdicts first, then
// new states. These leave half of the room to old reports, so that neither keeps the other waiting.
func (d *due) take(identity string, most int) (rows []*plan.Row, runs []codalab.Run, bytes int) {
	fill := func(from *[]*plan.Row, limit int) {
		for len(*from) > 0 {
			row := (*from)[0]
			run := row.Report(identity)
			size := bytesOf(&run)
			if len(rows) > 0 && bytes+size > limit {
				return
			}
			rows, runs, bytes, *from = append(rows, row), append(runs, run), bytes+size, (*from)[1:]
		}
	}
	fill(&d.verdicts, most/2)
	fill(&d.states, most/2)
	fill(&d.old, most)
	fill(&d.verdicts, most)
	fill(&d.states, most)
	fill(&d.words, most)
	return rows, runs, bytes
}

// bytesOf estimates the bytes of a run in a check-in. To encode each run only for its size would cost
// more than the rest of the check-in.
func bytesOf(run *codalab.Run) int {
	const others = 860 // the names of fields, times and numbers
	n := others + len(run.UUID) + len(run.RunStatus) + len(run.Remote)
	if run.JobHandle != "" {
		n += len(`,"job_handle":""`) + len(run.JobHandle)
	}
	for _, words := range []*string{run.DockerImage, run.FailureMessage} {
		if words != nil {
			n += len(*words)
		}
	}
	return n
}

// mostBytes bounds the runs of a check-in: some five hundred. Both servers refuse requests of more
// than 8 MiB (codalab/server/rest_server.py: MEMFILE_MAX), and many a proxy those of more than
// 1 MiB (nginx: client_max_body_size).
const mostBytes = 512 << 10

const (
	// slowCheckIn is how long a check-in may take. CodaLab's own server applies some fifty reports
	// a second, in turn, and holds a check-in for 5 s after that; the client gives up after a
	// minute, and the reports would never be done.
	slowCheckIn = 20 * time.Second
	// quickCheckIn is how long one takes that may be larger.
	quickCheckIn = 10 * time.Second
)

// size is how many bytes of runs the next check-in may have. The server's answers change it.
type size struct {
	// most is at most ceiling, which is half of the smallest check-in that the server refused.
	most, ceiling int
}

// ended learns from a check-in that was answered or has failed.
func (s *size) ended(in *sentCheckIn, now time.Time, answered bool) {
	took := now.Sub(in.at)
	switch {
	case took >= slowCheckIn && len(in.runs) > 1:
		s.most = min(s.most, in.bytes/2)
	case took < quickCheckIn && answered && in.full:
		s.most = min(2*s.most, s.ceiling)
	}
}

// refused learns from a check-in that was refused as too large.
func (s *size) refused(in *sentCheckIn) {
	s.ceiling = min(s.ceiling, in.bytes/2)
	s.most = min(s.most, s.ceiling)
}
