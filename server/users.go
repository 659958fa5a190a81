package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Server) userRoutes() []route {
	return []route{
		{pattern: "GET /user", serve: s.ownUser, worker: true, differs: "last_login is the last sign-in by any program; CodaLab counts only those on its web page"},
		{pattern: "PATCH /user", serve: s.patchOwnUser},
		{pattern: "PATCH /user/increment_disk_used", serve: s.incrementDiskUsed, differs: "the user must be allowed to change the bundle; while an upload is under way nothing is written, since the server counts the bytes itself"},
		{pattern: "GET /users", serve: bounded(s.searchUsers), public: true, differs: "every user may search by what they see of a user; by mistake CodaLab refuses nearly all searches of users other than root. Email, quotas and use are for root"},
		{pattern: "GET /users/{user}", serve: s.user, public: true, worker: true},
		{pattern: "PATCH /users", serve: s.patchUsers, differs: "there is no protected mode: has_access cannot be set. root sets email, but not disk_used and dates, which the server keeps"},
		{pattern: "DELETE /users", serve: s.deleteUsers, differs: "names at most 20 things of each kind that the user still owns"},
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
	attributes, root, protected := privateAttributes(s.liveUser(u)), u.Root(), false
	attributes.IsRootUser, attributes.ProtectedMode = &root, &protected
	return writeDocument(w, codalab.NewObject("users", u.ID, attributes), nil)
}

// user returns the user with this id or name (codalab/rest/users.py: fetch_user).
func (s *Server) user(w http.ResponseWriter, r *http.Request, u store.User) error {
	name := r.PathValue("user")
	other, err := s.Store.User(r.Context(), name)
	if errors.Is(err, store.ErrNotFound) {
		return refuse(http.StatusNotFound, "User %s not found", name)
	}
	if err != nil {
		return err
	}
	return writeDocument(w, userObject(u, other), nil)
}

// userEdit is a change of a user's account. Absent fields stay as they are.
type userEdit struct {
	UserName      *string `json:"user_name"`
	FirstName     *string `json:"first_name"`
	LastName      *string `json:"last_name"`
	Affiliation   *string `json:"affiliation"`
	URL           *string `json:"url"`
	Notifications *int    `json:"notifications"`

	// Only root changes these.
	Email            *string         `json:"email"`
	TimeQuota        *float64        `json:"time_quota"`
	ParallelRunQuota *float64        `json:"parallel_run_quota"`
	DiskQuota        *float64        `json:"disk_quota"`
	TimeUsed         *float64        `json:"time_used"`
	DiskUsed         json.RawMessage `json:"disk_used"`
	HasAccess        json.RawMessage `json:"has_access"`
	DateJoined       json.RawMessage `json:"date_joined"`
	LastLogin        json.RawMessage `json:"last_login"`
}

// onlyRoot reports whether the change is one that only root may make (codalab/rest/schemas.py:
// USER_READ_ONLY_FIELDS).
func (e userEdit) onlyRoot() bool {
	return e.Email != nil || e.TimeQuota != nil || e.ParallelRunQuota != nil || e.DiskQuota != nil || e.TimeUsed != nil ||
		e.DiskUsed != nil || e.HasAccess != nil || e.DateJoined != nil || e.LastLogin != nil
}

// apply makes the change or refuses it.
func (e userEdit) apply(u *store.User) error {
	if e.HasAccess != nil {
		return refuse(http.StatusBadRequest, "This CodaLab instance is not in protected mode.")
	}
	if e.DiskUsed != nil || e.DateJoined != nil || e.LastLogin != nil {
		return refuse(http.StatusForbidden, "The server itself keeps disk_used, date_joined and last_login.")
	}
	if e.UserName != nil && *e.UserName != u.Name {
		if !codalab.IsName(*e.UserName) {
			return refuse(http.StatusBadRequest, "User name characters must be alphanumeric, underscores, periods, or dashes.")
		}
		u.Name = *e.UserName
	}
	for to, text := range map[*string]*string{
		&u.FirstName: e.FirstName, &u.LastName: e.LastName, &u.Affiliation: e.Affiliation, &u.URL: e.URL, &u.Email: e.Email,
	} {
		const longest = 255
		if text != nil && len(*text) > longest {
			return refuse(http.StatusBadRequest, "A text of the account is longer than %d bytes", longest)
		}
		if text != nil {
			*to = termtext.OneLine(*text)
		}
	}
	if e.URL != nil && *e.URL != "" {
		if at, err := url.Parse(*e.URL); err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
			return refuse(http.StatusBadRequest, "Not a valid URL.")
		}
	}
	for to, n := range map[*int64]*float64{
		&u.TimeQuota: e.TimeQuota, &u.ParallelRunQuota: e.ParallelRunQuota, &u.DiskQuota: e.DiskQuota, &u.TimeUsed: e.TimeUsed,
	} {
		if n == nil {
			continue
		}
		if !(*n >= 0 && *n < 1<<60) {
			return refuse(http.StatusBadRequest, "A quota must be at least 0 and less than 2^60")
		}
		*to = int64(*n)
	}
	if e.Notifications != nil {
		u.Notifications = *e.Notifications
	}
	return nil
}

