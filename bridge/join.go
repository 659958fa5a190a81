package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// join lets staged rows join packs that run. It returns the bundles whose rows need no submission of their own now.
func (d *decider) join(ctx context.Context, s *step) (joining map[string]bool) {
	joining = map[string]bool{}
	var running []plan.RunningPack
	for _, name := range d.health.names {
		rows, most := d.joiners(s.now, name)
		if most == 0 {
			continue
		}
		if running == nil {
			running = d.runningPacks()
		}
		joins, waits := d.rules.Join(s.now, rows, running, d.health.nodes, most)
		for bundle := range waits {
			joining[bundle] = true
		}
		for _, j := range joins {
			d.shared[j.Pack.Name].Submission = j.Pack
			s.noteShared(j.Pack)
			slot := &submission{touched: true, unsaved: true}
			slot.set(j.Slot)
			d.shared[slot.Name] = slot
			d.log.InfoContext(ctx, "runs join a pack", slog.String("job", slot.Joining.Job.String()), slog.Int("runs", len(j.Rows)))
			for _, r := range j.Rows {
				d.decide(ctx, s, &r, &plan.News{})
			}
		}
	}
	return joining
}

// joiners returns the rows of a queue that may join packs, and how many of them may. A queue that is held up submits its probes alone. Where
// the queue bounds the rows in flight, an owner with a pack must not take the places for which other owners wait.
func (d *decider) joiners(now time.Time, name string) (rows []*plan.Row, most int) {
	q := d.rules.Queues[name]
	if q.PackRuns <= 1 || len(d.rows.staged[name]) == 0 || d.health.of(name).Held(q) != "" {
		return nil, 0
	}
	rows = d.rows.waiting(name, now)
	most = len(rows)
	if q.MaxInFlight > 0 {
		most = max(min(most, q.MaxInFlight-d.rows.inFlight[name]), 0)
		if slices.ContainsFunc(rows, func(r *plan.Row) bool { return r.Lane() != rows[0].Lane() }) {
			most = 0
		}
	}
	return rows, most
}

// runningPacks returns the packs that rows may join, in the order of their generations.
func (d *decider) runningPacks() []plan.RunningPack {
	running := []plan.RunningPack{}
	for _, sub := range d.shared {
		if !sub.MayBeJoined() {
			continue
		}
		pack := plan.RunningPack{Submission: &sub.Submission, Unfinished: len(d.rows.packs[sub.Generation])}
		for _, e := range d.rows.packs[sub.Generation] {
			if r := e.row; r.ShowsRunningPack() && (pack.Member == nil || r.Bundle < pack.Member.Bundle) {
				pack.Member = r
			}
		}
		if pack.Member == nil {
			continue
		}
		if last := d.shared[sub.LastSlot()]; last != nil && last != sub {
			pack.Busy = last.State == plan.Gathering || last.State == plan.Asked
			if pack.Busy && last.FailedTries > 0 { // nothing tells how long that lasts
				continue
			}
		}
		running = append(running, pack)
	}
	slices.SortFunc(running, func(a, b plan.RunningPack) int { return cmp.Compare(a.Generation, b.Generation) })
	return running
}

// followSlot tells a pack what became of a slot of its list.
func (all submissions) followSlot(s *step, before, after *plan.Submission) {
	if after.Joining == nil {
		return
	}
	if pack := all[after.Joining.Pack]; pack != nil && pack.FollowSlot(before, after) {
		s.noteShared(pack.Submission)
	}
}

// ask asks for the jobs of a submission, or for its place in a pack.
func (d *doer) ask(ctx context.Context, s *plan.Submission, leader plan.Row) plan.SbatchAnswer {
	if s.Joining == nil {
		return d.submitShared(ctx, s, leader)
	}
	return d.joinPack(ctx, s, leader)
}

// joinPack writes the slot of rows that join a pack.
func (d *doer) joinPack(ctx context.Context, s *plan.Submission, leader plan.Row) plan.SbatchAnswer {
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	answer := plan.SbatchAnswer{Attempt: leader.Attempt.Number}
	members := d.inForce.now().MembersRecord(s)
	joined, err := d.spool.Join(ctx, s.Joining.List, s.Joining.Slot, spool.Slot{Submission: members.Submission, Attempts: members.Attempts})
	switch {
	case err != nil:
		answer.Words = err.Error()
		d.log.WarnContext(ctx, "runs cannot join a pack, and try again", slog.String("job", s.Joining.Job.String()), errorAttr(err))
	case joined:
		answer.Job = s.Joining.Job
	default:
		answer.Refused, answer.Retry = true, true
	}
	return answer
}
