package bundles

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/usage"
)

// Config has what Bundles needs. All fields are required.
type Config struct {
	Now      func() time.Time
	Store    *store.Store
	Access   access.Access
	Contents *contents.Contents
	// Changed is told which bundles have changed. It must not block.
	Changed func(uuids ...string)
	// TakeTurn waits for a user's turn to change something, and returns the function that ends it, which
	// may be called again.
	TakeTurn func(ctx context.Context, u store.User) (leave func(), err error)
	// CheckSecrets refuses a new run of a user that names secrets which the user does not have.
	CheckSecrets func(ctx context.Context, userID string, names []string) error
	// Outlook returns a function for the outlook of new runs of a user on a worksheet, with the workers that are there; the
	// worksheet is empty for none.
	Outlook func(ctx context.Context, u store.User, worksheet string) (func(store.Bundle) plan.Outlook, error)
	Usage   *usage.Keeper
	Site    plan.Site
}

// Bundles serves bundles, without their contents.
type Bundles struct{ config Config }

// New returns Bundles.
func New(c Config) *Bundles { return &Bundles{c} }

// Routes returns the routes for bundles.
func (s *Bundles) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /bundles", Serve: search.Bounded(s.findBundles), Public: true, Manager: true, Differs: "a bundle that the user may not read is refused as if it did not exist, unless a worksheet shows it at the place that the spec names; names and states of parents that the user may not read are hidden, and descendants are left out; results are ordered by age; a search tells and counts only what the user may read; .shared and group= work for every user; _ is no wildcard; a search takes values in files as keys (/stats.json:acc), and !=, <, <=, > and >=; one that finds nothing is refused if it names a key, a state or a type that there is not; a search ends after 20 seconds, and one with more than 10,000 results, or with more than 2,000 specs that are not whole uuids, is refused; with metadata=KEY,… the bundles have only these keys of their metadata, and neither args nor state_details"},
		{Pattern: "POST /bundles", Serve: s.createBundles, Differs: "the parents of a run must be readable, unless it is a copy that waits for its contents; a run without inputs is staged in the answer already; shadow concerns the named worksheet only, and its end if the other bundle is not there; a uuid that a bundle has, or a deleted one had, is refused with status 409, because caches know contents by it; a dependency key that leads out of the bundle, CPUs below 1 and time limits that cannot be counted are refused at once; a run may name secrets of its owner (metadata key secrets); the copy of a run may tell what the run ran on (platform), which is marked as imported; with check_requests=1, which CodaLab's own cl does not send, a run is refused that would fail for its requests in its queue, and the answer has sentences about a queue that is not there in meta.warnings"},
		{Pattern: "PATCH /bundles", Serve: s.patchBundles, Differs: "an owner who names another one offers the bundle, which the other one accepts or declines by the same call; root gives it at once; clients cannot change data_size, nor the secrets of a run; of a run with secrets that has not ended nobody can change the owner, and only its owner and root its requests"},
		{Pattern: "DELETE /bundles", Serve: s.deleteBundles, Differs: "others' bundles that depend on one and cannot be read are counted and not named; a uuid is never given out again; a frozen worksheet of another user yields to force; worksheets that the user may not read are not named"},
		{Pattern: "GET /bundles/{uuid}", Serve: s.bundle, Public: true, Worker: true, WorkerToken: true, Differs: "a bundle that the user may not read is refused as if it did not exist, except to workers; names and states of parents that the user may not read are hidden; metadata=KEY,… works as with GET /bundles"},
		{Pattern: "GET /bundles/{uuid}/history", Serve: s.history, Differs: "only this server has it: what users, and the server by itself, did with the bundle, for those who may change it"},
		{Pattern: "GET /bundles/{uuid}/usage", Serve: s.usage, Public: true, Differs: "only this server has it: the processors, memory and GPUs that a run used over time, in at most 240 sections, for those who may read the bundle"},
		{Pattern: "POST /bundle-permissions", Serve: s.setPermissions},
		{Pattern: "POST /bundle-actions", Serve: s.bundleActions, Waits: true, Differs: "a kill is kept until the worker has done it, also of a worker that is offline; of a run whose results are uploaded it asks `cl-bridge` and `cl-worker` to give the upload up (CodaLab's own worker goes on); write needs a worker that has the run, and fails when that has not checked in for 15 s"},
	}
}

