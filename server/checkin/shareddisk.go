package checkin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// sharesDisk reports whether a worker may read and write on the store's disk.
func (s *CheckIns) sharesDisk(key plan.Worker) bool {
	return s.config.SharedDisk && s.config.Hub.LastCheckIn(key).SharedFileSystem
}

// addLocations adds to a run message the locations of a run's inputs and of its results. It creates the
// latter (codalab/server/bundle_manager.py: _try_start_bundle,
// _construct_run_message). A parent without contents has none.
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
	location, err := s.config.Store.MakeLocation(b)
	m.Location = &location
	return err
}

// resultsWalks are the walks through results that workers have written into the store. A walk
// flushes and counts the files, so that the results can become a bundle's contents. With many
// files it takes longer than a check-in may wait, so it goes on beyond the check-in that began
// it.
type resultsWalks struct {
	underWay sync.WaitGroup

	mu     sync.Mutex
	byName map[string]*resultsWalk
	// missing has the times at which the server first found no results, by directory.
	missing map[string]time.Time
}

// resultsWalk is one walk. Its other fields are set before done is closed.
type resultsWalk struct {
	done   chan struct{}
	extent codalab.Extent
	found  bool
	err    error
}

const (
	// walkPatience is the time for which a check-in waits for walks. Its worker reports the end again
	// later.
	walkPatience = 2 * time.Second
	// showPatience is the time within which a network disk must show the results of a command that has
	// run. After that the run has none.
	showPatience = time.Minute
)

// takeResults looks for the results of the runs whose end a worker reports. It removes from reports
// the runs whose results are not complete yet. It returns the extents of the results found, by
// the name of their directory.
func (s *CheckIns) takeResults(ctx context.Context, key plan.Worker, reports map[string]codalab.RunReport) (map[string]codalab.Extent, error) {
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
	walking := map[string]*resultsWalk{}
	for uuid, b := range bundles {
		if plan.Worker(b.Worker) == key && b.State.OnWorker() && b.Contents == "" {
			walking[uuid] = s.walks.begin(s.config.Store, b)
		}
	}
	extents := map[string]codalab.Extent{}
	timer := time.NewTimer(walkPatience)
	defer timer.Stop()
	for uuid, walk := range walking {
		select {
		case <-walk.done:
		case <-timer.C:
			timer.Reset(0) // wait for no other walk either
			delete(reports, uuid)
			continue
		}
		name := bundles[uuid].LocationName()
		ran := shares && (reports[uuid].ExitCode != nil || bundles[uuid].State == codalab.StateRunning)
		switch missing := s.walks.end(name, walk.found || !ran, s.config.Now()); {
		case walk.err != nil:
			failures.Log(ctx, s.config.Log, "take results of bundle "+uuid, walk.err)
			delete(reports, uuid)
		case walk.found:
			extents[name] = walk.extent
		case ran && missing < showPatience:
			delete(reports, uuid)
		}
	}
	return extents, nil
}

// begin returns the walk through a run's results, and starts it unless it has started.
func (v *resultsWalks) begin(data *store.Store, b store.Bundle) *resultsWalk {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := b.LocationName()
	if walk := v.byName[name]; walk != nil {
		return walk
	}
	walk := &resultsWalk{done: make(chan struct{})}
	v.byName[name] = walk
	v.underWay.Go(func() {
		walk.extent, walk.err = data.FlushLocation(b)
		walk.found = walk.err == nil
		if errors.Is(walk.err, store.ErrNotFound) {
			walk.err = nil // the run has left no results here
		}
		close(walk.done)
	})
	return walk
}

// wait waits for the walks under way.
func (v *resultsWalks) wait() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.underWay.Wait()
}

// end forgets a walk, and returns the time for which the server has waited for results in vain; 0 if it
// need not wait.
func (v *resultsWalks) end(name string, settled bool, now time.Time) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byName, name)
	if settled {
		delete(v.missing, name)
		return 0
	}
	if _, ok := v.missing[name]; !ok {
		v.missing[name] = now
	}
	missing := now.Sub(v.missing[name])
	if missing >= showPatience {
		delete(v.missing, name)
	}
	return missing
}
