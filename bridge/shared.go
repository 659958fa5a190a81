package bridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// submissions are the submissions that rows in flight share. Only Step uses them.
type submissions map[plan.SubmissionName]*submission

// submission is one of them.
type submission struct {
	plan.Submission
	// index has the places of the members by their bundles, once the list of members is closed.
	index map[string]int
	news  plan.SubmissionNews
	// touched is set if it has to be decided in this step.
	touched bool
	// unsaved is set if the ledger does not have it yet.
	unsaved bool
}

// set replaces the submission by the result of a decision.
func (s *submission) set(next plan.Submission) {
	closed := len(s.Members) == 0 && len(next.Members) > 0
	if s.Submission = next; closed || s.index == nil {
		s.index = make(map[string]int, len(next.Members))
		for i, m := range next.Members {
			s.index[m.Bundle] = i
		}
	}
}

// undecided reports whether a row depends on its submission: it has no job yet.
func undecided(r *plan.Row) bool { return r.Shared && r.InFlight() && r.Job.ID == 0 }

// add adds the submission of rows with new attempts.
func (all submissions) add(now time.Time, rows []plan.Row) {
	s := &submission{touched: true, unsaved: true}
	s.set(plan.NewSubmission(now, rows))
	all[s.Name] = s
}

// tell adds to a row's news its place in its submission, and to the submission's what the row's news shows of it.
func (all submissions) tell(r *plan.Row, n *plan.News) {
	s, undecided := all[r.SharedName()], undecided(r)
	switch {
	case !undecided && s != nil && r.Pack:
		n.Submission = all.placeOf(r, s)
		return
	case !undecided:
		return
	}
	if s == nil { // the ledger has lost it
		s = &submission{unsaved: true}
		s.set(plan.Submission{Name: r.SharedName(), Generation: r.Generation, Queue: r.Queue, Pack: r.Pack, State: plan.Doubtful})
		all[s.Name] = s
	}
	n.Submission = all.placeOf(r, s)
	s.touched = true
	s.news.Queue, s.news.Accounting = later(s.news.Queue, n.Observation), later(s.news.Accounting, n.Accounting)
	if n.AccountingFailure != "" {
		s.news.AccountingFailure = n.AccountingFailure
	}
}

// placeOf returns the place of a row in its submission. That of a row which joins a pack has the pack's members, too.
func (all submissions) placeOf(r *plan.Row, s *submission) *plan.Place {
	place := s.PlaceOf(r, s.index)
	if pack := all[r.SubmissionName]; r.Slot > 0 && pack != nil {
		place.Begun, place.Members = pack.Begun, len(pack.Members)+pack.Joined
	}
	return &place
}

// noteJob notes the array or the pack of a row that has got its job, and which may leave its submission with that; and that a pack's
// job has begun a member.
func (all submissions) noteJob(st *step, p *plan.Policy, before, after *plan.Row, n *plan.News) {
	s, pack := all[before.SharedName()], all[before.SubmissionName]
	if s == nil {
		return
	}
	array, ok := p.ArrayOf(after)
	begun := ok && after.Begun != nil
	if !ok {
		array, ok = p.ArrayBegunBy(before, n)
		begun = ok
	}
	if before.Slot > 0 && !begun { // the job of a pack shows nothing of its slots
		return
	}
	if ok && undecided(before) {
		s.news.Array, s.touched = array, true
		if after.Job.ID == array {
			s.news.Accepted = after.Job.Submitted
		}
	}
	if !begun || pack == nil || !pack.Pack || pack.Begun {
		return
	}
	if pack.Array == 0 || pack.Array == array { // an earlier sbatch may have made another job
		pack.Begun = true
		st.noteShared(pack.Submission)
	}
}

// later returns the later of two observations; nil for none.
func later(a, b *plan.Observation) *plan.Observation {
	if a == nil || b != nil && (b.Asked.After(a.Asked) || len(b.Jobs) > 0) {
		return b
	}
	return a
}

