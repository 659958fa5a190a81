package server

import (
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Server) userRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /user", Serve: s.ownUser, Worker: true, WorkerToken: true, Differs: "last_login is the last sign-in by any program; CodaLab counts only those on its web page"},
		{Pattern: "PATCH /user", Serve: s.patchOwnUser},
		{Pattern: "PATCH /user/increment_disk_used", Serve: s.incrementDiskUsed, Differs: "the user must be allowed to change the bundle; while an upload is under way nothing is written, since the server counts the bytes itself"},
		{Pattern: "GET /users", Serve: bounded(s.searchUsers), Public: true, Differs: "every user may search by what they see of a user; by mistake CodaLab refuses nearly all searches of users other than root. Email, quotas and use are for root"},
		{Pattern: "GET /users/{user}", Serve: s.user, Public: true, Worker: true},
		{Pattern: "PATCH /users", Serve: s.patchUsers, Differs: "there is no protected mode: has_access cannot be set. root sets email, but not disk_used and dates, which the server keeps"},
		{Pattern: "DELETE /users", Serve: s.deleteUsers, Differs: "names at most 20 things of each kind that the user still owns"},
	}
}

// userAttributes are what other users see of a user (codalab/rest/schemas.py: UserSchema).
type userAttributes struct {
	UserName    string  `json:"user_name"`
	FirstName   string  `json:"first_name"`
	LastName    string  `json:"last_name"`
	Affiliation string  `json:"affiliation"`
	URL         *string `json:"url"`
	DateJoined  string  `json:"date_joined"`
	AvatarID    *string `json:"avatar_id"`
	HasAccess   bool    `json:"has_access"`
}

// ownAttributes are what a user sees of their own account (AuthenticatedUserSchema), and root of
// every account (AdminUserSchema).
type ownAttributes struct {
	userAttributes
	Email            string  `json:"email"`
	Notifications    int     `json:"notifications"`
	TimeQuota        int64   `json:"time_quota"`
	ParallelRunQuota int64   `json:"parallel_run_quota"`
	TimeUsed         int64   `json:"time_used"`
	DiskQuota        int64   `json:"disk_quota"`
	DiskUsed         int64   `json:"disk_used"`
	LastLogin        *string `json:"last_login"`
	IsVerified       *bool   `json:"is_verified,omitempty"`
	IsRootUser       *bool   `json:"is_root_user,omitempty"`
	ProtectedMode    *bool   `json:"protected_mode,omitempty"`
}

// localTime is a time as Python's "%c" writes it.
const localTime = "Mon Jan _2 15:04:05 2006"

func publicAttributes(u store.User) userAttributes {
	a := userAttributes{
		UserName: u.Name, FirstName: u.FirstName, LastName: u.LastName, Affiliation: u.Affiliation,
		DateJoined: u.Joined.UTC().Format(localTime), HasAccess: true,
	}
	if u.URL != "" {
		a.URL = &u.URL
	}
	return a
}

func privateAttributes(u store.User) ownAttributes {
	a := ownAttributes{
		userAttributes: publicAttributes(u), Email: u.Email, Notifications: u.Notifications, TimeQuota: u.TimeQuota, TimeUsed: u.TimeUsed,
		ParallelRunQuota: u.ParallelRunQuota, DiskQuota: u.DiskQuota, DiskUsed: u.DiskUsed,
	}
	if !u.LastLogin.IsZero() {
		at := u.LastLogin.UTC().Format(localTime)
		a.LastLogin = &at
	}
	return a
}

// userObject is a user as the user u sees them (codalab/rest/users.py: allowed_user_schema).
func userObject(u, other store.User) codalab.Object {
	if !u.Root() {
		return codalab.NewObject("users", other.ID, publicAttributes(other))
	}
	attributes, verified := privateAttributes(other), true
	attributes.IsVerified = &verified
	return codalab.NewObject("users", other.ID, attributes)
}

// ownUser returns the user (codalab/rest/users.py: fetch_authenticated_user).
func (s *Server) ownUser(w http.ResponseWriter, _ *http.Request, u store.User) error {
	attributes, root, protected := privateAttributes(s.contents.Quotas.Live(u)), u.Root(), false
	attributes.IsRootUser, attributes.ProtectedMode = &root, &protected
	return rest.WriteDocument(w, codalab.NewObject("users", u.ID, attributes), nil)
}

// user returns the user with this id or name (codalab/rest/users.py: fetch_user).
func (s *Server) user(w http.ResponseWriter, r *http.Request, u store.User) error {
	name := r.PathValue("user")
	other, err := s.Store.User(r.Context(), name)
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "User %s not found", name)
	}
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, userObject(u, other), nil)
}

// incrementDiskUsed counts bytes of an upload before they have arrived (codalab/rest/users.py:
// increment_user_disk_used).
func (s *Server) incrementDiskUsed(w http.ResponseWriter, r *http.Request, u store.User) error {
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
	b, err := s.access.Writable(r.Context(), u, in.BundleUUID)
	if err != nil {
		return err
	}
	// An upload may have failed by now. cl finds that out from the answer to its upload, which it
	// reads only if this request succeeds.
	if !b.State.Final() {
		if err := s.contents.Quotas.Announce(r.Context(), b, in.Increment); err != nil {
			return err
		}
	}
	if u, err = s.Store.User(r.Context(), u.ID); err != nil {
		return err
	}
	return rest.WriteDocument(w, []codalab.Object{codalab.NewObject("users", u.ID, privateAttributes(s.contents.Quotas.Live(u)))}, nil)
}
