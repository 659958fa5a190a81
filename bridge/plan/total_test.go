package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// sane returns an error for a wrong decision.
func sane(now time.Time, before, after plan.Row, effects []plan.Effect) error {
	switch {
	case !slices.Contains(plan.Phases(), after.Phase):
		return fmt.Errorf("unknown phase %q", after.Phase)
	case after.Reason == "":
		return errors.New("no reason")
	case !after.DueAt.IsZero() && !after.DueAt.After(now):
		return errors.New("due at once, without end")
	case before.Verdict != nil && after.Verdict == nil && !before.Dropped:
		return errors.New("verdict is lost")
	case before.Phase == plan.Finalizing && after.Phase == plan.Collecting && wants(effects, plan.Claim):
		// acknowledged and offered again in the same news
	case before.Phase == plan.Finalizing && after.Phase == plan.Collecting && strings.HasPrefix(after.Reason, "the server has thrown the results away"):
	case before.Phase == plan.Finalizing && after.Phase != plan.Finalizing && after.Phase != plan.Done:
		return fmt.Errorf("left finalizing for %s", after.Phase)
	case after.Attempt.Number < before.Attempt.Number && !refused(before, after):
		return fmt.Errorf("attempt %d after %d", after.Attempt.Number, before.Attempt.Number)
	case (after.Phase == plan.Collecting || after.Phase == plan.Finalizing) && after.Verdict == nil:
		return fmt.Errorf("in %s without a verdict", after.Phase)
	}
	seen := map[plan.Kind]bool{}
	for _, e := range effects {
		switch {
		case !slices.Contains(plan.Kinds(), e.Kind):
			return fmt.Errorf("unknown effect %q", e.Kind)
		case seen[e.Kind]:
			return fmt.Errorf("two effects %s", e.Kind)
		case e.Kind == plan.Submit && (after.Phase != plan.Submitting || after.SubmittedAt != now || after.SubmissionName == ""):
			return fmt.Errorf("submit wanted in %s, submitted %s", after.Phase, after.SubmittedAt)
		case e.Kind == plan.Submit && !after.Prepared:
			return errors.New("submit wanted of what is not prepared")
		case e.Kind == plan.Claim && after.Dropped && after.Phase == plan.Done:
			return errors.New("claim wanted of what is not ours")
		case e.Kind == plan.Cancel && after.Job.ID == 0:
			return fmt.Errorf("cancel of no job")
		case e.Kind == plan.Forget && after.Phase != plan.Done:
			return fmt.Errorf("forget in %s", after.Phase)
		case *e.Row != after:
			return fmt.Errorf("effect %s carries another row", e.Kind)
		}
		seen[e.Kind] = true
	}
	return nil
}

// refused reports whether the attempt was taken back because Slurm had refused its submission: the row has the
// previous number, and nothing else of the attempt.
func refused(before, after plan.Row) bool {
	return before.Phase == plan.Submitting && after.Attempt == (plan.Attempt{Number: before.Attempt.Number - 1})
}

func wants(effects []plan.Effect, k plan.Kind) bool {
	return slices.ContainsFunc(effects, func(e plan.Effect) bool { return e.Kind == k })
}

// TestI8NextIsTotal decides each row with each kind of news, and with many pairs of them, twice.
func TestI8NextIsTotal(t *testing.T) {
	t.Parallel()
	news := everyNews()
	names := slices.Sorted(maps.Keys(news))
	pairs := 300
	if testing.Short() {
		pairs = 100
	}
	var decisions atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d decisions: %d rows in %d phases, %d kinds of news and %d pairs of them", decisions.Load(), len(everyRow()), len(plan.Phases()), len(news), pairs)
	})
	for name := range everyRow() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row, untouched := everyRow()[name], everyRow()[name]
			random := rand.New(rand.NewPCG(1, 2))
			for i := range len(names) + pairs {
				one, two := "nothing", names[i%len(names)]
				if i >= len(names) {
					one, two = names[random.IntN(len(names))], names[random.IntN(len(names))]
				}
				for _, accounting := range []bool{true, false} {
					decisions.Add(1)
					if err := total(row, both(news[one], news[two]), accounting); err != nil {
						t.Fatalf("%s and %s: %v", one, two, err)
					}
				}
				if !reflect.DeepEqual(row, untouched) {
					t.Fatalf("%s and %s: the argument was changed:\n%s", one, two, cmp.Diff(untouched, row))
				}
			}
		})
	}
}

