package pilot

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// staged returns the staged bundles for which the manager starts pilots, the oldest first.
func (m *Manager) staged(ctx context.Context) ([]Bundle, error) {
	all, err := m.search(ctx)
	if err := m.server.note(m.Now(), err); err != nil {
		return nil, err
	}
	shape := m.effective()
	var fit []Bundle
	var lacks []Lack
	misfits := map[string]bool{}
	for _, b := range all {
		m.requests[b.UUID] = b
		lack, reason := shape.misfit(b)
		if reason == "" || m.NoFilter {
			fit = append(fit, b)
			continue
		}
		misfits[b.UUID], lacks = true, append(lacks, lack)
		if m.logged[b.UUID] != reason {
			m.logged[b.UUID] = reason
			m.Log.InfoContext(ctx, "bundle left out", slog.String("bundle", b.UUID), slog.String("reason", reason))
		}
	}
	m.noteWaiting(m.Now(), fit, lacks)
	maps.DeleteFunc(m.logged, func(subject, _ string) bool { return codalab.IsUUID(subject) && !misfits[subject] })
	return fit, nil
}

// inBoth returns the bundles that were staged before the batch system was asked, and are still. A worker that it had shown
// as running may have given back the others since.
func inBoth(before, after []Bundle) []Bundle {
	uuids := map[string]bool{}
	for _, b := range before {
		uuids[b.UUID] = true
	}
	return slices.DeleteFunc(after, func(b Bundle) bool { return !uuids[b.UUID] })
}

// mostBundles replaces the server's limit of ten.
const mostBundles = ".limit=100000"

// Keywords returns the keywords of the search for staged bundles (worker_manager.py: run_one_iteration).
func (m *Manager) Keywords() []string {
	keywords := append([]string{"state=" + string(codalab.StateStaged)}, m.Search...)
	if !m.Everybody {
		keywords = append(keywords, ".mine")
	}
	if m.Shape.Tag != "" && m.Shape.Exclusive {
		keywords = append(keywords, "request_queue="+m.Shape.Tag+",tag="+m.Shape.Tag)
	}
	return append(keywords, mostBundles)
}

func (m *Manager) search(ctx context.Context) ([]Bundle, error) {
	found, number, err := m.Server.SearchBundles(ctx, "", m.Keywords())
	if err != nil {
		return nil, err
	}
	if number != nil {
		return nil, errors.New("the search asks for a number, not for bundles")
	}
	var bundles []Bundle
	for _, b := range found {
		if b.Type == codalab.TypeRun {
			bundles = append(bundles, readBundle(b.Bundle))
		}
	}
	slices.SortFunc(bundles, func(a, b Bundle) int { return int(a.Created - b.Created) })
	return bundles, nil
}

// readBundle reads a bundle's request (codalab/server/bundle_manager.py: _compute_request_cpus and the functions
// after it).
func readBundle(b codalab.Bundle) Bundle {
	read := Bundle{
		UUID: b.UUID, Name: b.Metadata.String("name"), Queue: b.Metadata.String("request_queue"), Created: b.Metadata.Int("created"),
		CPUs: max(b.Metadata.Int("request_cpus"), 1), GPUs: b.Metadata.Int("request_gpus"), Memory: 2 << 30,
	}
	if n, err := codalab.ParseSize(b.Metadata.String("request_memory")); err == nil {
		read.Memory = n
	}
	if d, err := codalab.ParseDuration(b.Metadata.String("request_time")); err == nil {
		read.Time = d
	}
	return read
}