// bundle returns one bundle (codalab/rest/bundles.py: _fetch_bundle).
func (s *Bundles) bundle(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, included, err := s.bundleObjects(r, u, []string{r.PathValue("uuid")}, nil)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, objects[0], included)
}

// history returns what users did with a bundle, to those who may change it. It tells of everybody's actions, so a reader
// does not get it.
func (s *Bundles) history(w http.ResponseWriter, r *http.Request, u store.User) error {
	b, err := s.config.Access.Writable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	events, err := s.config.Store.History(r.Context(), b.UUID)
	if err != nil {
		return err
	}
	if len(events) == 0 || events[0].Action != codalab.ActionCreated { // the bundle is older than histories
		events = append([]codalab.BundleEvent{{Time: b.Created.Unix(), Action: codalab.ActionCreated}}, events...)
	}
	return rest.WriteDocument(w, events, nil)
}

// usage returns how a run used its resources over time.
func (s *Bundles) usage(w http.ResponseWriter, r *http.Request, u store.User) error {
	b, err := s.config.Access.Readable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	limits := s.config.Site.Resources(b.Metadata)
	used, err := s.config.Usage.Of(r.Context(), b.UUID, codalab.UsageLimits{CPUs: limits.CPUs, GPUs: limits.GPUs, Memory: limits.Memory})
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, used, nil)
}

// findBundles returns the bundles that the query searches for by keywords; or those that it names by
// specs, in their order; or the user's runs with its command and dependencies. With depth it adds
// their descendants (codalab/rest/bundles.py: _fetch_bundles).
func (s *Bundles) findBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, q := r.Context(), r.URL.Query()
	var uuids []string
	var shown map[string]bool
	var err error
	switch {
	case len(q["keywords"]) > 0:
		return s.searchBundles(w, r, u)
	case u.Bounded():
		return rest.Refuse(http.StatusForbidden, "A worker manager's token finds staged runs by keywords, and no other bundles.")
	case len(q["specs"]) > 0:
		uuids, err = s.config.Access.ResolveBundles(ctx, u, q.Get("worksheet"), q["specs"])
		shown = shownAnyway(q["specs"], uuids)
	case q.Get("command") != "":
		uuids, err = s.sameRuns(ctx, u, q.Get("command"), q.Get("dependencies"))
	default:
		err = rest.Refuse(http.StatusBadRequest, "Request must include either 'keywords' or 'specs' query parameter")
	}
	if err == nil {
		uuids, err = s.withDescendants(r, u, uuids)
	}
	if err != nil {
		return err
	}
	return s.writeBundles(w, r, u, uuids, shown)
}

// shownAnyway returns those bundles that specs name by their places on a worksheet. The worksheet shows its reader that they
// are there, also if the reader may not read them.
func shownAnyway(specs, uuids []string) map[string]bool {
	shown := map[string]bool{}
	for i, uuid := range uuids {
		if strings.TrimSpace(specs[i]) != uuid {
			shown[uuid] = true
		}
	}
	return shown
}

// withDescendants adds descendants that the user may read to bundles, as deep as the query's depth; none without one.
func (s *Bundles) withDescendants(r *http.Request, u store.User, uuids []string) ([]string, error) {
	depth := 0
	if err := rest.IntParam(r.URL.Query(), "depth", &depth); err != nil || depth == 0 {
		return uuids, err
	}
	all, err := s.descendants(r.Context(), uuids, depth)
	if err != nil {
		return nil, err
	}
	readable, err := s.readable(r.Context(), u, all[len(uuids):])
	if err != nil {
		return nil, err
	}
	all = slices.Concat(uuids, readable)
	return all, search.CheckFound(len(all))
}