// upcoming counts the submissions that will be submitted soon.
func (all submissions) upcoming() (n int) {
	for _, s := range all {
		if s.State == plan.Gathering && s.Joining == nil {
			n++
		}
	}
	return n
}

// due returns the submissions to be decided now, in their order.
func (all submissions) due(now time.Time) []*submission {
	var due []*submission
	for _, s := range all {
		if s.touched || !s.DueAt.IsZero() && !s.DueAt.After(now) {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *submission) int { return a.Compare(b.Submission) })
	return due
}

// nextDue returns the time at which the next submission is due.
func (all submissions) nextDue() (next time.Time, ok bool) {
	for _, s := range all {
		if !s.DueAt.IsZero() && (!ok || s.DueAt.Before(next)) {
			next, ok = s.DueAt, true
		}
	}
	return next, ok
}

// openShared reads the submissions that rows share.
func (d *decider) openShared(ctx context.Context) error {
	saved, err := d.ledger.Submissions(ctx)
	if err != nil {
		return fmt.Errorf("read shared submissions: %w", err)
	}
	for _, sub := range saved {
		s := &submission{touched: true}
		s.set(sub)
		d.shared[sub.Name] = s
	}
	return nil
}

// gatherFor is the longest time for which a row that may share a submission waits for rows of its lane that are still claimed and
// staged. A row of whose lane none is coming goes at once.
const gatherFor = 2 * time.Second

// gather returns the rows that may go now. Those of a lane that may share a submission wait for others of the lane that are coming,
// unless they are as many as may share one, or enough for the lane's first pack.
func (d *decider) gather(now time.Time, waiting []*plan.Row) []*plan.Row {
	oldest, most, packing := map[plan.Lane]time.Time{}, map[plan.Lane]int{}, d.rows.lanesOfPacks()
	for _, r := range waiting {
		at := r.Lane()
		if d.rows.coming[at] == 0 || !d.rules.MayShare(r) {
			continue
		}
		if since, ok := oldest[at]; !ok || r.Spent.StagedAt.Before(since) {
			oldest[at] = r.Spent.StagedAt
		}
		most[at]++
	}
	enough := func(r *plan.Row) int {
		if d.rules.Packs(r) && !packing[r.Lane()] {
			return d.rules.EnoughForFirstPack(r)
		}
		return d.rules.MostTogether(r)
	}
	return slices.DeleteFunc(waiting, func(r *plan.Row) bool {
		at := r.Lane()
		since, ok := oldest[at]
		if !ok || !d.rules.MayShare(r) || most[at] >= enough(r) || since.After(now) || now.Sub(since) >= gatherFor {
			return false
		}
		if until := since.Add(gatherFor); d.gathered.IsZero() || until.Before(d.gathered) {
			d.gathered = until
		}
		return true
	})
}

// takeAnswers gives the answers of sbatch to their submissions, and learns from them.
func (d *decider) takeAnswers(s *step, answers map[plan.SubmissionName]plan.SbatchAnswer) {
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		answer := answers[name]
		if sub := d.shared[name]; sub != nil && sub.Joining != nil {
			sub.news.Answer, sub.touched = &answer, true
			continue
		}
		d.limits.examineAnswer(&answer)
		if sub := d.shared[name]; sub != nil {
			sub.news.Answer, sub.touched = &answer, true
			d.learnAnswer(s, name, answer)
		}
	}
}

// learnAnswer counts an answer of sbatch, and learns from it about the queue as from one for a single job.
func (d *decider) learnAnswer(s *step, name plan.SubmissionName, answer plan.SbatchAnswer) {
	rows := d.rows.sharing(name)
	if len(rows) == 0 {
		return
	}
	answer.Attempt = rows[0].Attempt.Number
	n := plan.News{Submitted: &answer}
	d.health.examine(s.now, rows[0], &n)
	if d.count != nil {
		d.count(rows[0], rows[0], &n)
	}
}

