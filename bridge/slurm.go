package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// slurmWatch observes Slurm's jobs, and asks for Slurm's settings.
type slurmWatch struct {
	scheduler sbatch.Scheduler
	settings  func(ctx context.Context) (sbatch.Settings, error) // nil for none
	turns     turnWatch
	limits    *limitWatch
	bridge    string        // the bridge's id
	every     time.Duration // the pause between two snapshots
	// waiting has the times of submission of the waiting tasks of arrays in the last snapshot, which was asked for at asked.
	waiting   map[sbatch.JobID]int64
	asked     time.Time
	inForce   *inForce
	view      *view
	capacity  *capacity
	contact   *contact
	inbox     *inbox
	condition *condition
	log       *slog.Logger
}

// run observes Slurm until ctx ends.
func (w *slurmWatch) run(ctx context.Context, clock func() time.Time) error {
	silent := false
	var last time.Time // when Slurm was last asked
	var settingsDue time.Time
	return every(ctx, w.every, clock, func(now time.Time) {
		if now.Sub(last) < w.pause() {
			return
		}
		last = now
		err := w.observe(ctx, now)
		if ctx.Err() == nil {
			w.condition.slurm(now, err)
		}
		switch {
		case err != nil && !silent && ctx.Err() == nil:
			w.log.WarnContext(ctx, "Slurm does not answer; jobs go on, and nothing is submitted or cancelled", errorAttr(err))
		case err == nil && silent:
			w.log.InfoContext(ctx, "Slurm answers again")
		}
		silent = err != nil
		if err == nil {
			settingsDue = w.askSettings(ctx, now, settingsDue)
			w.turns.askIfDue(ctx, now)
		}
	})
}

// observeIdle is the pause between two snapshots while no row is in flight: only orphan jobs
// can be found then.
const observeIdle = time.Minute

// pause returns the least pause between two snapshots now.
func (w *slurmWatch) pause() time.Duration {
	if w.view.anyInFlight() || !w.contact.observed.Load() {
		return 0
	}
	return observeIdle
}

// observe implements Bridge.Observe.
func (w *slurmWatch) observe(ctx context.Context, now time.Time) error {
	rows := w.view.inFlight()
	snapshot, err := w.scheduler.Observe(ctx, now)
	w.contact.unreachable.Store(err != nil)
	if err != nil {
		return fmt.Errorf("observe the jobs: %w", err)
	}
	found := newJobsByRow(w.bridge, snapshot)
	if snapshot.Asked.Sub(w.asked) < w.recordAge() {
		found.waited = w.waiting
	}
	w.waiting, w.asked = waitingTasks(snapshot), snapshot.Asked
	for _, r := range rows {
		jobs := found.of(r)
		if r.Shows(jobs) {
			continue
		}
		seen := plan.Observation{SubmissionName: r.SubmissionName, Job: r.Job.ID, Asked: snapshot.Asked, Jobs: jobs}
		w.inbox.put(r.Bundle, func(n *plan.News) { n.Observation = &seen })
	}
	w.inbox.putSnapshot(snapshot)
	w.contact.observed.Store(true)
	return nil
}

// recordAge returns the time for which the controller shows an ended job, at least; 0 while that is not known.
func (w *slurmWatch) recordAge() time.Duration {
	age := w.inForce.now().RecordAge
	if s := w.limits.settings.Load(); s != nil {
		age = min(cmp.Or(age, s.MinJobAge), s.MinJobAge)
	}
	return age
}

func waitingTasks(s sbatch.Snapshot) map[sbatch.JobID]int64 {
	waiting := map[sbatch.JobID]int64{}
	for _, j := range s.Jobs {
		if _, _, ok := j.ID.ArrayTask(); ok && j.State == sbatch.StatePending {
			waiting[j.ID] = j.Submitted.Unix()
		}
	}
	return waiting
}

