package plan_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// world replaces the bridge in a scenario: it has one row, the bridge's other state, and the clock.
type world struct {
	policy plan.Policy
	now    time.Time
	// row is nil before the bundle was offered and after it was forgotten.
	row *plan.Row
	// saved is the row before the last decision, nil for none.
	saved      *plan.Row
	generation int64
	orphans    plan.OrphanJobs
	// running has the effects that were wanted and have not ended.
	running map[effectKey]bool
	// news is the news of this step; nil for none.
	news   *plan.News
	out    strings.Builder
	record func(move)
	// low is the last measurement of the shared disk: plan.LowWater.Lack.
	low string
	// quiet turns the output off.
	quiet bool
}

type effectKey struct {
	kind    plan.Kind
	attempt int
}

func newWorld() *world {
	return &world{policy: policy(), now: epoch, running: map[effectKey]bool{}}
}

func (w *world) printf(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(&w.out, format+"\n", args...)
	}
}

// command runs one line of a step.
func (w *world) command(line []string) error {
	a := arguments{words: line[1:]}
	var err error
	switch line[0] {
	case "policy":
		err = w.setPolicy(&a)
	case "row":
		err = w.setRow(&a)
	case "disk":
		err = w.disk(&a)
	case "batch":
		err = w.batch()
	case "tick":
		err = w.tick(a.length(a.next()))
	case "crash":
		err = w.crash(&a)
	case "report":
		w.report()
	case "orphans":
		w.findOrphans(&a)
	case "message":
		err = w.message(&a)
	case "unanswered":
		w.stepNews().Unanswered = true
	case "give-back":
		w.stepNews().GiveBack = true
	case "leave":
		w.stepNews().GiveBack, w.stepNews().Leave = true, true
	case "restaged":
		w.stepNews().Restaged = true
	case "slurm":
		w.slurm(&a)
	case "accounting":
		w.accounting(&a)
	case "remark":
		w.stepNews().AddRemark(a.get("text"))
	case "note":
		err = w.note(&a)
	case "answer":
		err = w.answer(&a)
	default:
		return fmt.Errorf("unknown command %q", line[0])
	}
	return errors.Join(err, a.unused())
}

// stepNews returns the news of this step; callers add to it.
func (w *world) stepNews() *plan.News {
	if w.news == nil {
		w.news = &plan.News{}
	}
	return w.news
}

// flush decides the row, if the step brought news.
func (w *world) flush() error {
	if n := w.news; n != nil {
		w.news = nil
		if n.Observation != nil && w.row != nil && len(newsNames(*n)) == 1 && w.row.Shows(n.Observation.Jobs) {
			w.printf("at %s: Slurm shows nothing new", clock(w.now)) // the bridge does not decide the row either
			return nil
		}
		return w.decide(*n)
	}
	if w.out.Len() == 0 {
		w.printf("at %s: not due", clock(w.now))
	}
	return nil
}

func (w *world) decide(n plan.News) error {
	if w.row == nil {
		w.printf("there is no row for it")
		return nil
	}
	before := *w.row
	told, idle := n, plan.News{}
	if w.low != "" || before.DiskLow != "" { // like the bridge while a row waits
		told.DiskLow, idle.DiskLow = &w.low, &w.low
	}
	after, effects := w.policy.Next(w.now, before, told)
	if err := errors.Join(sane(w.now, before, after, effects), w.promised(before, after, n, effects)); err != nil {
		return err
	}
	m := moveOf(before, after, n, effects)
	if m.mattered = !before.Same(after) || len(effects) > 0; m.mattered && !slices.Equal(m.news, []string{"time"}) {
		silent, wanted := w.policy.Next(w.now, before, idle)
		m.mattered = !silent.Same(after) || !slices.Equal(m.wants, moveOf(before, silent, plan.News{}, wanted).wants)
	}
	w.record(m)
	w.saved, w.row, w.generation = &before, &after, max(w.generation, after.Generation)
	if after.Phase != before.Phase { // long effects end with their phase
		delete(w.running, effectKey{plan.Stage, after.Attempt.Number})
		delete(w.running, effectKey{plan.Collect, after.Attempt.Number})
	}
	var wanted []string
	for _, e := range effects {
		key, text := effectKey{e.Kind, after.Attempt.Number}, string(e.Kind)
		if w.running[key] {
			text += " (runs already)"
		}
		w.running[key] = true
		wanted = append(wanted, text)
	}
	w.show(before, after, wanted)
	if slices.Contains(wanted, string(plan.Forget)) {
		w.row = nil
	}
	return nil
}

