package contents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	codalabcontents "github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Files) routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /bundles/{uuid}/contents/info/{path...}", Serve: s.contentsInfo, Public: true, Worker: true, WorkerToken: true, Differs: "messages of the refusals; with a query of first, and after, it describes the first entries of a directory after a name, and says how many there are; a read of a running bundle fails when its worker has not checked in for 15 s, with Retry-After"},
		{Pattern: "GET /bundles/{uuid}/contents/blob/{path...}", Serve: s.contentsBlob, Public: true, Worker: true, WorkerToken: true, Differs: "contents are sent with X-Content-Type-Options and a Content-Security-Policy, so that a browser does not run them"},
		{Pattern: "POST /bundle_stores", Serve: s.addBundleStore, Differs: "refused: the server keeps all contents itself"},
		{Pattern: "GET /bundles/{uuid}/locations/{$}", Serve: s.locations, Differs: "always empty: contents come from this server"},
		{Pattern: "POST /bundles/{uuid}/locations/{$}", Serve: s.addLocation, Differs: "there is no other store to upload to"},
		{Pattern: "GET /bundle_stores/{uuid}", Serve: s.bundleStore, Differs: "there is none"},
		{Pattern: "GET /bundle_stores", Serve: s.bundleStores, Differs: "always empty"},
	}
}

// location is a target whose path leads through no dependency.
type location struct {
	store.Bundle
	path string // in the bundle's contents; empty for all of them
}

func (p location) target() codalab.Target {
	return codalab.Target{BundleUUID: p.UUID, Subpath: p.path}
}

// locate follows a target through the dependencies of bundles, which the user must be able to
// read (codalab/lib/download_manager.py: get_target_info). A worker account reads the inputs of its runs.
// The bundles on which those inputs depend must be readable for the owner of such a run. A token
// that is for some workers reads the same inputs, and the user of the token must be able to read their dependencies.
func (s *Files) locate(ctx context.Context, u store.User, uuid, subpath string) (location, error) {
	if u.Bounded() {
		if _, err := s.access.Readable(ctx, u, uuid); err != nil {
			return location{}, err
		}
		u = access.AnyWorker(u)
	}
	p, err := s.follow(ctx, u, uuid, subpath)
	if !u.IsWorker || !rest.HasStatus(err, http.StatusForbidden) {
		return p, err
	}
	if _, no := s.access.Readable(ctx, u, uuid); no != nil {
		return location{}, no
	}
	owners, failed := s.store.InputOwners(ctx, u.ID, uuid)
	if failed != nil {
		return location{}, failed
	}
	for _, id := range owners {
		owner, failed := s.store.User(ctx, id)
		if failed != nil {
			return location{}, failed
		}
		if p, err = s.follow(ctx, owner, uuid, subpath); err == nil {
			break
		}
	}
	return p, err
}

// follow is locate for a user who must be able to read all bundles on the way.
func (s *Files) follow(ctx context.Context, u store.User, uuid, subpath string) (location, error) {
	const most = 100 // dependencies cannot form a cycle; the bound is for a damaged database
	p := strings.TrimPrefix(path.Clean("/"+subpath), "/")
	for range most {
		b, err := s.access.Readable(ctx, u, uuid)
		if err != nil {
			return location{}, err
		}
		d, below, ok := dependencyAt(b, p)
		if !ok || b.Type != codalab.TypeRun { // a make bundle has copies
			return location{b, p}, nil
		}
		uuid, p = d.ParentUUID, strings.TrimPrefix(path.Join("/", d.ParentPath, below), "/")
	}
	return location{}, rest.Refuse(http.StatusNotFound, "Path '%s' leads through too many bundles", subpath)
}