// decideShared decides the submissions that have news or are due, and the rows of those that change.
func (d *decider) decideShared(ctx context.Context, s *step) {
	for _, sub := range d.shared.due(s.now) {
		if sub.Waits(s.now, d.rows.preparing[sub.Name]) { // else each member would cost a look at all others
			sub.news, sub.touched = plan.SubmissionNews{}, false
			continue
		}
		members := d.rows.sharing(sub.Name)
		next, kinds := d.rules.NextSubmission(s.now, sub.Submission, members, sub.news)
		before := sub.Submission
		sub.news, sub.touched = plan.SubmissionNews{}, false
		sub.set(next)
		if sub.unsaved || !before.Same(next) {
			s.noteShared(sub.Submission)
			sub.unsaved = false
		}
		d.shared.followSlot(s, &before, &next)
		paused := next.State == plan.Asked && !before.DueAt.Equal(next.DueAt)
		if changed := before.State != next.State || !before.SubmittedAt.Equal(next.SubmittedAt) || before.LastFailure != next.LastFailure; changed || paused {
			for _, r := range members {
				d.decide(ctx, s, r, &plan.News{})
			}
			sub.touched = false // the rows have nothing new for it
		}
		d.wantShared(s, sub, kinds)
	}
	if d.rows.sleeping == 0 { // rows that leave a job may sleep since before the start
		d.shared.removeOver(s, d.rows)
	}
}

// wantShared adds the effects that a submission wants.
func (d *decider) wantShared(s *step, sub *submission, kinds []plan.Kind) {
	if len(kinds) == 0 {
		return
	}
	var leader *plan.Row
	for _, r := range d.rows.sharing(sub.Name) {
		if _, member := sub.index[r.Bundle]; member && (leader == nil || leader.Phase != plan.Submitting) {
			leader = r
		}
	}
	if leader == nil {
		return
	}
	for _, k := range kinds {
		e := plan.Effect{Kind: k, Row: leader}
		if k == plan.Submit || k == plan.JoinPack {
			submitted := sub.Submission
			e.Submission = &submitted
		}
		s.effects = append(s.effects, e)
	}
}

// removeOver removes the submissions that no row in flight shares any more.
func (all submissions) removeOver(s *step, rows *rows) {
	for name, sub := range all {
		isJoined := sub.Pack && sub.Joining == nil && len(rows.packs[sub.Generation]) > 0 // by rows of its slots
		if len(rows.shared[name]) == 0 && !isJoined {
			over := sub.Submission
			over.State = plan.Over
			s.noteShared(over)
			delete(all, name)
			all.followSlot(s, &sub.Submission, &over)
		}
	}
}

// noteShared notes a submission that has to be saved.
func (s *step) noteShared(sub plan.Submission) {
	if s.shared == nil {
		s.shared = map[plan.SubmissionName]plan.Submission{}
	}
	s.shared[sub.Name] = sub
}

// changedShared returns the submissions to be saved.
func (s *step) changedShared() []plan.Submission {
	changed := slices.Collect(maps.Values(s.shared))
	slices.SortFunc(changed, plan.Submission.Compare)
	return changed
}

// submitShared writes the list of a submission's members and runs sbatch, if there is still time for it.
func (d *doer) submitShared(ctx context.Context, s *plan.Submission, leader plan.Row) plan.SbatchAnswer {
	notRun := plan.SbatchAnswer{Attempt: leader.Attempt.Number, Refused: true, Retry: true, Words: tooLate}
	if d.now().Sub(s.SubmittedAt) > plan.SubmitWithin {
		return notRun
	}
	policy := d.inForce.now()
	if err := d.spool.WriteMembers(policy.MembersRecord(s)); err != nil {
		notRun.Words = err.Error()
		return notRun
	}
	return d.sbatch(ctx, policy.SharedRequest(s, leader), leader)
}
