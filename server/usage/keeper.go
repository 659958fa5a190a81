package usage

import (
	"context"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/hub"
)

// Store has the series of runs, as texts by uuid.
type Store interface {
	Usage(ctx context.Context, uuids []string) (map[string]string, error)
}

// Keeper has the series of the runs that go on. It is safe for concurrent use.
type Keeper struct {
	store Store

	mu   sync.Mutex
	runs map[string]*kept
	// swept is the last time at which the series of runs that nobody reports any more were dropped.
	swept time.Time
}

// kept is a run whose series is in memory.
type kept struct {
	run Run
	// noted is the time of the last report, and saved that at which the store got the series.
	noted, saved time.Time
}

const (
	// savePause is the shortest time between two writes of a run's series, and longestPause bounds the pause, which is a tenth
	// of the time of a longer series.
	savePause    = time.Minute
	longestPause = 10 * time.Minute
	// silence is the time without reports after which a run's series is only in the store.
	silence = 10 * time.Minute
	// mostRuns is the number of runs whose series are in memory, some 20 kB each. Further runs have none until there is room.
	mostRuns = 20_000
)

// NewKeeper returns a Keeper. It reads the series of runs that went on before from the store.
func NewKeeper(in Store) *Keeper { return &Keeper{store: in, runs: map[string]*kept{}} }

// Note adds reports, which arrive now, to the series of their runs.
func (k *Keeper) Note(ctx context.Context, reports []hub.OwnReport, now time.Time) error {
	if err := k.load(ctx, reports, now); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, report := range reports {
		if one := k.runs[report.UUID]; one != nil {
			one.run.add(newSample(report.RunReport, report.Resources.Memory), now)
			one.noted = now
		}
	}
	k.sweep(now)
	return nil
}

// load reads the series that are not in memory. A run whose command has not begun has none.
func (k *Keeper) load(ctx context.Context, reports []hub.OwnReport, now time.Time) error {
	var missing []string
	k.mu.Lock()
	for _, report := range reports {
		if k.runs[report.UUID] == nil && report.ContainerTimeTotal > 0 {
			missing = append(missing, report.UUID)
		}
	}
	k.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	texts, err := k.store.Usage(ctx, missing)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, uuid := range missing {
		if k.runs[uuid] == nil && len(k.runs) < mostRuns { // another check-in may have been quicker
			run, _ := decode(texts[uuid]) // a text that nobody can read is replaced
			k.runs[uuid] = &kept{run: run, saved: now}
		}
	}
	return nil
}

// sweep drops the runs that nobody reports any more. The caller holds mu.
func (k *Keeper) sweep(now time.Time) {
	if now.Sub(k.swept) < silence {
		return
	}
	k.swept = now
	for uuid, one := range k.runs {
		if now.Sub(one.noted) >= silence {
			delete(k.runs, uuid)
		}
	}
}

// ToSave returns the text that the store is to have of a run; empty if that need not be written now. ended is set at
// the end of the run.
func (k *Keeper) ToSave(uuid string, now time.Time, ended bool) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.runs[uuid]
	if one == nil || len(one.run.series.sections) == 0 {
		return ""
	}
	pause := time.Duration(one.run.series.end-one.run.series.start) * time.Second / 10
	if !ended && now.Sub(one.saved) < min(max(pause, savePause), longestPause) {
		return ""
	}
	text, err := one.run.encode()
	if err != nil { // its numbers are finite
		return ""
	}
	return text
}

// Saved notes that the store has got the series of a run. One that has ended is only in the store from now on.
func (k *Keeper) Saved(uuid string, now time.Time, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ended {
		delete(k.runs, uuid)
	} else if one := k.runs[uuid]; one != nil {
		one.saved = now
	}
}

// Of returns how a run used its resources so far.
func (k *Keeper) Of(ctx context.Context, uuid string, limits codalab.UsageLimits) (codalab.Usage, error) {
	if u, ok := k.inMemory(uuid, limits); ok {
		return u, nil
	}
	texts, err := k.store.Usage(ctx, []string{uuid})
	if err != nil {
		return codalab.Usage{}, err
	}
	run, err := decode(texts[uuid])
	return run.show(limits), err
}

func (k *Keeper) inMemory(uuid string, limits codalab.UsageLimits) (codalab.Usage, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.runs[uuid]
	if one == nil {
		return codalab.Usage{}, false
	}
	return one.run.show(limits), true
}
