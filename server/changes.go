package server

import (
	"context"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// processChanges acts on changed bundles, and on those that change as a result. It returns
// those for which that failed: the next pass tries again. Only Run calls it.
func (s *Server) processChanges(ctx context.Context, uuids []string) (failed []string) {
	for len(uuids) > 0 && ctx.Err() == nil {
		next, err := s.processSome(ctx, uuids)
		switch {
		case err == nil:
		case len(uuids) > 1: // one of them must not hold the others up
			for _, uuid := range uuids {
				failed = append(failed, s.processChanges(ctx, []string{uuid})...)
			}
		default:
			s.logError(ctx, "act on a change of bundle "+uuids[0], err)
			failed = append(failed, uuids...)
		}
		uuids = next
	}
	return failed
}

// processSome acts on bundles' states, and returns the bundles that it changed.
func (s *Server) processSome(ctx context.Context, uuids []string) (changed []string, err error) {
	uuids = distinct(uuids)
	found, err := s.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	var created, parents []string
	for _, uuid := range uuids {
		b, ok := found[uuid]
		if !ok {
			delete(s.pending, uuid)
			delete(s.fresh, uuid)
			s.makers.stop(uuid)
			parents = append(parents, uuid) // children miss it now
			continue
		}
		s.track(b)
		switch {
		case b.State == codalab.StateCreated:
			created = append(created, uuid)
		case b.Type == codalab.TypeMake && (b.State == codalab.StateStaged || b.State == codalab.StateMaking):
			again, err := s.startMaking(ctx, uuid)
			changed = append(changed, again...)
			if err != nil {
				return changed, err
			}
		case b.State.Final():
			s.makers.stop(uuid)
			if s.SharedDisk && !b.Assigned.IsZero() && b.Contents != b.ResultsName() {
				s.Store.RemoveLater(b.ResultsName())
			}
			parents = append(parents, uuid)
		}
	}
	children, err := s.Store.WaitingChildren(ctx, parents)
	if err != nil {
		return changed, err
	}
	staged, err := s.stage(ctx, distinct(append(created, children...)))
	return append(changed, staged...), err
}

// track updates the hub and the waiting runs from bundles.
func (s *Server) track(bundles ...store.Bundle) {
	for _, b := range bundles {
		if b.State == codalab.StateStaged && b.Type == codalab.TypeRun {
			s.pending[b.UUID] = newPending(b, s.resources(b))
			s.fresh[b.UUID] = s.pending[b.UUID]
		} else {
			delete(s.pending, b.UUID)
			delete(s.fresh, b.UUID)
		}
	}
	s.hub.track(bundles, s.resources)
}

func newPending(b store.Bundle, resources codalab.Resources) *pending {
	p := &pending{
		uuid: b.UUID, ownerID: b.OwnerID, resources: resources, parents: map[[2]string]bool{},
		asksDisk: b.Metadata.String("request_disk") != "", asksTime: b.Metadata.String("request_time") != "",
		priority: b.Metadata.Int("request_priority"), created: b.Created.Time, status: b.Metadata.String("staged_status"),
	}
	for _, d := range b.Dependencies {
		p.parents[[2]string{d.ParentUUID, d.ParentPath}] = true
	}
	return p
}

// stage stages or fails created bundles, but for those that have to wait for their parents. It returns
// those that it changed.
func (s *Server) stage(ctx context.Context, uuids []string) (changed []string, err error) {
	parents, err := s.Store.Parents(ctx, uuids)
	if err != nil {
		return nil, err
	}
	did := map[string]bool{}
	found, err := s.Store.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		did[b.UUID] = stage(b, parents[b.UUID])
		return nil
	})
	for uuid := range found {
		if did[uuid] {
			changed = append(changed, uuid)
		}
	}
	return changed, err
}

// resources returns a run's requests, with defaults (codalab/server/bundle_manager.py:
// _compute_bundle_resources).
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
	// CheckMetadata has checked these.
	if n, err := codalab.ParseSize(memory); err == nil {
		r.Memory = n
	}
	r.Disk, r.Time = s.MaxRequestDisk, int64(s.MaxRequestTime/time.Second)
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
	// CodaLab's own server looks for any colon, also one before a registry's port. Files have
	// no tag: "/images/x.sif", "oci:/images/x".
	name := r.DockerImage[strings.LastIndex(r.DockerImage, "/")+1:]
	if file := strings.HasPrefix(r.DockerImage, "/") || strings.Contains(r.DockerImage, ":/"); !file && !strings.Contains(name, ":") {
		r.DockerImage += ":latest"
	}
	return r
}