// readable returns those of these bundles that the user may read, in their order.
func (s *Bundles) readable(ctx context.Context, u store.User, uuids []string) ([]string, error) {
	heads, err := s.config.Store.Heads(ctx, uuids)
	if err != nil {
		return nil, err
	}
	have, err := s.config.Access.BundlePermissions(ctx, u, heads...)
	return slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool { return have[uuid] < store.PermissionRead }), err
}

// descendants returns bundles, their children, and so on, depth times (codalab/model/bundle_model.py:
// get_self_and_descendants).
func (s *Bundles) descendants(ctx context.Context, uuids []string, depth int) ([]string, error) {
	all, seen, frontier := slices.Clone(uuids), map[string]bool{}, uuids
	for _, uuid := range uuids {
		seen[uuid] = true
	}
	for ; depth > 0 && len(frontier) > 0; depth-- {
		children, err := s.config.Store.ChildrenOf(ctx, frontier)
		if err != nil {
			return nil, err
		}
		frontier = nil
		for _, child := range children {
			if !seen[child] {
				seen[child] = true
				frontier = append(frontier, child)
			}
		}
		all = append(all, frontier...)
	}
	return all, nil
}

// sameRuns returns the user's runs with a command and with exactly these dependencies, a JSON list of
// child_path and parent_uuid, oldest first (codalab/model/bundle_model.py: get_memoized_bundles).
func (s *Bundles) sameRuns(ctx context.Context, u store.User, command, dependencies string) ([]string, error) {
	var want []codalab.Dependency
	if dependencies != "" && json.Unmarshal([]byte(dependencies), &want) != nil {
		return nil, rest.Refuse(http.StatusBadRequest, "dependencies must be a JSON list")
	}
	type input struct{ child, parent string }
	inputs := func(list []codalab.Dependency) map[input]bool {
		set := map[input]bool{}
		for _, d := range list {
			set[input{d.ChildPath, d.ParentUUID}] = true
		}
		return set
	}
	uuids, err := s.config.Store.RunsOf(ctx, u.ID, command)
	if err != nil {
		return nil, err
	}
	found, err := s.config.Store.Bundles(ctx, uuids, "name") // the metadata may be large
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(uuids, func(uuid string) bool {
		return !maps.Equal(inputs(found[uuid].Dependencies), inputs(want))
	}), nil
}

// writeBundles answers with bundles, and the related objects that the query includes. See bundleObjects.
func (s *Bundles) writeBundles(w http.ResponseWriter, r *http.Request, u store.User, uuids []string, shown map[string]bool) error {
	objects, included, err := s.bundleObjects(r, u, uuids, shown)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, objects, included)
}

// bundleObjects returns bundles in the order of their uuids, and the related objects that the
// query includes. It refuses the request if one of the bundles does not exist or is not for the user to know of. Those in
// shown, and those of which the user may know but may not read them, become private ones (codalab/rest/util.py:
// get_bundle_infos, which makes all others' bundles private ones).
func (s *Bundles) bundleObjects(r *http.Request, u store.User, uuids []string, shown map[string]bool) (objects, included []codalab.Object, err error) {
	ctx := r.Context()
	include, err := rest.Includes(r.URL.Query(), "owner", "children", "group_permissions", "host_worksheets")
	if err != nil {
		return nil, nil, err
	}
	keys, err := rest.MetadataKeys(r.URL.Query())
	if err != nil {
		return nil, nil, err
	}
	display, err := rest.BoolParam(r.URL.Query(), "include_display_metadata", false)
	if err != nil {
		return nil, nil, err
	}
	found, have, err := s.config.Access.BundlesFor(ctx, u, uuids, keys...)
	if err != nil {
		return nil, nil, err
	}
	objects = []codalab.Object{}
	var readable, owners []string
	for _, uuid := range uuids {
		b, ok := found[uuid]
		if have[uuid] >= store.PermissionRead {
			objects, readable = append(objects, present.BundleObject(b, have[uuid])), append(readable, uuid)
			owners = append(owners, present.BundleOwner(b, have[uuid]))
			continue
		}
		known := shown[uuid] || ok && b.Offer.To != ""
		if ok && !known {
			if known, err = s.config.Access.MayKnow(ctx, u, b); err != nil {
				return nil, nil, err
			}
		}
		if !known {
			return nil, nil, notFound(u, uuid)
		}
		b.UUID = uuid // also of one that is not there
		objects = append(objects, present.BundleObject(b, have[uuid]))
		if b.Offer.To != "" {
			owners = append(owners, b.OwnerID)
		}
	}
	for i := range objects {
		if display {
			objects[i].Meta = displayMeta(found[objects[i].ID], have[objects[i].ID])
		}
	}
	included, err = s.related(ctx, u, include, objects, readable, owners)
	return objects, included, err
}

