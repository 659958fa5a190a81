package plan_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// everyRow is a row in each phase, and the variants that a row may have there.
func everyRow() map[string]plan.Row {
	rows := map[string]plan.Row{}
	for _, p := range plan.Phases() {
		for name, vary := range variants() {
			r := rowIn(p)
			vary(&r)
			rows[string(p)+", "+name] = r
		}
	}
	return rows
}

func variants() map[string]func(*plan.Row) {
	stop := &plan.Verdict{Cause: spool.CauseUser, Failure: codalab.KillRequested}
	stopped := exit(143)
	stopped.Terminated = true
	return map[string]func(*plan.Row){
		"plain":       func(*plan.Row) {},
		"fresh":       func(r *plan.Row) { r.Staged, r.Submitted = nil, time.Time{} },
		"stopped":     func(r *plan.Row) { r.Stop = stop },
		"jobless":     func(r *plan.Row) { r.Job = sbatch.Job{} },
		"unbegun":     func(r *plan.Row) { r.Begun, r.Exit = nil, nil },
		"closed":      func(r *plan.Row) { r.Begun, r.Closed = nil, true },
		"over":        func(r *plan.Row) { r.Ended, r.Job.State = epoch, sbatch.StateNodeFail },
		"gone":        func(r *plan.Row) { r.Ended = epoch },
		"absent":      func(r *plan.Row) { r.Absent = epoch },
		"looked":      func(r *plan.Row) { r.Ended, r.Looked = epoch, epoch.Add(time.Minute) },
		"terminated":  func(r *plan.Row) { r.Begun, r.Exit = started(), stopped },
		"paused":      func(r *plan.Row) { r.Tries, r.Due, r.Trouble = 9, epoch.Add(2*time.Hour+time.Minute), "no answer" },
		"dropped":     func(r *plan.Row) { r.Dropped = true },
		"other queue": func(r *plan.Row) { r.Queue = "gone" },
		"releasing":   func(r *plan.Row) { r.Releasing = true },
		"vanished":    func(r *plan.Row) { r.Begun, r.Exit, r.Gone, r.Ended = nil, nil, epoch, epoch },
		"unclear": func(r *plan.Row) {
			r.Job, r.Begun, r.Unclear, r.Trouble, r.Absent = sbatch.Job{}, nil, 3, "?", epoch.Add(time.Hour)
		},
		"to come": tomorrow,
		"nothing": func(r *plan.Row) {
			*r = plan.Row{Bundle: uuid, Phase: r.Phase, Attempt: 1, Mark: mark, Stop: r.Stop, Verdict: r.Verdict, Reason: "an old row"}
		},
	}
}

// tomorrow is a row of before the clock was set back.
func tomorrow(r *plan.Row) {
	at := epoch.Add(24 * time.Hour)
	for _, t := range []*time.Time{&r.Since, &r.Submitted, &r.Absent, &r.Ended, &r.Looked, &r.Stuck, &r.Cancelled, &r.Gone} {
		*t = at
	}
	r.Due = at.Add(time.Hour)
}