// dependencyAt returns the dependency of a bundle that contains a path, and the path in it.
func dependencyAt(b store.Bundle, p string) (d codalab.Dependency, below string, ok bool) {
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

// describe describes a target. While the bundle runs, its worker does so.
func (s *Files) describe(ctx context.Context, p location, part levels) (info codalab.TargetInfo, err error) {
	switch p.State {
	case codalab.StatePreparing:
		return info, rest.Refuse(http.StatusNotFound, "Bundle %s hasn't started running yet, files not available", p.UUID)
	case codalab.StateWorkerOffline:
		return info, s.running.AwayRefusal(p.Bundle)
	case codalab.StateRunning:
		reply, err := s.running.read(ctx, p.Bundle, p.path, codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: part.depth, First: part.page.First, After: part.page.After})
		if err != nil {
			return info, err
		}
		if reply.Done != nil || reply.TargetInfo == nil {
			if reply.Done != nil {
				reply.Done()
			}
			return info, rest.Refuse(http.StatusBadGateway, "The worker that runs bundle %s gave no description", p.UUID)
		}
		if info = *reply.TargetInfo; part.page.First > 0 {
			part.page.Cut(&info)
		}
	default: // in other states a bundle has stored contents or none
		if info, err = s.describeStored(p, part); err != nil {
			return info, err
		}
	}
	target := p.target()
	info.Resolved = &target
	return info, nil
}

// levels tells how much of a directory is described: so many levels below it, or a page of its entries if page.First is not 0.
type levels struct {
	depth int
	page  codalabcontents.Page
}

func (s *Files) describeStored(p location, part levels) (info codalab.TargetInfo, err error) {
	root, at, err := s.openStored(p)
	if err != nil {
		return codalab.TargetInfo{}, err
	}
	if part.page.First > 0 {
		info, err = codalabcontents.InfoPage(root, at, part.page)
	} else {
		info, err = codalabcontents.Info(root, at, part.depth)
	}
	if err := errors.Join(err, root.Close()); err != nil {
		return info, p.refusal(err)
	}
	if p.path == "" {
		info.Name = p.UUID
	}
	return info, nil
}

// refusal returns an error of package codalab/contents as a refusal, and others unchanged.
func (p location) refusal(err error) error {
	status, message := codalabcontents.Status(p.target(), err)
	if status == http.StatusInternalServerError {
		return err
	}
	return rest.Refuse(status, "%s", message)
}

// contentsInfo describes a target (codalab/rest/bundles.py: _fetch_bundle_contents_info).
func (s *Files) contentsInfo(w http.ResponseWriter, r *http.Request, u store.User) error {
	q := r.URL.Query()
	part := levels{page: codalabcontents.Page{After: q.Get("after")}}
	if d := q.Get("depth"); d != "" {
		var err error
		if part.depth, err = strconv.Atoi(d); err != nil || part.depth < 0 {
			return rest.Refuse(http.StatusBadRequest, "Depth must be at least 0")
		}
	}
	const most = 10_000
	if err := rest.IntParam(q, "first", &part.page.First); err != nil || part.page.First < 0 || part.page.First > most {
		return rest.Refuse(http.StatusBadRequest, "first must be a number from 1 to %d", most)
	}
	return retryMoved(func() error {
		p, err := s.locate(r.Context(), u, r.PathValue("uuid"), r.PathValue("path"))
		if err != nil {
			return err
		}
		info, err := s.describe(r.Context(), p, part)
		if err != nil {
			return err
		}
		return rest.WriteDocument(w, info, nil)
	})
}

// retryMoved calls read again while it fails with hub.ErrMoved.
func retryMoved(read func() error) error {
	const tries = 5
	for range tries {
		if err := read(); !errors.Is(err, hub.ErrMoved) {
			return err
		}
	}
	return rest.Refuse(http.StatusNotFound, "The bundle is changing too fast; try again")
}

// openStored opens the directory that contains a stored target: in the store, or where a link
// leads. at is the target's path in it. The caller closes root
// (codalab/lib/download_manager.py: get_target_info).
func (s *Files) openStored(p location) (root *os.Root, at string, err error) {
	if link := p.Metadata.String("link_url"); link != "" {
		root, at, err = s.openLink(p, link)
		return root, path.Join(at, p.path), err
	}
	root, err = s.store.OpenContents(p.Bundle)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", p.refusal(codalabcontents.ErrNotFound)
	}
	return root, path.Join(store.ContentsPath, p.path), err
}