// total returns an error for a wrong decision.
func total(row plan.Row, n plan.News, accounting bool) error {
	p := policy()
	p.Accounting = accounting
	now := epoch.Add(2 * time.Hour)
	after, effects := p.Next(now, row, n)
	if err := sane(now, row, after, effects); err != nil {
		return fmt.Errorf("%w (%s: %s)", err, after.Phase, after.Reason)
	}
	again, repeated := p.Next(now, row, n)
	if !reflect.DeepEqual(after, again) || !slices.Equal(plan.KindsOf(effects), plan.KindsOf(repeated)) {
		return fmt.Errorf("decided otherwise the second time:\n%s", cmp.Diff(after, again))
	}
	return nil
}

// A row of a future version stays unchanged: the bridge asks Slurm nothing for it.
func TestI8UnknownPhaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	news := everyNews()
	for _, phase := range []plan.Phase{"hovering", "Queued", ""} {
		for name, vary := range variants() {
			row := rowIn(plan.Running)
			vary(&row)
			row.Phase = phase
			for heard, n := range news {
				after, effects := policy().Next(epoch.Add(2*time.Hour), row, n)
				if after.Phase != phase || after.Attempt.Number != row.Attempt.Number || after.Reason == "" {
					t.Errorf("%q, %s, %s: became %s (%s)", phase, name, heard, after.Phase, after.Reason)
				}
				for _, e := range effects {
					if e.Kind != plan.Claim {
						t.Errorf("%q, %s, %s: wants %s", phase, name, heard, e.Kind)
					}
				}
			}
		}
	}
}

