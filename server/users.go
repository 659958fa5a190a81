package server

import (
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

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

// ownAttributes are what a user sees of their own account (AuthenticatedUserSchema).
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
	IsRootUser       *bool   `json:"is_root_user,omitempty"`
	ProtectedMode    *bool   `json:"protected_mode,omitempty"`
}

func publicAttributes(u store.User) userAttributes {
	return userAttributes{UserName: u.Name, DateJoined: u.Joined.UTC().Format("Mon Jan 02 15:04:05 2006"), HasAccess: true}
}

func privateAttributes(u store.User) ownAttributes {
	return ownAttributes{
		userAttributes: publicAttributes(u), Notifications: 2, TimeQuota: u.TimeQuota, TimeUsed: u.TimeUsed,
		ParallelRunQuota: u.ParallelRunQuota, DiskQuota: u.DiskQuota, DiskUsed: u.DiskUsed,
	}
}

func (s *Server) ownUser(w http.ResponseWriter, _ *http.Request, u store.User) error {
	attributes, root, protected := privateAttributes(u), u.Root(), false
	attributes.IsRootUser, attributes.ProtectedMode = &root, &protected
	return writeDocument(w, codalab.NewObject("users", u.ID, attributes), nil)
}

func (s *Server) user(w http.ResponseWriter, r *http.Request, u store.User) error {
	name := r.PathValue("user")
	other, err := s.Store.User(r.Context(), name)
	if errors.Is(err, store.ErrNotFound) {
		return refuse(http.StatusNotFound, "User %s not found", name)
	}
	if err != nil {
		return err
	}
	var attributes any = publicAttributes(other)
	if u.Root() {
		attributes = privateAttributes(other)
	}
	return writeDocument(w, codalab.NewObject("users", other.ID, attributes), nil)
}

// incrementDiskUsed counts bytes of an upload before they have arrived (codalab/rest/users.py:
// increment_user_disk_used).
func (s *Server) incrementDiskUsed(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := readObjects(w, r)
	if err != nil {
		return err
	}
	var in struct {
		Increment  int64  `json:"disk_used_increment"`
		BundleUUID string `json:"bundle_uuid"`
	}
	if len(objects) != 1 || objects[0].Decode(&in) != nil {
		return refuse(http.StatusBadRequest, "The request must name one bundle and a number of bytes")
	}
	if in.Increment <= 0 || in.Increment > 1<<50 {
		return refuse(http.StatusBadRequest, "Only positive disk increments are allowed, not %d", in.Increment)
	}
	b, err := s.writable(r.Context(), u, in.BundleUUID)
	if err != nil {
		return err
	}
	if b.State.Final() {
		return refuse(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
	}
	if err := s.Store.AddDiskUsed(r.Context(), b.UUID, in.Increment); err != nil {
		return err
	}
	if u, err = s.Store.User(r.Context(), u.ID); err != nil {
		return err
	}
	return writeDocument(w, []codalab.Object{codalab.NewObject("users", u.ID, privateAttributes(u))}, nil)
}