// patchOwnUser changes what users tell of themselves (codalab/rest/users.py:
// update_authenticated_user).
func (s *Server) patchOwnUser(w http.ResponseWriter, r *http.Request, u store.User) error {
	edits, _, err := readUserEdits(w, r)
	if err != nil {
		return err
	}
	if edits[0].onlyRoot() {
		return refuse(http.StatusForbidden, "These fields are read-only: email, has_access, time_quota, parallel_run_quota, "+
			"time_used, disk_quota, disk_used, date_joined, last_login")
	}
	if u, err = s.changeUser(r, u.ID, edits[0]); err != nil {
		return err
	}
	return writeDocument(w, codalab.NewObject("users", u.ID, privateAttributes(u)), nil)
}

// patchUsers changes one user's account for root (codalab/rest/users.py: update_users).
func (s *Server) patchUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	if !u.Root() {
		return refuse(http.StatusForbidden, "Only root user can update other users.")
	}
	edits, ids, err := readUserEdits(w, r)
	if err != nil {
		return err
	}
	other, err := s.changeUser(r, ids[0], edits[0])
	if err != nil {
		return err
	}
	return writeDocument(w, []codalab.Object{userObject(u, other)}, nil)
}

// readUserEdits reads the change of one user.
func readUserEdits(w http.ResponseWriter, r *http.Request) (edits []userEdit, ids []string, err error) {
	objects, err := readObjects(w, r)
	if err != nil {
		return nil, nil, err
	}
	if len(objects) != 1 {
		return nil, nil, refuse(http.StatusBadRequest, "Users can only be updated one at a time.")
	}
	var e userEdit
	if objects[0].Decode(&e) != nil {
		return nil, nil, refuse(http.StatusBadRequest, "A user's attributes have the wrong types")
	}
	return []userEdit{e}, []string{objects[0].ID}, nil
}

func (s *Server) changeUser(r *http.Request, id string, e userEdit) (store.User, error) {
	u, err := s.Store.ChangeUser(r.Context(), id, e.apply)
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = refuse(http.StatusNotFound, "User with ID %s not found", id)
	case errors.Is(err, store.ErrExists):
		err = refuse(http.StatusBadRequest, "User name %s is already taken.", deref(e.UserName))
	}
	return u, err
}

// deleteUsers deletes users who own nothing (codalab/rest/users.py: delete_user).
func (s *Server) deleteUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := readIDs(w, r, "users")
	if err != nil {
		return err
	}
	for _, id := range ids { // check all before deleting any
		if id == store.RootID {
			return refuse(http.StatusUnauthorized, "Cannot delete root user.")
		}
		if !u.Root() && id != u.ID {
			return refuse(http.StatusUnauthorized, "As a non-root user, you can only delete your own account.")
		}
	}
	for _, id := range ids {
		owned, err := s.Store.DeleteUser(r.Context(), id)
		if errors.Is(err, store.ErrNotFound) {
			return refuse(http.StatusNotFound, "User %s not found", id)
		}
		if err != nil {
			return err
		}
		if err := stillOwns(id, owned); err != nil {
			return err
		}
	}
	return writeMeta(w, "ids", ids)
}

// stillOwns refuses to delete a user who owns something.
func stillOwns(id string, owned store.Owned) error {
	var lines []string
	for _, some := range []struct {
		what  string
		uuids []string
	}{{"bundles, can't delete user", owned.Bundles}, {"worksheets, can't delete", owned.Worksheets}, {"groups, can't delete", owned.Groups}} {
		if len(some.uuids) > 0 {
			lines = append(lines, fmt.Sprintf("User %s owns %s. UUIDs: %s", id, some.what, strings.Join(some.uuids, ",")))
		}
	}
	if len(lines) > 0 {
		return refuse(http.StatusNotFound, "%s", strings.Join(lines, "\n"))
	}
	return nil
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
	// An upload may have failed by now. cl finds that out from the answer to its upload, which it
	// reads only if this request succeeds.
	if !b.State.Final() {
		if err := s.announce(r.Context(), b, in.Increment); err != nil {
			return err
		}
	}
	if u, err = s.Store.User(r.Context(), u.ID); err != nil {
		return err
	}
	return writeDocument(w, []codalab.Object{codalab.NewObject("users", u.ID, privateAttributes(s.liveUser(u)))}, nil)
}