// TestI8NothingIsWantedInACircle answers each effect with failure at once, and decides a row when it is due. No effect
// may come again without a pause, and nothing is submitted twice without proof. The accounting fails, or gives
// useless answers forever.
func TestI8NothingIsWantedInACircle(t *testing.T) {
	t.Parallel()
	failing := map[plan.Kind]plan.News{
		plan.Claim:       {Claimed: &plan.Claimed{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Stage:       {Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Carry:       {Carried: &plan.Outcome{Failure: "no"}},
		plan.Prepare:     {Prepared: &plan.Outcome{Failure: "no"}},
		plan.Submit:      answered(plan.SbatchAnswer{Words: "timed out"}),
		plan.ReadRecords: {RecordsFailure: "no"},
		plan.Fence:       {Fenced: &plan.Fencing{Attempt: 1, Failure: "no"}},
		plan.Cancel:      {Cancelled: &plan.Outcome{Failure: "no"}},
		plan.Collect:     {Collected: &plan.Outcome{Failure: "no"}},
		plan.Confirm:     {Confirmed: &plan.Confirmation{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Release:     {Released: &plan.Outcome{Failure: "no"}},
	}
	accounting := map[string]func(now time.Time) plan.News{
		"away":   func(time.Time) plan.News { return plan.News{AccountingFailure: "no"} },
		"empty":  func(now time.Time) plan.News { return accounted(now.Sub(epoch)) },
		"behind": func(now time.Time) plan.News { return accounted(now.Sub(epoch), job(sbatch.StateRunning)) },
	}
	for name, row := range everyRow() {
		for state, account := range accounting {
			t.Run(name+", accounting "+state, func(t *testing.T) {
				t.Parallel()
				b := given(t, row).at(2 * time.Hour)
				wanted := map[plan.Kind]int{}
				submits := 0
				pending := []plan.News{{}}
				for pass := range 400 {
					if len(pending) == 0 {
						if b.row.DueAt.IsZero() {
							break
						}
						b.now = b.row.DueAt
						clear(wanted)
						pending = append(pending, plan.News{})
					}
					b.decide(pending[0])
					pending = pending[1:]
					for _, k := range b.kinds() {
						if wanted[k]++; wanted[k] > 2 {
							t.Fatalf("pass %d: %s is wanted again and again in %s (%s)", pass, k, b.row.Phase, b.row.Reason)
						}
						answer := failing[k]
						if k == plan.QueryAccounting {
							answer = account(b.now)
						}
						if k == plan.Submit {
							submits++
						}
						pending = append(pending, answer)
					}
				}
				if submits > 1 && state == "away" {
					t.Errorf("%d submissions without any proof", submits)
				}
			})
		}
	}
}

// TestI8NoRowIsStuck lets everything succeed after random news. Slurm, accounting and disk agree that there is no job
// any more, and room for new work. Each row has to come to its end.
func TestI8NoRowIsStuck(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		for name, row := range everyRow() {
			if end := drive(t, row, seed); end.row.Phase != plan.Done || !slices.Contains(end.kinds(), plan.Forget) {
				t.Fatalf("%s, seed %d: stuck in %s (%s), due %s", name, seed, end.row.Phase, end.row.Reason, end.row.DueAt)
			}
		}
	}
}

// drive gives a row some random news and then the truth, until it is forgotten.
func drive(t *testing.T, row plan.Row, seed uint64) *bench {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	b := given(t, row).at(2 * time.Hour) // no news is from the future
	b.policy.Accounting = seed%2 == 0
	if row.Queue == "gone" || row.Queue == "" {
		b.row.Queue = "cpu"
	}
	news := everyNews()
	names := slices.Sorted(maps.Keys(news))
	for range random.IntN(6) {
		b.now = b.now.Add(time.Duration(random.IntN(60)) * time.Second)
		b.decide(news[names[random.IntN(len(names))]])
	}
	for range 300 {
		if b.row.WaitsToSubmit(b.now) {
			b.row = b.policy.NewAttempt(b.now, b.row, 1)
		}
		room := ""
		b.decide(plan.News{DiskLow: &room})
		queue := b.effects
		if b.row.InFlight() {
			b.decide(plan.News{Observation: &plan.Observation{SubmissionName: b.row.SubmissionName, Asked: b.now}})
			queue = append(queue, b.effects...)
		}
		for range 50 { // an effect's outcome may want another effect
			if len(queue) == 0 {
				break
			}
			if queue[0].Kind == plan.Forget {
				return b
			}
			b.decide(truth(queue[0], b.now))
			queue = append(queue[1:], b.effects...)
		}
		if b.row.Phase == plan.Finalizing && seed%3 > 0 { // else every acknowledgement is lost
			b.decide(told(ack))
		}
		b.now = b.now.Add(6 * time.Second)
		if b.row.DueAt.After(b.now) && !b.row.InFlight() {
			b.now = b.row.DueAt
		}
	}
	return b
}

// truth returns the outcome of an effect if there is no job any more, and Slurm accepts no other.
func truth(e plan.Effect, now time.Time) plan.News {
	var n plan.News
	switch e.Kind {
	case plan.Claim:
		n.Claimed = &plan.Claimed{Accepted: true}
	case plan.Stage:
		n.Staged = &plan.StageEnd{}
	case plan.Carry:
		n.Carried = &plan.Outcome{}
	case plan.Prepare:
		n.Prepared = &plan.Outcome{}
	case plan.Submit:
		n.Submitted = &plan.SbatchAnswer{Attempt: e.Row.Attempt.Number, Refused: true, Words: "no"}
	case plan.AskQueue:
		n.Canary = &plan.Canary{}
	case plan.QueryAccounting:
		n.Accounting = &plan.Observation{SubmissionName: e.Row.SubmissionName, Asked: now}
	case plan.ReadRecords:
		n.Records = &plan.Records{Attempt: e.Row.Attempt.Number, Read: now, Records: spool.Records{Started: e.Row.Begun, Exit: e.Row.Exit}}
	case plan.Fence:
		n.Fenced = &plan.Fencing{Attempt: e.Row.Attempt.Number, Started: spool.Started{Fenced: true}}
		if e.Row.Begun != nil {
			n.Fenced.Started = *e.Row.Begun
		}
	case plan.Cancel:
		n.Cancelled = &plan.Outcome{}
	case plan.Collect:
		n.Collected = &plan.Outcome{}
	case plan.Confirm:
		n.Confirmed = &plan.Confirmation{Asked: now, State: codalab.StateReady}
	case plan.Release:
		n.Released = &plan.Outcome{}
	case plan.Forget:
	}
	return n
}
