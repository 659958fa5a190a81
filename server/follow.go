package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// follow draws the conclusions from changes of bundles. Only Run calls it.
func (s *Server) follow(ctx context.Context, uuids []string) {
	for len(uuids) > 0 && ctx.Err() == nil {
		uuid := uuids[0]
		next, err := s.followOne(ctx, uuid)
		if err != nil {
			s.logError(ctx, "follow bundle "+uuid, err)
		}
		uuids = append(uuids[1:], next...)
	}
}

// followOne draws the conclusions from one bundle's state, and returns the bundles that
// changed by that.
func (s *Server) followOne(ctx context.Context, uuid string) ([]string, error) {
	b, err := s.store.Bundle(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		delete(s.pending, uuid)
		delete(s.fresh, uuid)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.place(b)
	switch {
	case b.State == codalab.StateCreated:
		return s.stage(ctx, uuid)
	case b.State.Final():
		if s.SharedDisk && !b.Assigned.IsZero() && b.Contents != b.ResultsName() {
			s.logError(ctx, "remove the place for results", s.store.RemoveContents(b.ResultsName()))
		}
		return s.stageChildren(ctx, uuid)
	}
	return nil, nil
}

// place brings what is in memory in line with bundles.
func (s *Server) place(bundles ...store.Bundle) {
	var all []placed
	for _, b := range bundles {
		resources := s.resources(b)
		all = append(all, placed{b, resources})
		if b.State == codalab.StateStaged && b.Type == codalab.TypeRun {
			s.pending[b.UUID] = waiting(b, resources)
			s.fresh[b.UUID] = s.pending[b.UUID]
		} else {
			delete(s.pending, b.UUID)
			delete(s.fresh, b.UUID)
		}
	}
	s.hub.place(all)
}

func waiting(b store.Bundle, resources codalab.Resources) *pending {
	p := &pending{
		uuid: b.UUID, ownerID: b.OwnerID, resources: resources, parents: map[[2]string]bool{},
		priority: b.Metadata.Int("request_priority"), created: b.Created, status: b.Metadata.String("staged_status"),
	}
	for _, d := range b.Dependencies {
		p.parents[[2]string{d.ParentUUID, d.ParentPath}] = true
	}
	return p
}

func (s *Server) stageChildren(ctx context.Context, uuid string) ([]string, error) {
	children, err := s.store.Children(ctx, uuid)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, child := range children {
		changed, err := s.stage(ctx, child)
		if err != nil {
			return all, err
		}
		all = append(all, changed...)
	}
	return all, nil
}

// stage stages or fails a created run if its parents allow it.
func (s *Server) stage(ctx context.Context, uuid string) ([]string, error) {
	parents, err := s.store.Parents(ctx, uuid)
	if err != nil {
		return nil, err
	}
	_, err = s.store.Change(ctx, uuid, func(b *store.Bundle) error { return stage(b, parents) })
	if errors.Is(err, errUnchanged) {
		return nil, nil
	}
	return []string{uuid}, err
}

// match gives staged runs to workers, and notes of the others why they wait. Where no worker
// has more room than before, only runs that are new can find one, and only they are looked at,
// unless all is set. Only Run calls it.
func (s *Server) match(ctx context.Context, now time.Time, all bool) {
	candidates := s.fresh
	if s.hub.moreRoom() || all {
		candidates = s.pending
	}
	s.fresh = map[string]*pending{}
	if len(candidates) == 0 {
		return
	}
	offers := s.hub.offers(now)
	assigned, status := map[string]store.Worker{}, map[string]string{}
	var decided []string // in the order in which workers are to hear of them
	for _, p := range inOrder(candidates) {
		o, why := choose(p, offers)
		switch {
		case o != nil:
			o.take(p.resources)
			assigned[p.uuid] = o.key
		case why != p.status:
			status[p.uuid] = why
		default:
			continue
		}
		decided = append(decided, p.uuid)
	}
	if len(decided) == 0 {
		return
	}
	changed, err := s.store.ChangeAll(ctx, decided, func(b *store.Bundle) error {
		if worker, ok := assigned[b.UUID]; ok {
			return ignoring(assign(b, worker, now))
		}
		if b.State == codalab.StateStaged {
			b.Metadata["staged_status"] = status[b.UUID]
		}
		return nil
	})
	s.logError(ctx, "match bundles with workers", err)
	var bundles []store.Bundle
	for _, uuid := range decided {
		if b, ok := changed[uuid]; ok {
			bundles = append(bundles, b)
		}
	}
	s.place(bundles...)
	if err == nil {
		s.fresh = map[string]*pending{} // those that wait on have been looked at
	}
}

// ignoring makes a transition that does not apply no error.
func ignoring(err error) error {
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// tidy stages runs again that nobody has claimed.
func (s *Server) tidy(ctx context.Context, now time.Time) {
	overdue := s.hub.overdue(now, s.StartLimit)
	if len(overdue) == 0 {
		return
	}
	_, err := s.store.ChangeAll(ctx, overdue, func(b *store.Bundle) error {
		if b.State == codalab.StateStarting {
			unassign(b)
		}
		return nil
	})
	s.logError(ctx, "stage unclaimed bundles again", err)
	s.changed(overdue...)
}

// resources is what a run asks for, with defaults for what it leaves open
// (codalab/server/bundle_manager.py: _compute_bundle_resources).
func (s *Server) resources(b store.Bundle) codalab.Resources {
	m := b.Metadata
	r := codalab.Resources{
		CPUs: max(m.Int("request_cpus"), 1), GPUs: max(m.Int("request_gpus"), 0),
		Network: m.Bool("request_network"), Tag: m.String("request_queue"), DockerImage: m.String("request_docker_image"),
	}
	memory := m.String("request_memory")
	if memory == "" {
		memory = "2g"
	}
	// Metadata is checked when it is written, so that these can be read.
	if n, err := codalab.ParseSize(memory); err == nil {
		r.Memory = n
	}
	if n, err := codalab.ParseSize(m.String("request_disk")); err == nil {
		r.Disk = n
	}
	if d, err := codalab.ParseDuration(m.String("request_time")); err == nil {
		r.Time = int64(d / time.Second)
	}
	if r.DockerImage == "" {
		r.DockerImage = s.DefaultCPUImage
		if r.GPUs > 0 {
			r.DockerImage = s.DefaultGPUImage
		}
	}
	// The stock server looks for any colon; one in a registry's port is no tag. Files have
	// none: "/images/x.sif", "oci:/images/x".
	name := r.DockerImage[strings.LastIndex(r.DockerImage, "/")+1:]
	if file := strings.HasPrefix(r.DockerImage, "/") || strings.Contains(r.DockerImage, ":/"); !file && !strings.Contains(name, ":") {
		r.DockerImage += ":latest"
	}
	return r
}