// openLink opens the directory to which a link leads, or the directory of a file. It must be
// below one of the link roots. Symbolic links on the way may not leave that root, and those in the
// target may not leave the opened directory.
func (s *Files) openLink(p location, link string) (root *os.Root, at string, err error) {
	clean, dir, ok := s.linkRoot(link)
	if !ok {
		return nil, "", rest.Refuse(http.StatusNotFound, "Bundle %s is a link to %s, which this server does not read", p.UUID, link)
	}
	below, err := filepath.Rel(dir, clean)
	if err == nil {
		root, at, err = openBelow(dir, below)
	}
	if err != nil {
		return nil, "", rest.Refuse(http.StatusNotFound, "Bundle %s is a link to %s, which this server cannot read", p.UUID, link)
	}
	return root, at, nil
}

// linkRoot returns the path of a link and the one of LinkRoots that contains it, if there is
// one.
func (s *Files) linkRoot(link string) (clean, root string, ok bool) {
	clean = path.Clean("/" + strings.TrimPrefix(link, "file://"))
	for _, dir := range s.linkRoots {
		if subpath.Within(clean, dir) {
			return clean, dir, true
		}
	}
	return "", "", false
}

func openBelow(dir, below string) (_ *os.Root, at string, err error) {
	outer, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	info, err := outer.Stat(below)
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	if !info.IsDir() {
		below, at = path.Split(below)
	}
	root, err := outer.OpenRoot(path.Clean(below))
	if err != nil {
		return nil, "", fmt.Errorf("open link: %w", err)
	}
	return root, at, nil
}

// locations answers that contents are available only from this server, for all bundles: cl asks
// for those of private ones too (codalab/rest/bundles.py: _fetch_locations).
func (s *Files) locations(w http.ResponseWriter, _ *http.Request, _ store.User) error {
	return rest.WriteDocument(w, []string{}, nil)
}

// addLocation answers a client that asks whether it may upload to another store: it may not
// (codalab/rest/bundles.py: _add_bundle_location).
func (s *Files) addLocation(w http.ResponseWriter, r *http.Request, u store.User) error {
	uuid := r.PathValue("uuid")
	if _, err := s.access.Writable(r.Context(), u, uuid); err != nil {
		return err
	}
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var in struct {
		Store *string `json:"bundle_store_uuid"`
	}
	if objects[0].Decode(&in) != nil {
		return rest.Refuse(http.StatusBadRequest, "bundle_store_uuid must be a uuid or null")
	}
	if in.Store != nil {
		return noStore(*in.Store)
	}
	bypass, err := rest.BoolParam(r.URL.Query(), "need_bypass", false)
	if err != nil {
		return err
	}
	attributes := map[string]any{"bundle_uuid": uuid}
	if bypass { // null is for "not possible"
		attributes["bundle_conn_str"], attributes["index_conn_str"], attributes["bundle_url"] = nil, nil, nil
	}
	return rest.WriteDocument(w, []any{map[string]any{"type": "bundle_locations", "attributes": attributes}}, nil)
}

// bundleStores answers that there are no stores but the server's disk (codalab/rest/bundles.py:
// _fetch_bundle_stores).
func (s *Files) bundleStores(w http.ResponseWriter, r *http.Request, _ store.User) error {
	if name := r.URL.Query().Get("name"); name != "" {
		return noStore(name)
	}
	return rest.WriteDocument(w, []string{}, nil)
}

// bundleStore refuses to show a bundle store (codalab/rest/bundles.py: _fetch_bundle_store).
func (s *Files) bundleStore(_ http.ResponseWriter, r *http.Request, _ store.User) error {
	return rest.Refuse(http.StatusNotFound, "There is no bundle store %s: this server keeps all contents in its own data directory", r.PathValue("uuid"))
}

// addBundleStore refuses to add a bundle store.
func (s *Files) addBundleStore(_ http.ResponseWriter, _ *http.Request, u store.User) error {
	if !u.Root() {
		return rest.Refuse(http.StatusForbidden, "Only root user can create bundle stores.")
	}
	return rest.Refuse(http.StatusBadRequest, "This server keeps all contents in its own data directory and has no other bundle stores")
}

// DiskPath returns the path of a bundle's contents. It is empty for a bundle without
// contents, and for a link that leads out of the link roots, because a worker mounts the path, and a user
// must not choose any path.
func (s *Files) DiskPath(b store.Bundle) string {
	link := b.Metadata.String("link_url")
	if link == "" {
		return s.store.ContentsFile(b)
	}
	clean, _, _ := s.linkRoot(link) // empty if there is no root
	return clean
}