// everyNews is each kind of news, alone.
func everyNews() map[string]plan.News {
	news := map[string]plan.News{"nothing": {}, "progress": {Progress: "half"}, "a restart": {Restarted: true}}
	for _, m := range []codalab.Message{kill, ack, offered(), {Type: codalab.MessageRead}, {Type: codalab.MessageRun}, {Type: "dance"}} {
		news["message "+string(m.Type)] = told(m)
	}
	for _, state := range append(sbatch.States(), "HIBERNATING", "") {
		news["sighting "+string(state)] = seen(2*time.Hour, job(state))
		news["accounts "+string(state)] = accounted(2*time.Hour, job(state))
	}
	impossible := job(sbatch.StatePending)
	impossible.Reason = "BadConstraints"
	news["sighting impossible"] = seen(2*time.Hour, impossible)
	foreignJob, noted := job(sbatch.StateRunning), job(sbatch.StateRunning)
	foreignJob.Comment, noted.Comment = "codalab bundle=0xfeed attempt=1", "codalab bundle="+uuid+" attempt=1"
	for name, jobs := range map[string][]sbatch.Job{
		"none": nil, "ghost": {ghostJob()}, "two": {job(sbatch.StateCancelled), job(sbatch.StateRunning)},
		"another bundle's": {foreignJob}, "a noted one": {noted}, "both": {foreignJob, noted},
	} {
		news["sighting of "+name] = seen(2*time.Hour, jobs...)
		news["early sighting of "+name] = seen(time.Second, jobs...)
		news["accounts of "+name] = accounted(2*time.Hour, jobs...)
	}
	news["accounts away"] = plan.News{AccountFailure: "connection refused"}
	stopped := exit(143)
	stopped.Terminated = true
	foreign := exit(0)
	foreign.Token = "token-2"
	for name, n := range map[string]plan.News{
		"none": read(2*time.Hour, nil, nil), "start": read(2*time.Hour, started(), nil), "end": read(2*time.Hour, started(), exit(0)),
		"failure": read(2*time.Hour, started(), exit(3)), "termination": read(2*time.Hour, started(), stopped),
		"end without start": read(2*time.Hour, nil, exit(0)), "foreign end": read(2*time.Hour, started(), foreign),
		"closing": read(2*time.Hour, &spool.Started{Closed: true}, nil), "another attempt": {Records: &plan.Records{Attempt: 7, Records: spool.Records{Started: started(), Exit: exit(0)}}},
		"half": {Records: &plan.Records{Attempt: 1, Records: spool.Records{Started: started()}}, LookFailure: "permission denied"},
	} {
		news["records of "+name] = n
	}
	news["look failed"] = plan.News{LookFailure: "stale file handle"}
	for name, o := range map[string]plan.Outcome{
		"done": {}, "failed": {Failure: "no"}, "failed for good": {Failure: "no", Final: true}, "gone": {Failure: "no", Final: true, Gone: true},
	} {
		news["claim "+name] = plan.News{Claimed: &plan.Claimed{Outcome: o, Accepted: true}}
		news["claim not accepted "+name] = plan.News{Claimed: &plan.Claimed{Outcome: o}}
		news["staging "+name] = plan.News{Staged: &plan.StageEnd{Outcome: o, Inputs: spool.Inputs{Image: "/x.sif"}}}
		news["cancellation "+name] = plan.News{Cancelled: &o}
		news["collection "+name] = plan.News{Collected: &o}
		news["release "+name] = plan.News{Released: &o}
		news["confirmation "+name] = plan.News{Confirmed: &plan.Confirmation{Outcome: o, State: codalab.StateFinalizing}}
	}
	for _, state := range []codalab.State{codalab.StateStaged, codalab.StateRunning, codalab.StateReady, codalab.StateFailed, codalab.StateKilled, "dormant", ""} {
		news["confirmation of "+string(state)] = plan.News{Confirmed: &plan.Confirmation{State: state}}
	}
	for name, s := range map[string]plan.Submission{
		"a job": {Job: 7}, "refusal": {Refused: true, Words: "no"}, "refusal for now": {Refused: true, Retry: true, Words: "busy"}, "nonsense": {Words: "?"},
	} {
		news["submission: "+name] = answered(s)
		s.Attempt = 7
		news["another attempt's submission: "+name] = plan.News{Submitted: &s}
	}
	news["closed"] = closing(spool.Started{Closed: true})
	news["not closed"] = closing(*started())
	news["closing failed"] = plan.News{Closed: &plan.Closing{Attempt: 1, Failure: "no space left on device"}}
	news["nothing to close"] = plan.News{Closed: &plan.Closing{Attempt: 1, Failure: "no such directory", Gone: true}}
	news["another attempt's closing"] = plan.News{Closed: &plan.Closing{Attempt: 7, Standing: spool.Started{Closed: true}}}
	return news
}

// both is two pieces of news that came together.
func both(a, b plan.News) plan.News {
	return plan.News{
		Restarted:      a.Restarted || b.Restarted,
		Messages:       slices.Concat(a.Messages, b.Messages),
		Sighting:       cmp.Or(b.Sighting, a.Sighting),
		Accounted:      cmp.Or(b.Accounted, a.Accounted),
		AccountFailure: a.AccountFailure + b.AccountFailure,
		Records:        cmp.Or(b.Records, a.Records),
		LookFailure:    a.LookFailure + b.LookFailure,
		Claimed:        cmp.Or(b.Claimed, a.Claimed),
		Staged:         cmp.Or(b.Staged, a.Staged),
		Submitted:      cmp.Or(b.Submitted, a.Submitted),
		Closed:         cmp.Or(b.Closed, a.Closed),
		Cancelled:      cmp.Or(b.Cancelled, a.Cancelled),
		Collected:      cmp.Or(b.Collected, a.Collected),
		Confirmed:      cmp.Or(b.Confirmed, a.Confirmed),
		Released:       cmp.Or(b.Released, a.Released),
		Progress:       a.Progress + b.Progress,
	}
}

