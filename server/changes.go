package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// processChanges acts on changed bundles, and on those that change as a result. It returns
// those for which that failed: the next pass tries again. Only Run calls it.
func (s *Server) processChanges(ctx context.Context, uuids []string) (failed []string) {
	for len(uuids) > 0 && ctx.Err() == nil {
		uuid := uuids[0]
		next, err := s.processChange(ctx, uuid)
		if err != nil {
			s.logError(ctx, "act on a change of bundle "+uuid, err)
			failed = append(failed, uuid)
		}
		uuids = append(uuids[1:], next...)
	}
	return failed
}

// processChange acts on one bundle's state, and returns the bundles that it changed.
func (s *Server) processChange(ctx context.Context, uuid string) ([]string, error) {
	b, err := s.Store.Bundle(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		delete(s.pending, uuid)
		delete(s.fresh, uuid)
		return s.stageChildren(ctx, uuid) // they miss a parent now
	}
	if err != nil {
		return nil, err
	}
	s.track(b)
	switch {
	case b.State == codalab.StateCreated:
		return s.stage(ctx, uuid)
	case b.Type == codalab.TypeMake && (b.State == codalab.StateStaged || b.State == codalab.StateMaking):
		return s.startMaking(ctx, uuid)
	case b.State.Final():
		if s.SharedDisk && !b.Assigned.IsZero() && b.Contents != b.ResultsName() {
			s.logError(ctx, "remove the results directory of bundle "+uuid, s.Store.RemoveContents(b.ResultsName()))
		}
		return s.stageChildren(ctx, uuid)
	}
	return nil, nil
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

func (s *Server) stageChildren(ctx context.Context, uuid string) ([]string, error) {
	children, err := s.Store.WaitingChildren(ctx, uuid)
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

// stage stages or fails a created run, unless it has to wait for its parents.
func (s *Server) stage(ctx context.Context, uuid string) ([]string, error) {
	parents, err := s.Store.Parents(ctx, uuid)
	if err != nil {
		return nil, err
	}
	changed := false
	_, err = s.Store.Change(ctx, uuid, func(b *store.Bundle) error {
		changed = stage(b, parents)
		return nil
	})
	if err != nil || !changed {
		return nil, err
	}
	return []string{uuid}, nil
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
