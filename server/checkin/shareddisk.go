package checkin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// sharesDisk reports whether a worker may read and write on the store's disk.
func (s *CheckIns) sharesDisk(key plan.Worker) bool {
	return s.config.SharedDisk && s.config.Hub.LastCheckIn(key).SharedFileSystem
}

// addLocations adds to a run message the paths of a run's inputs and of its results directory,
// which it creates (codalab/server/bundle_manager.py: _try_start_bundle,
// _construct_run_message). A parent without contents has no path.
func (s *CheckIns) addLocations(ctx context.Context, m *codalab.RunBundle, b store.Bundle) error {
	uuids := make([]string, 0, len(m.Dependencies))
	for _, d := range m.Dependencies {
		uuids = append(uuids, d.ParentUUID)
	}
	parents, err := s.config.Store.Bundles(ctx, uuids)
	if err != nil {
		return err
	}
	for i, d := range m.Dependencies {
		if dir := s.config.Files.DiskPath(parents[d.ParentUUID]); dir != "" {
			m.Dependencies[i].Location = &dir
		}
	}
	results, err := s.config.Store.MakeResults(b)
	m.Location = &results
	return err
}

// adoptions are the walks through results that workers have written into the store. A walk
// flushes and counts the files, so that the results can become a bundle's contents. With many
// files it takes longer than a check-in may wait, so it goes on beyond the check-in that began
// it.
type adoptions struct {
	walks sync.WaitGroup

	mu     sync.Mutex
	byName map[string]*adoption
	// missing has the times at which the server first found no results, by directory.
	missing map[string]time.Time
}

// adoption is one walk. Its other fields are set before done is closed.
type adoption struct {
	done  chan struct{}
	size  int64
	found bool
	err   error
}

const (
	// adoptWait is the time for which a check-in waits for walks. Its worker reports the end again
	// later.
	adoptWait = 2 * time.Second
	// adoptLate is the time within which a network disk must show the results of a command that has
	// run. After that the run has none.
	adoptLate = time.Minute
)

// adopt looks for the results of the runs whose end a worker reports. It removes from reports
// the runs whose results are not complete yet. It returns the sizes of the results found, by
// the name of their directory.
func (s *CheckIns) adopt(ctx context.Context, key plan.Worker, reports map[string]codalab.RunReport) (map[string]int64, error) {
	var ended []string
	for uuid, run := range reports {
		if run.State == codalab.StateFinalizing {
			ended = append(ended, uuid)
		}
	}
	if len(ended) == 0 {
		return nil, nil
	}
	shares := s.sharesDisk(key)
	bundles, err := s.config.Store.Bundles(ctx, ended)
	if err != nil {
		return nil, err
	}
	under := map[string]*adoption{}
	for uuid, b := range bundles {
		if plan.Worker(b.Worker) == key && b.State.OnWorker() && b.Contents == "" {
			under[uuid] = s.adoptions.begin(s.config.Store, b)
		}
	}
	sizes := map[string]int64{}
	timer := time.NewTimer(adoptWait)
	defer timer.Stop()
	for uuid, a := range under {
		select {
		case <-a.done:
		case <-timer.C:
			timer.Reset(0) // wait for no other walk either
			delete(reports, uuid)
			continue
		}
		name := bundles[uuid].ResultsName()
		ran := shares && (reports[uuid].ExitCode != nil || bundles[uuid].State == codalab.StateRunning)
		switch late := s.adoptions.end(name, a.found || !ran, s.config.Now()); {
		case a.err != nil:
			s.failures.LogError(ctx, "adopt results of bundle "+uuid, a.err)
			delete(reports, uuid)
		case a.found:
			sizes[name] = a.size
		case ran && late < adoptLate:
			delete(reports, uuid)
		}
	}
	return sizes, nil
}

// begin returns the adoption of a run's results, and starts its walk unless it has begun.
func (a *adoptions) begin(data *store.Store, b store.Bundle) *adoption {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := b.ResultsName()
	if walk := a.byName[name]; walk != nil {
		return walk
	}
	walk := &adoption{done: make(chan struct{})}
	a.byName[name] = walk
	a.walks.Go(func() {
		walk.size, walk.err = data.FlushResults(b)
		walk.found = walk.err == nil
		if errors.Is(walk.err, store.ErrNotFound) {
			walk.err = nil // the run has left no results here
		}
		close(walk.done)
	})
	return walk
}

// wait waits for the walks under way.
func (a *adoptions) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.walks.Wait()
}

// end forgets an adoption, and returns the time for which the server has waited for results in vain; 0 if it
// need not wait.
func (a *adoptions) end(name string, settled bool, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
	if settled {
		delete(a.missing, name)
		return 0
	}
	if _, ok := a.missing[name]; !ok {
		a.missing[name] = now
	}
	late := now.Sub(a.missing[name])
	if late >= adoptLate {
		delete(a.missing, name)
	}
	return late
}
