package accounts

import (
	"errors"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config has what Accounts needs. All fields are required.
type Config struct {
	Now    func() time.Time
	Store  *store.Store
	Access access.Access
	Quotas *contents.Quotas
	// RequireSignIn means that the server shows nothing to users who have not signed in.
	RequireSignIn bool
}

// Accounts serves users and groups.
type Accounts struct{ config Config }

// New returns Accounts.
func New(c Config) *Accounts { return &Accounts{c} }

// Routes returns the routes for users, groups and offers.
func (s *Accounts) Routes() []rest.Route {
	return append(append(s.userRoutes(), s.groupRoutes()...), s.offerRoutes()...)
}

func (s *Accounts) userRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /user", Serve: s.ownUser, Worker: true, WorkerToken: true, Begins: true, Differs: "last_login is the last sign-in by any program; CodaLab counts only those on its web page. disk_used has 4 KiB for each file, directory and link beside data_size; entries_used and entries_quota count these and bundles; disk_used_by_runs and time_used_by_runs are the parts of running runs; require_sign_in tells that public objects are for signed-in users only"},
		{Pattern: "PATCH /user", Serve: s.patchOwnUser, Differs: "a name cannot differ from another user's by case alone, nor be one that another user had before; a user has at most five former names; avatar_id is the uuid of a bundle"},
		{Pattern: "PATCH /user/increment_disk_used", Serve: s.incrementDiskUsed, Differs: "the user must be allowed to change the bundle; while an upload is under way nothing is written, since the server counts the bytes itself"},
		{Pattern: "GET /users", Serve: search.Bounded(s.searchUsers), Public: true, Differs: "every user may search by what they see of a user; by mistake CodaLab refuses nearly all searches of users other than root. Email, quotas and use are for root"},
		{Pattern: "GET /users/{user}", Serve: s.user, Public: true, Worker: true},
		{Pattern: "PATCH /users", Serve: s.patchUsers, Differs: "there is no protected mode: has_access cannot be set. root sets email and entries_quota, but not disk_used and dates, which the server keeps"},
		{Pattern: "DELETE /users", Serve: s.deleteUsers, Differs: "names at most 20 things of each kind that the user still owns"},
	}
}

// ownUser returns the user (codalab/rest/users.py: fetch_authenticated_user).
func (s *Accounts) ownUser(w http.ResponseWriter, r *http.Request, u store.User) error {
	running, err := s.config.Store.RunningUse(r.Context(), []string{u.ID})
	if err != nil {
		return err
	}
	shown := present.PrivateUser(s.config.Quotas.Live(u))
	shown.DiskUsedByRuns, shown.TimeUsedByRuns = running[u.ID].Disk, running[u.ID].Time
	shown.IsRootUser, shown.ProtectedMode = new(u.Root()), new(false)
	shown.RequireSignIn = s.config.RequireSignIn
	return rest.WriteDocument(w, codalab.NewObject("users", u.ID, shown), nil)
}

// user returns the user with this id or name (codalab/rest/users.py: fetch_user).
func (s *Accounts) user(w http.ResponseWriter, r *http.Request, u store.User) error {
	name := r.PathValue("user")
	other, err := s.config.Store.User(r.Context(), name)
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "User %s not found", name)
	}
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, present.UserObject(u, other), nil)
}

// incrementDiskUsed counts bytes of an upload before they have arrived (codalab/rest/users.py:
// increment_user_disk_used).
func (s *Accounts) incrementDiskUsed(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var in struct {
		Increment  int64  `json:"disk_used_increment"`
		BundleUUID string `json:"bundle_uuid"`
	}
	if len(objects) != 1 || objects[0].Decode(&in) != nil {
		return rest.Refuse(http.StatusBadRequest, "The request must name one bundle and a number of bytes")
	}
	if in.Increment <= 0 || in.Increment > 1<<50 {
		return rest.Refuse(http.StatusBadRequest, "Only positive disk increments are allowed, not %d", in.Increment)
	}
	b, err := s.config.Access.Writable(r.Context(), u, in.BundleUUID)
	if err != nil {
		return err
	}
	// The upload may have failed already. Then cl must read the answer to its upload, and it does so only
	// if this request succeeds.
	if err := s.config.Quotas.Announce(r.Context(), b, in.Increment); err != nil {
		return err
	}
	if u, err = s.config.Store.User(r.Context(), u.ID); err != nil {
		return err
	}
	return rest.WriteDocument(w, []codalab.Object{codalab.NewObject("users", u.ID, present.PrivateUser(s.config.Quotas.Live(u)))}, nil)
}