// sane says what is wrong with a decision.
func sane(now time.Time, before, after plan.Row, effects []plan.Effect) error {
	switch {
	case !slices.Contains(plan.Phases(), after.Phase):
		return fmt.Errorf("unknown phase %q", after.Phase)
	case after.Reason == "":
		return errors.New("no reason")
	case !after.Due.IsZero() && !after.Due.After(now):
		return errors.New("due at once, for ever")
	case before.Verdict != nil && after.Verdict == nil && !before.Dropped:
		return errors.New("verdict is lost")
	case before.Phase == plan.Finalizing && !slices.Contains([]plan.Phase{plan.Finalizing, plan.Done}, after.Phase) &&
		!(after.Phase == plan.Collecting && wants(effects, plan.Claim)): // acknowledged and offered again in one breath
		return fmt.Errorf("left finalizing for %s", after.Phase)
	case after.Attempt < before.Attempt:
		return fmt.Errorf("attempt %d after %d", after.Attempt, before.Attempt)
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
		case e.Kind == plan.Submit && (after.Phase != plan.Submitting || after.Submitted != now || after.Mark == ""):
			return fmt.Errorf("submit wanted in %s, submitted %s", after.Phase, after.Submitted)
		case e.Kind == plan.Cancel && after.Job.ID == 0:
			return fmt.Errorf("cancel of no job")
		case e.Kind == plan.Forget && after.Phase != plan.Done:
			return fmt.Errorf("forget in %s", after.Phase)
		case !reflect.DeepEqual(e.Row, after):
			return fmt.Errorf("effect %s carries another row", e.Kind)
		}
		seen[e.Kind] = true
	}
	return nil
}

func wants(effects []plan.Effect, k plan.Kind) bool {
	return slices.ContainsFunc(effects, func(e plan.Effect) bool { return e.Kind == k })
}

func TestI8NextIsTotal(t *testing.T) {
	t.Parallel()
	news := everyNews()
	names := slices.Sorted(maps.Keys(news))
	const pairs = 300
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
					p := policy()
					p.Accounting = accounting
					now := epoch.Add(2 * time.Hour)
					after, effects := p.Next(now, row, both(news[one], news[two]))
					if err := sane(now, row, after, effects); err != nil {
						t.Fatalf("%s and %s: %v (%s: %s)", one, two, err, after.Phase, after.Reason)
					}
					if !reflect.DeepEqual(row, untouched) {
						t.Fatalf("%s and %s: the argument was changed:\n%s", one, two, gocmp.Diff(untouched, row))
					}
				}
			}
		})
	}
}

