package server

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// place is where a target really lies: after its path has been followed through dependencies.
type place struct {
	store.Bundle
	path string // below the bundle's contents; empty for the whole
}

func (p place) target() codalab.Target {
	return codalab.Target{BundleUUID: p.UUID, Subpath: p.path}
}

// locate follows a target through the dependencies of bundles, all of which the user may read
// (codalab/lib/download_manager.py: get_target_info).
func (s *Server) locate(ctx context.Context, u store.User, uuid, subpath string) (place, error) {
	const most = 100 // dependencies cannot form a circle; this is a bound nonetheless
	p := strings.TrimPrefix(path.Clean("/"+subpath), "/")
	for range most {
		b, err := s.readable(ctx, u, uuid)
		if err != nil {
			return place{}, err
		}
		d, rest, ok := dependencyAt(b, p)
		if !ok {
			return place{b, p}, nil
		}
		uuid, p = d.ParentUUID, strings.TrimPrefix(path.Join("/", d.ParentPath, rest), "/")
	}
	return place{}, refuse(http.StatusNotFound, "Path '%s' leads through too many bundles", subpath)
}

// dependencyAt returns the dependency of a bundle in which a path lies.
func dependencyAt(b store.Bundle, p string) (d codalab.Dependency, rest string, ok bool) {
	for _, d := range b.Dependencies {
		child := path.Clean(d.ChildPath)
		if child == "." {
			continue
		}
		if p == child || strings.HasPrefix(p, child+"/") {
			return d, p[len(child):], true
		}
	}
	return codalab.Dependency{}, "", false
}

// describe describes a target, by its worker while the bundle runs. gone means that it has
// stopped running meanwhile, and that the caller is to look again.
func (s *Server) describe(ctx context.Context, p place, depth int) (info codalab.TargetInfo, gone bool, err error) {
	switch p.State { //nolint:exhaustive // in the others it has stored contents, or none
	case codalab.StatePreparing:
		return info, false, refuse(http.StatusNotFound, "Bundle %s hasn't started running yet, files not available", p.UUID)
	case codalab.StateRunning:
		a, err := s.askWorker(ctx, p.Bundle, p.path, codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: depth})
		if err != nil || a.gone {
			return info, a.gone, err
		}
		if a.done != nil || a.TargetInfo == nil {
			if a.done != nil {
				a.done()
			}
			return info, false, refuse(http.StatusBadGateway, "The worker that runs bundle %s gave no description", p.UUID)
		}
		info = *a.TargetInfo
	default:
		if info, err = s.describeStored(p, depth); err != nil {
			return info, false, err
		}
	}
	target := p.target()
	info.Resolved = &target
	return info, false, nil
}

func (s *Server) describeStored(p place, depth int) (codalab.TargetInfo, error) {
	root, at, err := s.openStored(p)
	if err != nil {
		return codalab.TargetInfo{}, err
	}
	info, err := contents.Info(root, at, depth)
	if err := errors.Join(err, root.Close()); err != nil {
		return info, p.refusal(err)
	}
	if p.path == "" {
		info.Name = p.UUID
	}
	return info, nil
}

// refusal puts an error of package contents into words; others stay.
func (p place) refusal(err error) error {
	status, message := contents.Status(p.target(), err)
	if status == http.StatusInternalServerError {
		return err
	}
	return refuse(status, "%s", message)
}

// contentsInfo describes a target (codalab/rest/bundles.py: _fetch_bundle_contents_info).
func (s *Server) contentsInfo(w http.ResponseWriter, r *http.Request, u store.User) error {
	depth := 0
	if d := r.URL.Query().Get("depth"); d != "" {
		var err error
		if depth, err = strconv.Atoi(d); err != nil || depth < 0 {
			return refuse(http.StatusBadRequest, "Depth must be at least 0")
		}
	}
	return s.whileMoving(func() (again bool, err error) {
		p, err := s.locate(r.Context(), u, r.PathValue("uuid"), r.PathValue("path"))
		if err != nil {
			return false, err
		}
		info, gone, err := s.describe(r.Context(), p, depth)
		if err != nil || gone {
			return gone, err
		}
		return false, writeDocument(w, info, nil)
	})
}

// whileMoving repeats what found a bundle at an end that had been running when it looked.
func (s *Server) whileMoving(look func() (again bool, err error)) error {
	const tries = 5
	for range tries {
		again, err := look()
		if err != nil || !again {
			return err
		}
	}
	return refuse(http.StatusNotFound, "The bundle is changing too fast; try again")
}
