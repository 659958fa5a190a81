package usage

import (
	"context"
	"log/slog"
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
	log   *slog.Logger

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
	// The pause between two writes of a run's series is half of the series' time, within these bounds.
	shortestPause = time.Minute
	longestPause  = 9 * time.Minute
	// silence is the time without reports after which a run's series is only in the store.
	silence = 10 * time.Minute
	// mostRuns is the number of runs whose series are in memory: 200 MB, for a series of 240 sections takes at most 10 kB. Further
	// runs have none until there is room.
	mostRuns = 20_000
)

// NewKeeper returns a Keeper. It reads the series of runs that went on before from the store.
func NewKeeper(in Store, log *slog.Logger) *Keeper {
	return &Keeper{store: in, log: log, runs: map[string]*kept{}}
}

// read returns the run that the store has as a text. It knows nothing of one whose text it cannot read, such as that of an older
// server: what a run has used is worth no failure of its page.
func (k *Keeper) read(ctx context.Context, uuid, text string) Run {
	run, err := decode(text)
	if err != nil {
		k.log.LogAttrs(ctx, slog.LevelDebug, "cannot read the usage of a run", slog.String("bundle", uuid), slog.String("error", err.Error()))
		return Run{}
	}
	return run
}

// Note adds reports, which arrive now, to the series of their runs.
func (k *Keeper) Note(ctx context.Context, reports []hub.OwnReport, now time.Time) error {
	missing := k.noteKnown(reports, now)
	if len(missing) == 0 {
		return nil
	}
	uuids := make([]string, 0, len(missing))
	for _, report := range missing {
		uuids = append(uuids, report.UUID)
	}
	texts, err := k.store.Usage(ctx, uuids)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, report := range missing {
		if k.runs[report.UUID] == nil && len(k.runs) < mostRuns { // another check-in may have been quicker
			k.runs[report.UUID] = &kept{run: k.read(ctx, report.UUID, texts[report.UUID]), saved: now}
		}
	}
	k.note(missing, now)
	return nil
}

// noteKnown adds reports to the series that are in memory, and returns the other ones. A run whose command has not begun needs
// no series yet.
func (k *Keeper) noteKnown(reports []hub.OwnReport, now time.Time) []hub.OwnReport {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep(now)
	return k.note(reports, now)
}

// note adds reports to the series that are in memory, and returns the other ones of commands that have begun. The caller holds
// mu.
func (k *Keeper) note(reports []hub.OwnReport, now time.Time) (missing []hub.OwnReport) {
	for _, report := range reports {
		if one := k.runs[report.UUID]; one != nil {
			one.run.add(newSample(report.RunReport, report.Memory), now)
			one.noted = now
		} else if report.ContainerTimeTotal > 0 {
			missing = append(missing, report)
		}
	}
	return missing
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
	lasts := time.Duration(one.run.series.end-one.run.series.start) * time.Second
	if !ended && now.Sub(one.saved) < min(max(lasts/2, shortestPause), longestPause) {
		return ""
	}
	return one.run.encode()
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
	run := k.read(ctx, uuid, texts[uuid])
	return run.show(limits), nil
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
