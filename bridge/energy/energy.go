package energy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const (
	// passEvery is the pause between two passes, and tick that between two looks whether Slurm's settings are known, so
	// that a bridge that runs for seconds makes a pass. Nothing is asked while no attempt has ended.
	passEvery, tick = 15 * time.Second, time.Second
	// settledAfter is the time from the end of an attempt to the first question. If the database has no energy of a job then,
	// the next question comes after firstPause, and each later one after twice the pause. The bundle is given up after
	// givenUpAfter. slurmctld may send the energy after the end of the job (Slurm src/stepmgr/stepmgr.c:
	// _internal_step_complete), and some nodes of a site may have no sensor.
	settledAfter, firstPause, givenUpAfter = 3 * time.Second, 15 * time.Second, 15 * time.Minute
	// lookBack is the time before a start of the bridge whose bundles are told once more, and the longest time for which a
	// bundle waits during an outage of the database or the server.
	lookBack = 24 * time.Hour
	// atOnce bounds the bundles of one sacct, and mostBatches the questions of one pass.
	atOnce, mostBatches = 100, 5
)

// Charges are the ends of attempts in the ledger. *ledger.Reader documents the methods.
type Charges interface {
	EachCharge(ctx context.Context, since, until time.Time, do func(ledger.Charge) error) error
	ChargesOf(ctx context.Context, bundles ...string) ([]ledger.Charge, error)
}

// Watch tells the server the energy of runs. All exported fields are required, and set before the first call. Note,
// Follow and Run may be called at the same time.
type Watch struct {
	Charges Charges
	// Ask asks the accounting database for jobs (sbatch.Client.QueryChargesOf).
	Ask func(ctx context.Context, since time.Time, ids ...sbatch.JobID) ([]sbatch.Charge, error)
	// Tell tells the server (client.Client.TellEnergy). The error is an errors.ErrUnsupported if it keeps no energy.
	Tell func(ctx context.Context, worker string, runs []codalab.RunEnergy) error
	// WorkerID returns the id of a queue's worker.
	WorkerID func(queue string) string
	Now      func() time.Time
	Log      *slog.Logger

	mu       sync.Mutex
	measured bool              // by Slurm
	useless  bool              // the server keeps no energy
	wanted   map[string]wanted // the bundles whose energy is to be told

	recalled bool // the bundles of lookBack are in wanted; only Pass uses it
}

// wanted is a bundle whose last attempt has ended at a time, with the time of the next question and the pause after it.
type wanted struct {
	since, next time.Time
	pause       time.Duration
}

// Follow follows Slurm's settings: nothing is asked or told where Slurm measures no energy.
func (w *Watch) Follow(s sbatch.Settings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measured = s.Energy
}

// Note notes a decision, which may have ended an attempt. It is for bridge.Config.Count.
func (w *Watch) Note(before, after *plan.Row) {
	if ended(before) != ended(after) && w.isNeeded() {
		w.want(after.Bundle, w.Now())
	}
}

// ended returns the generation of the last attempt of a row that has ended; 0 for none.
func ended(r *plan.Row) int64 {
	if c, ok := r.Charge(); ok {
		return c.Generation
	}
	if last := r.Spent.Last; last != nil {
		return last.Generation
	}
	return 0
}

func (w *Watch) want(bundle string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted == nil {
		w.wanted = map[string]wanted{}
	}
	if since.After(w.wanted[bundle].since) {
		w.wanted[bundle] = wanted{since, since.Add(settledAfter), firstPause}
	}
}

// Run makes a pass now and then until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var last time.Time
	failing := false
	for pause.For(ctx, tick) == nil {
		if !w.isNeeded() || w.Now().Sub(last) < passEvery {
			continue
		}
		last = w.Now()
		err := w.Pass(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "the energy of runs is not told to the server; it is tried again", slog.Any("error", err))
		}
		failing = err != nil
	}
}

// Pass tells the energy of the bundles that have ended since the last one. After an error it has told some, and the next
// pass tells the others.
func (w *Watch) Pass(ctx context.Context) error {
	if !w.isNeeded() {
		return nil
	}
	if err := w.recall(ctx); err != nil {
		return err
	}
	batches := 0
	for bundles := range slices.Chunk(w.due(), atOnce) {
		if batches++; batches > mostBatches {
			break
		}
		if err := w.tell(ctx, bundles); err != nil {
			return err
		}
	}
	return nil
}

// isNeeded reports whether Slurm measures energy, and the server keeps it.
func (w *Watch) isNeeded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.measured && !w.useless
}

// giveUp gives the server up, which keeps no energy.
func (w *Watch) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useless, w.wanted = true, nil
}