// TestI8NothingIsWantedInACircle answers each effect with failure at once, and
// decides a row when it is due: no effect may come round without a pause, and
// nothing is submitted twice without proof. The accounts fail, or answer
// without end what does not help.
func TestI8NothingIsWantedInACircle(t *testing.T) {
	t.Parallel()
	failing := map[plan.Kind]plan.News{
		plan.Claim:   {Claimed: &plan.Claimed{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Stage:   {Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Prepare: {Prepared: &plan.Outcome{Failure: "no"}},
		plan.Submit:  answered(plan.Submission{Words: "timed out"}),
		plan.Look:    {LookFailure: "no"},
		plan.Close:   {Closed: &plan.Closing{Attempt: 1, Failure: "no"}},
		plan.Cancel:  {Cancelled: &plan.Outcome{Failure: "no"}},
		plan.Collect: {Collected: &plan.Outcome{Failure: "no"}},
		plan.Confirm: {Confirmed: &plan.Confirmation{Outcome: plan.Outcome{Failure: "no"}}},
		plan.Release: {Released: &plan.Outcome{Failure: "no"}},
	}
	accounts := map[string]func(now time.Time) plan.News{
		"away":   func(time.Time) plan.News { return plan.News{AccountFailure: "no"} },
		"empty":  func(now time.Time) plan.News { return accounted(now.Sub(epoch)) },
		"behind": func(now time.Time) plan.News { return accounted(now.Sub(epoch), job(sbatch.StateRunning)) },
	}
	for name, row := range everyRow() {
		for state, account := range accounts {
			t.Run(name+", accounts "+state, func(t *testing.T) {
				t.Parallel()
				b := given(t, row).at(2 * time.Hour)
				wanted := map[plan.Kind]int{}
				submits := 0
				pending := []plan.News{{}}
				for pass := range 400 {
					if len(pending) == 0 {
						if b.row.Due.IsZero() {
							break
						}
						b.now = b.row.Due
						clear(wanted)
						pending = append(pending, plan.News{})
					}
					b.hears(pending[0])
					pending = pending[1:]
					for _, k := range b.kinds() {
						if wanted[k]++; wanted[k] > 2 {
							t.Fatalf("pass %d: %s is wanted again and again in %s (%s)", pass, k, b.row.Phase, b.row.Reason)
						}
						answer := failing[k]
						if k == plan.Account {
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

// TestI8NoRowIsStuck answers everything well from the middle of a disorder,
// with Slurm, accounts and disk showing one truth: that there is no job any
// more. Each row has to come to its end.
func TestI8NoRowIsStuck(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		for name, row := range everyRow() {
			if end := drive(t, row, seed); end.row.Phase != plan.Done || !slices.Contains(end.kinds(), plan.Forget) {
				t.Fatalf("%s, seed %d: stuck in %s (%s), due %s", name, seed, end.row.Phase, end.row.Reason, end.row.Due)
			}
		}
	}
}

// drive gives a row some random news and then the truth, until it is
// forgotten.
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
		b.hears(news[names[random.IntN(len(names))]])
	}
	for range 300 {
		if b.row.WaitsForRoom(b.now) {
			b.row = b.policy.Batch(b.now, []plan.Row{b.row}, 1, 0)[0]
		}
		b.hears(plan.News{})
		queue := b.effects
		if b.row.InFlight() {
			b.hears(plan.News{Sighting: &plan.Sighting{Mark: b.row.Mark, Asked: b.now}})
			queue = append(queue, b.effects...)
		}
		for range 50 { // an effect's outcome may want another effect
			if len(queue) == 0 {
				break
			}
			if queue[0].Kind == plan.Forget {
				return b
			}
			b.hears(truth(queue[0], b.now))
			queue = append(queue[1:], b.effects...)
		}
		if b.row.Phase == plan.Finalizing && seed%3 > 0 { // else every acknowledgement is lost
			b.hears(told(ack))
		}
		b.now = b.now.Add(6 * time.Second)
		if b.row.Due.After(b.now) && !b.row.InFlight() {
			b.now = b.row.Due
		}
	}
	return b
}

// truth is the outcome of an effect where there is no job any more, and Slurm
// takes no other.
func truth(e plan.Effect, now time.Time) plan.News {
	var n plan.News
	switch e.Kind {
	case plan.Claim:
		n.Claimed = &plan.Claimed{Accepted: true}
	case plan.Stage:
		n.Staged = &plan.StageEnd{}
	case plan.Prepare:
		n.Prepared = &plan.Outcome{}
	case plan.Submit:
		n.Submitted = &plan.Submission{Attempt: e.Row.Attempt, Refused: true, Words: "no"}
	case plan.Account:
		n.Accounted = &plan.Sighting{Mark: e.Row.Mark, Asked: now}
	case plan.Look:
		n.Records = &plan.Records{Attempt: e.Row.Attempt, Read: now, Records: spool.Records{Started: e.Row.Begun, Exit: e.Row.Exit}}
	case plan.Close:
		n.Closed = &plan.Closing{Attempt: e.Row.Attempt, Standing: spool.Started{Closed: true}}
		if e.Row.Begun != nil {
			n.Closed.Standing = *e.Row.Begun
		}
	case plan.Cancel:
		n.Cancelled = &plan.Outcome{}
	case plan.Collect:
		n.Collected = &plan.Outcome{}
	case plan.Confirm:
		n.Confirmed = &plan.Confirmation{State: codalab.StateReady}
	case plan.Release:
		n.Released = &plan.Outcome{}
	case plan.Forget:
	}
	return n
}