// jobsByRow finds the jobs of a snapshot that may be a row's: each by its name, and by its bundle if
// it has this bridge's comment, since a job can be renamed; and by its id.
type jobsByRow struct {
	named map[string][]sbatch.Job
	all   []sbatch.Job // in the order of their ids
	// arrays has the arrays of which it shows a task, or the array's own record.
	arrays map[arrayKey]bool
	// waited has the times of submission of the tasks that waited in the snapshot before. This snapshot shows those that have begun since,
	// ended ones too; else waited is nil.
	waited map[sbatch.JobID]int64
}

// arrayKey identifies an array. A controller that has lost its state gives out the numbers again, and at another time.
type arrayKey struct {
	number    sbatch.JobID
	submitted int64 // in seconds since 1970: a time that the ledger had stored is not == to the same time from squeue
}

func newJobsByRow(bridge string, s sbatch.Snapshot) jobsByRow {
	found := jobsByRow{make(map[string][]sbatch.Job, len(s.Jobs)), s.Jobs, map[arrayKey]bool{}, nil}
	for _, j := range s.Jobs {
		key := j.Name
		found.arrays[arrayKey{j.ID, j.Submitted.Unix()}] = true // an array has its own record once all waiting tasks were cancelled
		if array, index, ok := j.ID.ArrayTask(); ok {
			found.arrays[arrayKey{array, j.Submitted.Unix()}] = true
			name := j.Name
			if stamp, ok := plan.SharedStampOf(j); ok && stamp.Bridge == bridge {
				name = generationKey(stamp.Generation)
			}
			if len(found.named[name]) == 0 { // one task shows that there is an array
				found.named[name] = append(found.named[name], j)
			}
			key = taskOf(name, index)
		} else if stamp, ok := plan.SharedStampOf(j); ok && stamp.Pack && stamp.Bridge == bridge {
			key = generationKey(stamp.Generation)
		}
		if stamp, ok := plan.StampOf(j); ok && stamp.Bridge == bridge {
			key = stamp.Bundle
		}
		found.named[key] = append(found.named[key], j)
	}
	return found
}

// of returns the jobs that may be the row's, in the order of their ids. Next decides which of them
// are.
func (f jobsByRow) of(r *plan.Row) []sbatch.Job {
	if r.Shared && !r.Pack {
		return f.ofTask(r)
	}
	jobs := f.named[r.Bundle]
	if r.Pack {
		jobs = f.named[generationKey(r.Generation)]
	}
	if other := f.named[string(r.SubmissionName)]; len(other) > 0 {
		jobs = slices.SortedFunc(slices.Values(slices.Concat(jobs, other)), byJobID)
	}
	known := sbatch.Job{ID: r.Job.ID}
	i, shown := slices.BinarySearchFunc(f.all, known, byJobID)
	at, named := slices.BinarySearchFunc(jobs, known, byJobID)
	if !shown || named {
		return jobs
	}
	return slices.Insert(slices.Clone(jobs), at, f.all[i]) // its name is another one
}

// generationKey and taskOf return keys of tasks of arrays in jobsByRow.
func generationKey(generation int64) string { return "generation " + strconv.FormatInt(generation, 10) }

func taskOf(name string, index int) string { return name + " " + strconv.Itoa(index) }

// ofTask returns the jobs that may be those of a row that shares its submission. If there is none, and the row does not know the
// array yet, it returns a job that shows the array.
func (f jobsByRow) ofTask(r *plan.Row) []sbatch.Job {
	var jobs []sbatch.Job
	names := []string{generationKey(r.Generation), string(r.SubmissionName)}
	for _, name := range names {
		jobs = append(jobs, f.named[taskOf(name, r.Index)]...)
	}
	known := sbatch.Job{ID: r.Job.ID}
	if i, ok := slices.BinarySearchFunc(f.all, known, byJobID); ok && r.Job.ID != 0 && !slices.ContainsFunc(jobs, func(j sbatch.Job) bool { return j.ID == r.Job.ID }) {
		jobs = append(jobs, f.all[i]) // its name is another one
	}
	if len(jobs) == 0 && r.Job.ID == 0 {
		for _, name := range names {
			jobs = append(jobs, f.named[name]...)
		}
	}
	if len(jobs) == 0 && f.lostItsTask(r) {
		jobs = append(jobs, r.Job)
		jobs[0].State, jobs[0].Reason = sbatch.StateCancelled, "None"
	}
	slices.SortFunc(jobs, byJobID)
	return jobs
}