// recall wants the bundles that ended before the start of the bridge, or before Slurm's settings were known, once.
func (w *Watch) recall(ctx context.Context) error {
	if w.recalled {
		return nil
	}
	now := w.Now()
	err := w.Charges.EachCharge(ctx, now.Add(-lookBack), now, func(c ledger.Charge) error {
		w.want(c.Bundle, c.Ended)
		return nil
	})
	w.recalled = err == nil
	return err
}

// due returns the bundles for which the accounting database is to be asked now. Those that have ended last come first: a pass
// of run --once has no time for all that it recalls. Those that have waited for longer than lookBack are given up.
func (w *Watch) due() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	var due []string
	for bundle, when := range w.wanted {
		switch {
		case now.Sub(when.since) > lookBack:
			delete(w.wanted, bundle)
		case !when.next.After(now):
			due = append(due, bundle)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		left, right := w.wanted[a], w.wanted[b]
		return cmp.Or(right.since.Compare(left.since), left.next.Compare(right.next), cmp.Compare(a, b))
	})
	return due
}

// tell tells the energy of some bundles. Those of which the database does not have the energy of all jobs stay wanted for a
// while.
func (w *Watch) tell(ctx context.Context, bundles []string) error {
	began := w.Now()
	charges, err := w.Charges.ChargesOf(ctx, bundles...)
	if err != nil {
		return err
	}
	known, err := w.ask(ctx, charges)
	if err != nil {
		return err
	}
	sums := sumUp(charges, known)
	byQueue, missing := map[string][]codalab.RunEnergy{}, map[string]bool{}
	for _, bundle := range bundles {
		sum, saved := sums[bundle]
		if sum.joules > 0 {
			byQueue[sum.queue] = append(byQueue[sum.queue], codalab.RunEnergy{UUID: bundle, Joules: sum.joules})
		}
		missing[bundle] = sum.missing || !saved // the decision that ended it may not be saved yet
	}
	for _, queue := range slices.Sorted(maps.Keys(byQueue)) {
		if err := w.tellQueue(ctx, queue, byQueue[queue]); err != nil {
			return err
		}
	}
	w.settle(bundles, missing, began)
	return nil
}

// tellQueue tells the energy of runs of a queue. It returns an error that may go away. A refusal that would be repeated must
// not hold the other queues up.
func (w *Watch) tellQueue(ctx context.Context, queue string, runs []codalab.RunEnergy) error {
	err := w.Tell(ctx, w.WorkerID(queue), runs)
	refused, ok := errors.AsType[*codalab.Error](err)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		w.giveUp()
		w.Log.InfoContext(ctx, "this server keeps no energy of runs; cl-bridge report has it")
		return nil
	case ok && !refused.Transient():
		w.Log.WarnContext(ctx, "the server refuses the energy of runs; cl-bridge report has it", slog.String("queue", queue), slog.Any("error", err))
		return nil
	}
	return err
}

// ask asks for the jobs of charges.
func (w *Watch) ask(ctx context.Context, charges []ledger.Charge) ([]sbatch.Charge, error) {
	var ids []sbatch.JobID
	since := w.Now()
	for _, c := range charges {
		if c.Job > 0 && !c.Pack {
			ids = append(ids, c.Job)
		}
		if c.Submitted.Before(since) {
			since = c.Submitted
		}
	}
	slices.Sort(ids)
	return w.Ask(ctx, since.Add(-time.Hour), slices.Compact(ids)...) // clocks differ
}

// energySum is the energy of a bundle's attempts.
type energySum struct {
	queue  string // of the last attempt
	joules int64
	// missing is set if the database has no energy of an attempt.
	missing bool
}

// sumUp adds the energy of the allocations of each bundle's jobs.
func sumUp(charges []ledger.Charge, known []sbatch.Charge) map[string]energySum {
	byJob := map[sbatch.JobID][]sbatch.Charge{}
	for _, k := range known {
		byJob[k.ID] = append(byJob[k.ID], k)
	}
	sums := map[string]energySum{}
	for _, c := range charges {
		sum, found := sums[c.Bundle], c.Job == 0 || c.Pack // Slurm measures jobs
		sum.queue = c.Queue
		for _, k := range byJob[c.Job] {
			if c.Has(k) {
				sum.joules, found = sum.joules+k.EnergyJoules, found || k.EnergyJoules > 0
			}
		}
		sum.missing = sum.missing || !found
		sums[c.Bundle] = sum
	}
	return sums
}

// settle wants bundles no more, unless an attempt of theirs has ended since a pass began, or the energy of one is missing
// that the database may still get.
func (w *Watch) settle(bundles []string, missing map[string]bool, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, bundle := range bundles {
		when := w.wanted[bundle]
		switch {
		case when.since.After(began):
		case missing[bundle] && began.Sub(when.since) < givenUpAfter:
			w.wanted[bundle] = wanted{when.since, began.Add(when.pause), 2 * when.pause}
		default:
			delete(w.wanted, bundle)
		}
	}
}
