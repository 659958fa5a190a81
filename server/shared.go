package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// sharesDisk says whether a worker reads and writes the store's disk itself.
func (s *Server) sharesDisk(key store.Worker) bool {
	if !s.SharedDisk {
		return false
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	w, ok := s.hub.workers[key]
	return ok && w.info.SharedFileSystem
}

// addPlaces tells a worker that shares the disk where a run's inputs lie and where its results
// go, which it makes (codalab/server/bundle_manager.py: _try_start_bundle,
// _construct_run_message). A parent without contents has no place.
func (s *Server) addPlaces(ctx context.Context, m *codalab.RunBundle, b store.Bundle) error {
	uuids := make([]string, 0, len(m.Dependencies))
	for _, d := range m.Dependencies {
		uuids = append(uuids, d.ParentUUID)
	}
	parents, err := s.store.Bundles(ctx, uuids)
	if err != nil {
		return err
	}
	for i, d := range m.Dependencies {
		if place := s.placeOf(parents[d.ParentUUID]); place != "" {
			m.Dependencies[i].Location = &place
		}
	}
	place, err := s.store.MakeResults(b)
	m.Location = &place
	return err
}

// placeOf is where a bundle's contents lie; empty for one that has none, and for a link that
// leads elsewhere than this server reads: whoever makes a link is not to choose what a worker
// mounts.
func (s *Server) placeOf(b store.Bundle) string {
	link := b.Metadata.String("link_url")
	if link == "" {
		return s.store.ContentsPlace(b)
	}
	if place, _, ok := s.linkRoot(link); ok {
		return place
	}
	return ""
}

// adoptions are the results that workers have put into the store themselves, on their way to
// be bundles' contents: large ones take longer to be flushed and counted than a check-in is to
// wait.
type adoptions struct {
	mu     sync.Mutex
	byName map[string]*adoption
	// missing is since when results have been looked for in vain.
	missing map[string]time.Time
}

// adoption is one of them. What it found is written before done is closed.
type adoption struct {
	done  chan struct{}
	size  int64
	found bool
	err   error
}

const (
	// adoptWait is how long a check-in waits for what it reports to be adopted. The worker
	// reports it again.
	adoptWait = 2 * time.Second
	// adoptLate is how late a network disk may show the results of a command that has run.
	// After that it left none.
	adoptLate = time.Minute
)

// adopt finds what a worker has put into the store of the runs that it reports as ended, and
// takes those of which that is not known yet out of the reports. It returns the sizes of what
// was found, by the name of its place.
func (s *Server) adopt(ctx context.Context, key store.Worker, reports map[string]codalab.Run) (map[string]int64, error) {
	var ended []string
	for uuid, run := range reports {
		if run.State == codalab.StateFinalizing {
			ended = append(ended, uuid)
		}
	}
	if len(ended) == 0 {
		return nil, nil
	}
	shares := s.sharesDisk(key) // or did, when a run was handed out
	bundles, err := s.store.Bundles(ctx, ended)
	if err != nil {
		return nil, err
	}
	under := map[string]*adoption{}
	for uuid, b := range bundles {
		if b.Worker == key && b.State.OnWorker() && b.Contents == "" {
			under[uuid] = s.adoptions.begin(s.store, b)
		}
	}
	sizes := map[string]int64{}
	timer := time.NewTimer(adoptWait)
	defer timer.Stop()
	for uuid, a := range under {
		select {
		case <-a.done:
		case <-timer.C:
			timer.Reset(0) // for the others too
			delete(reports, uuid)
			continue
		}
		name := bundles[uuid].ResultsName()
		ran := shares && (reports[uuid].ExitCode != nil || bundles[uuid].State == codalab.StateRunning)
		switch late := s.adoptions.end(name, a.found, s.Now()); {
		case a.err != nil:
			s.logError(ctx, "adopt results of bundle "+uuid, a.err)
			delete(reports, uuid)
		case a.found:
			sizes[name] = a.size
		case ran && late < adoptLate:
			delete(reports, uuid)
		}
	}
	return sizes, nil
}

// begin returns the adoption of a run's results, which it begins unless it is under way.
func (a *adoptions) begin(data *store.Store, b store.Bundle) *adoption {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := b.ResultsName()
	if one := a.byName[name]; one != nil {
		return one
	}
	one := &adoption{done: make(chan struct{})}
	a.byName[name] = one
	go func() { // ends with the walk through the results; nothing else changes
		one.size, one.err = data.FlushResults(b)
		one.found = one.err == nil
		if errors.Is(one.err, store.ErrNotFound) {
			one.err = nil // it left nothing, or uploads
		}
		close(one.done)
	}()
	return one
}

// end forgets an adoption, and returns for how long there has been nothing to adopt.
func (a *adoptions) end(name string, found bool, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
	if found {
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

// takeResults makes what was adopted a bundle's contents.
func takeResults(b *store.Bundle, adopted map[string]int64) {
	if size, ok := adopted[b.ResultsName()]; ok && b.Contents == "" && b.State.OnWorker() {
		b.Contents = b.ResultsName()
		b.SetDataSize(size)
	}
}
