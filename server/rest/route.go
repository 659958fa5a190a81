package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Handler serves one route for a user. It writes the answer or returns an error.
type Handler func(w http.ResponseWriter, r *http.Request, u store.User) error

// Route is one way to call the server.
type Route struct {
	Pattern string // of http.ServeMux, below /rest
	Serve   Handler
	// Public routes also serve users who have not signed in. For them the user has no id, and
	// the permissions of the group "public".
	Public bool
	// Worker routes also serve worker accounts (store.User.IsWorker). The others refuse them.
	Worker bool
	// WorkerToken routes also serve tokens that are for some workers (store.User.Bounded). If the path names a
	// worker, it must be one of the token's. The others refuse them.
	WorkerToken bool
	// Manager routes also serve the program tokens of worker managers (store.ProgramToken.Manages), as WorkerToken
	// routes do.
	Manager bool
	// Begins is set for the calls with which a worker begins. They also serve a token that a worker has begun with
	// (store.User.Replaced), so that it can begin again. Other routes refuse that token: its worker has another one.
	Begins bool
	// Waits is set for routes that wait for an upload's client or for a worker. They do not hold their user's
	// turn to change something while they wait.
	Waits bool
	// Audited is set for a route of workers whose requests are in the audit log like those of users.
	Audited bool
	// Differs lists the differences from the route of CodaLab's own server; empty if there are none.
	Differs string
}

// Admit refuses a user who may not use a route at all.
func (one Route) Admit(r *http.Request, u store.User) error {
	switch worker := r.PathValue("worker"); {
	case u.IsWorker && !one.Worker:
		return Refuse(http.StatusForbidden, "%s is a worker account: it may only run bundles.", u.Name)
	case u.Bounded() && !one.WorkerToken && (!one.Manager || !u.Program.Manages):
		return Refuse(http.StatusForbidden, "This token is for worker %s alone: it may only run bundles.", tokenWorkers(u))
	case worker != "" && !u.MayBe(worker):
		return Refuse(http.StatusForbidden, "This token is for worker %s alone, and not for worker %s.", tokenWorkers(u), worker)
	case u.Replaced && !one.Begins:
		return ReplacedWorker(u.OnlyWorker)
	}
	return nil
}

// tokenWorkers names the workers of a token.
func tokenWorkers(u store.User) string {
	if u.OnlyWorker != "" {
		return u.OnlyWorker
	}
	return strings.Join(u.Program.Workers.List(), ", ")
}

// ReplacedWorker is the refusal of a program whose worker has begun again since, with the same token, as another process.
// The worker recognizes it by its status, and ends.
func ReplacedWorker(worker string) error {
	return Refuse(http.StatusGone, "Worker '%s' has begun again elsewhere with the same token: this program has to end.", worker)
}

// Changes reports whether a route changes objects of users, so that its requests are in the audit log.
// The log leaves out requests of workers and parts of uploads: there are too many, and the bundles show
// their results. It also leaves out requests to containers, which change nothing here, and command lines, whose own
// requests are in it.
func (one Route) Changes() bool {
	method, path, _ := strings.Cut(one.Pattern, " ")
	switch {
	case method == http.MethodGet, path == "/user/increment_disk_used":
		return false
	case one.Audited:
		return true
	}
	for _, part := range []string{"/workers/", "/interpret/", "/netcat/", "/netcurl/", "/cli/"} {
		if strings.Contains(path, part) {
			return false
		}
	}
	return true
}

// objectsKey is the context's key for the objects that a request names.
type objectsKey struct{}

// WithObjects returns a context whose request's objects are added to a list when a handler reads them.
func WithObjects(ctx context.Context, objects *[]string) context.Context {
	return context.WithValue(ctx, objectsKey{}, objects)
}

// NoteObject adds an object that a request has made to the audit log's line.
func NoteObject(ctx context.Context, id string) {
	noteObjects(ctx, []codalab.Object{{ID: id}})
}

// noteObjects adds the objects that a request names to the audit log's line: the objects themselves, those to which
// their relationships lead, and the bundle of an action.
func noteObjects(ctx context.Context, objects []codalab.Object) {
	for _, o := range objects {
		NoteObjects(ctx, o.ID)
		var attributes struct {
			UUID string `json:"uuid"`
		}
		if o.Decode(&attributes) == nil {
			NoteObjects(ctx, attributes.UUID)
		}
		for _, name := range slices.Sorted(maps.Keys(o.Relationships)) {
			for _, link := range append(o.Relationships[name].Links(), first(o.Relationships[name].Link())...) {
				NoteObjects(ctx, link.ID)
			}
		}
	}
}

// NoteObjects adds objects that a request is about to the audit log's line. It leaves out empty ids.
func NoteObjects(ctx context.Context, ids ...string) {
	noted, ok := ctx.Value(objectsKey{}).(*[]string)
	const most, longest = 100, 64
	for _, id := range ids {
		if ok && id != "" && len(*noted) < most && !slices.Contains(*noted, id) {
			*noted = append(*noted, id[:min(len(id), longest)])
		}
	}
}

func first(link codalab.Link, ok bool) []codalab.Link {
	if !ok {
		return nil
	}
	return []codalab.Link{link}
}