// lostItsTask reports whether the row's task was cancelled while it waited. Slurm keeps no record of such a task: it waited in the snapshot
// before, and is only missing beside the others (sbatch.Client.Observe).
func (f jobsByRow) lostItsTask(r *plan.Row) bool {
	array, _, ok := r.Job.ID.ArrayTask()
	submitted, waited := f.waited[r.Job.ID]
	return ok && waited && submitted == r.Job.Submitted.Unix() && r.Begun == nil && r.NoJobSince.IsZero() && f.arrays[arrayKey{array, submitted}]
}

// accountedJobs finds the jobs of an answer of the accounting database that may be a row's: by their ids, and by their names. Its
// records have no comments, and a job may have several.
type accountedJobs struct {
	jobs []sbatch.Job // in the order of the answer
	// ids and names have places in jobs. The name of a task is that of taskOf.
	ids   map[sbatch.JobID][]int
	names map[string][]int
	// arrays has for the name of an array one job that shows it: one that has not ended, if there is any.
	arrays map[string]int
}

func newAccountedJobs(jobs []sbatch.Job) accountedJobs {
	a := accountedJobs{jobs, make(map[sbatch.JobID][]int, len(jobs)), make(map[string][]int, len(jobs)), map[string]int{}}
	for i, j := range jobs {
		a.ids[j.ID] = append(a.ids[j.ID], i)
		name := j.Name
		if _, index, ok := j.ID.ArrayTask(); ok {
			name = taskOf(name, index)
		}
		a.names[name] = append(a.names[name], i)
		if shown, ok := a.arrays[j.Name]; !ok || jobs[shown].State.Ended() && !j.State.Ended() {
			a.arrays[j.Name] = i
		}
	}
	return a
}

// of returns the jobs that may be the row's, in the order of the answer. A row that shares its submission gets those of its own
// task; if there is none, and the row does not know the array yet, it gets a job that shows the array.
func (a accountedJobs) of(r *plan.Row) []sbatch.Job {
	name := string(r.SubmissionName)
	key := name
	if r.Shared && !r.Pack {
		key = taskOf(name, r.Index)
	}
	places := a.names[key]
	if r.Job.ID != 0 {
		places = slices.Concat(places, a.ids[r.Job.ID])
		slices.Sort(places)
		places = slices.Compact(places)
	}
	if shown, ok := a.arrays[name]; ok && len(places) == 0 && r.Shared && !r.Pack && r.Job.ID == 0 {
		places = []int{shown}
	}
	var jobs []sbatch.Job
	for _, i := range places {
		jobs = append(jobs, a.jobs[i])
	}
	return jobs
}

func byJobID(a, b sbatch.Job) int { return cmp.Compare(a.ID, b.ID) }

// Settings are asked for after an answer of squeue: again each hour, since an administrator may
// change them, and each minute while there is no answer.
const (
	settingsEvery = time.Hour
	settingsRetry = time.Minute
)

// askSettings implements Bridge.AskSettings.
func (w *slurmWatch) askSettings(ctx context.Context, now, due time.Time) time.Time {
	if w.settings == nil || now.Before(due) {
		return due
	}
	s, err := w.settings(ctx)
	if ctx.Err() != nil {
		return due
	}
	w.condition.settings(s, err)
	if err != nil {
		w.log.WarnContext(ctx, "Slurm's settings are not known; safe values are used", errorAttr(err))
		return now.Add(settingsRetry)
	}
	w.turns.hidden = s.PrivateJobs
	w.limits.settings.Store(&s)
	w.inbox.putSettings(s)
	w.capacity.setComplete(!s.Elastic)
	return now.Add(settingsEvery)
}