// promised returns the promise that a decision breaks, as an error.
func (w *world) promised(before, after plan.Row, n plan.News, effects []plan.Effect) error {
	notStarted := before.Exit != nil && before.Exit.NotStarted || n.Records != nil && n.Records.Exit != nil && n.Records.Exit.NotStarted
	submits := wants(effects, plan.Submit)
	retried := after.Phase == plan.Staging && before.Attempt.Number > 0 && before.SubmissionName != "" && after.SubmissionName == ""
	switch {
	case submits && !before.SubmittedAt.IsZero() && w.now.Sub(before.SubmittedAt) <= w.policy.SubmitGrace:
		return errors.New("I2: submitted again within the grace")
	case submits && (before.Job.ID != 0 || before.Begun != nil):
		return errors.New("I2: submitted again though there is a job")
	case after.Resumption.Count > asked(before):
		return errors.New("a bundle is resumed more often than it asks for")
	case retried && before.Begun != nil && !notStarted && asked(before) > 0 && (after.Resumption.From != before.OnDisk || after.Resumption.Copied != 0):
		return errors.New("a bundle that asks to be resumed begins again without its files")
	case submits && after.Resumption.From != "" && after.Resumption.Copied != after.Attempt.Number:
		return errors.New("an attempt is submitted before it has its files")
	case retried && before.Begun != nil && !notStarted && asked(before) == 0 && w.policy.Queues[before.Queue].RetryBegun != plan.RetryOnPlatform:
		return errors.New("I4: a begun bundle begins again")
	case !before.Times.Finalizing.IsZero() && !before.Dropped && before.Verdict != nil && !reflect.DeepEqual(before.Verdict, after.Verdict):
		return errors.New("I7: a reported verdict changed")
	}
	return nil
}

// asked returns how often a bundle may be resumed.
func asked(r plan.Row) int {
	n, _ := r.Run.Metadata.Resumes() // a wrong number is no request
	return n
}

// tick lets time pass.
func (w *world) tick(d time.Duration) error {
	end := w.now.Add(d)
	for range 100 {
		if w.row == nil || w.row.DueAt.IsZero() || w.row.DueAt.After(end) {
			break
		}
		if w.row.DueAt.After(w.now) {
			w.now = w.row.DueAt
		}
		if err := w.decide(plan.News{}); err != nil {
			return err
		}
	}
	w.now = end
	return nil
}

// crash ends the bridge and starts it again with the rows of its ledger.
func (w *world) crash(a *arguments) error {
	if a.flag("unsaved") {
		w.row = w.saved
		if w.row != nil { // the ledger's last number can only be this row's
			w.generation = w.row.Generation
		}
	}
	clear(w.running)
	w.now = w.now.Add(a.length(a.get("down")))
	w.now = w.now.Add(a.length(a.get("clock")))
	if w.row == nil {
		w.printf("no row")
		return nil
	}
	document, err := json.Marshal(w.row)
	if err != nil {
		return err
	}
	r := plan.Row{Version: w.row.Version}
	if err := json.Unmarshal(document, &r); err != nil {
		return err
	}
	if diff := w.compare(*w.row, r); diff != "" {
		w.printf("lost:%s", diff)
	}
	w.row = &r
	w.stepNews().Restarted = true
	return nil
}

// batch submits the row, if it waits for that.
func (w *world) batch() error {
	if w.row == nil || !w.row.WaitsToSubmit(w.now) {
		w.printf("the row does not wait for room")
		return nil
	}
	row := w.policy.NewAttempt(w.now, *w.row, w.generation+1)
	before := *w.row
	w.record(moveOf(before, row, plan.News{}, nil).on("room"))
	w.show(before, row, nil)
	w.row = &row
	err := w.decide(plan.News{})
	w.saved = &before // batch and decision are one save
	return err
}

func (w *world) report() {
	if w.row == nil || !w.row.Reportable() {
		w.printf("nothing is reported")
		return
	}
	run := w.row.Report("worker")
	w.printf("%s on %s: %s", run.State, run.Remote, run.RunStatus)
	if run.FailureMessage != nil {
		w.printf("  failure: %s", *run.FailureMessage)
	}
}

func (w *world) findOrphans(a *arguments) {
	j := w.job(a)
	attempt := a.number(cmp.Or(a.get("attempt"), "1"))
	j.Name = string(w.submission(attempt))
	j.Comment = fmt.Sprintf("codalab bundle=%s attempt=%d owner=1 bridge=%s", uuid, attempt, cmp.Or(a.get("bridge"), w.policy.Bridge))
	if g := a.get("generation"); g != "" {
		j.Comment += " generation=" + g
	}
	row := func(string) *plan.Row { return w.row }
	found, overdue, err := w.policy.OrphanJobs(w.now, sbatch.Snapshot{Asked: w.now, Jobs: []sbatch.Job{j}}, row, noTask, w.generation, w.orphans)
	if stamp, ok := plan.StampOf(j); ok && err == nil && len(found) > 0 && w.row != nil && w.row.MayTakeUp(stamp) {
		w.stepNews().Found = &plan.Found{Stamp: stamp, Job: j}
		return
	}
	w.orphans = found
	switch {
	case err != nil:
		w.printf("at %s: the bridge stops: %v", clock(w.now), err)
	case len(found) == 0:
		w.printf("at %s: no orphans", clock(w.now))
	case len(overdue) == 0:
		w.printf("at %s: job %s has been an orphan since %s", clock(w.now), j.ID, clock(found[j.ID]))
	default:
		w.printf("at %s: job %s has been an orphan since %s, and is cancelled", clock(w.now), j.ID, clock(found[j.ID]))
	}
}