// related returns the related objects that a query includes, and names them in the objects of the bundles that the user may
// read.
func (s *Bundles) related(ctx context.Context, u store.User, include map[string]bool, objects []codalab.Object, readable, owners []string) ([]codalab.Object, error) {
	related := present.Relations{Objects: map[string]codalab.Object{}}
	for _, o := range objects {
		related.Objects[o.ID] = o
	}
	for _, rel := range []struct {
		name string
		add  func(context.Context, store.User, []string, *present.Relations) error
	}{
		{"group_permissions", s.addPermissions}, {"children", s.addChildren}, {"host_worksheets", s.addHosts},
	} {
		if include[rel.name] && mayInclude(u, rel.name) {
			if err := rel.add(ctx, u, readable, &related); err != nil {
				return nil, err
			}
		}
	}
	if include["owner"] {
		users, err := present.UserObjects(ctx, s.config.Store, owners)
		if err != nil {
			return nil, err
		}
		related.Included = append(related.Included, users...)
	}
	return related.Included, nil
}

// mayInclude reports whether the answer may have related objects. A worker token gets none. A bridge needs to know whether
// everybody may read an input, because it lets jobs read only such data where they lie.
func mayInclude(u store.User, relation string) bool {
	return !u.Bounded() || u.Program.ID != "" && relation == "group_permissions"
}

// notFound refuses a bundle that does not exist, or that the user may not read.
func notFound(u store.User, uuid string) error {
	if u.Root() {
		return rest.Refuse(http.StatusNotFound, "Bundle %s not found", uuid)
	}
	return rest.Refuse(http.StatusNotFound, "Bundle %s not found, or you may not read it", uuid)
}

// addPermissions adds the permissions of groups on each bundle.
func (s *Bundles) addPermissions(ctx context.Context, u store.User, uuids []string, to *present.Relations) error {
	return to.AddPermissions(ctx, s.config.Store, store.SharedBundle, u, uuids)
}

// addChildren adds the children that the user may read, with their names.
func (s *Bundles) addChildren(ctx context.Context, u store.User, uuids []string, to *present.Relations) error {
	for _, uuid := range uuids {
		children, err := s.config.Store.ChildrenOf(ctx, []string{uuid})
		if err != nil {
			return err
		}
		found, have, err := s.config.Access.BundlesFor(ctx, u, children)
		if err != nil {
			return err
		}
		var objects []codalab.Object
		for _, child := range children {
			if b, ok := found[child]; ok && have[child] >= store.PermissionRead {
				objects = append(objects, codalab.NewObject("bundles", child, map[string]any{
					"uuid": child, "metadata": map[string]string{"name": b.Metadata.String("name")},
				}))
			}
		}
		to.Add(uuid, "children", "bundles", objects)
	}
	return nil
}

// addHosts adds the names of the worksheets that contain a bundle and that the user may read.
func (s *Bundles) addHosts(ctx context.Context, u store.User, uuids []string, to *present.Relations) error {
	hosts, err := s.config.Access.ReadableHosts(ctx, u, uuids)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		var objects []codalab.Object
		for _, sheet := range hosts[uuid] {
			objects = append(objects, codalab.NewObject("worksheets", sheet.UUID, codalab.WorksheetName{UUID: sheet.UUID, Name: sheet.Name}))
		}
		to.Add(uuid, "host_worksheets", "worksheets", objects)
	}
	return nil
}
