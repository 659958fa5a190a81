package accounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// userEdit is a change of a user's account.
type userEdit struct {
	codalab.UserEdit
	// Nobody changes these, nor sets one of them to null.
	HasAccess   json.RawMessage `json:"has_access"`
	DiskUsed    json.RawMessage `json:"disk_used"`
	EntriesUsed json.RawMessage `json:"entries_used"`
	DateJoined  json.RawMessage `json:"date_joined"`
	LastLogin   json.RawMessage `json:"last_login"`

	by store.User // who asks for the change
}

// onlyRoot reports whether the change is one that only root may make (codalab/rest/schemas.py:
// USER_READ_ONLY_FIELDS).
func (e userEdit) onlyRoot() bool {
	return e.Email != nil || e.TimeQuota != nil || e.ParallelRunQuota != nil || e.DiskQuota != nil || e.EntriesQuota != nil || e.TimeUsed != nil ||
		e.DiskUsed != nil || e.EntriesUsed != nil || e.HasAccess != nil || e.DateJoined != nil || e.LastLogin != nil
}

// apply makes the change or refuses it.
func (e userEdit) apply(u *store.User) error {
	if e.HasAccess != nil {
		return rest.Refuse(http.StatusBadRequest, "This CodaLab instance is not in protected mode.")
	}
	if e.EntriesUsed != nil {
		return rest.Refuse(http.StatusForbidden, "The server itself keeps entries_used.")
	}
	if e.DiskUsed != nil || e.DateJoined != nil || e.LastLogin != nil {
		return rest.Refuse(http.StatusForbidden, "The server itself keeps disk_used, date_joined and last_login.")
	}
	if e.UserName != nil && *e.UserName != u.Name {
		if !codalab.IsName(*e.UserName) {
			return rest.Refuse(http.StatusBadRequest, "User name characters must be alphanumeric, underscores, periods, or dashes.")
		}
		if err := access.CheckNameSize(*e.UserName); err != nil {
			return err
		}
		if err := access.CheckSystemName(e.by, *e.UserName); err != nil {
			return err
		}
		u.Name = *e.UserName
	}
	for to, text := range map[*string]*string{
		&u.FirstName: e.FirstName, &u.LastName: e.LastName, &u.Affiliation: e.Affiliation, &u.URL: e.URL, &u.Email: e.Email,
	} {
		const longest = 255
		if text != nil && len(*text) > longest {
			return rest.Refuse(http.StatusBadRequest, "A text of the account is longer than %d bytes", longest)
		}
		if text != nil {
			*to = termtext.OneLine(*text)
		}
	}
	if e.URL != nil && *e.URL != "" {
		if at, err := url.Parse(*e.URL); err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
			return rest.Refuse(http.StatusBadRequest, "Not a valid URL.")
		}
	}
	for to, n := range map[*int64]*float64{
		&u.TimeQuota: e.TimeQuota, &u.ParallelRunQuota: e.ParallelRunQuota, &u.DiskQuota: e.DiskQuota,
		&u.EntriesQuota: e.EntriesQuota, &u.TimeUsed: e.TimeUsed,
	} {
		if n == nil {
			continue
		}
		if !(*n >= 0 && *n < 1<<60) {
			return rest.Refuse(http.StatusBadRequest, "A quota must be at least 0 and less than 2^60")
		}
		*to = int64(*n)
	}
	if e.Notifications != nil {
		if *e.Notifications < 0 || *e.Notifications > 2 { // codalab/objects/user.py
			return rest.Refuse(http.StatusBadRequest, "notifications must be 0, 1 or 2, not %d", *e.Notifications)
		}
		u.Notifications = *e.Notifications
	}
	return e.applyAvatar(u)
}

// applyAvatar changes the user's picture. It refuses other texts than uuids, because CodaLab's web page puts the text into an
// address as it is (frontend: EditableAvatar.js, fetchImg).
func (e userEdit) applyAvatar(u *store.User) error {
	if e.AvatarID == nil {
		return nil
	}
	if *e.AvatarID != "" && !codalab.IsUUID(*e.AvatarID) {
		return rest.Refuse(http.StatusBadRequest, "avatar_id must be the uuid of a bundle.")
	}
	u.Avatar = *e.AvatarID
	return nil
}

// patchOwnUser changes the user's own account (codalab/rest/users.py:
// update_authenticated_user).
func (s *Accounts) patchOwnUser(w http.ResponseWriter, r *http.Request, u store.User) error {
	edit, _, err := readUserEdit(w, r)
	if err != nil {
		return err
	}
	if edit.onlyRoot() {
		return rest.Refuse(http.StatusForbidden, "These fields are read-only: email, has_access, time_quota, parallel_run_quota, "+
			"time_used, disk_quota, disk_used, date_joined, last_login")
	}
	edit.by = u
	if u, err = s.changeUser(r, u.ID, edit); err != nil {
		return err
	}
	return rest.WriteDocument(w, codalab.NewObject("users", u.ID, present.PrivateUser(u)), nil)
}

// patchUsers changes one user's account for root (codalab/rest/users.py: update_users).
func (s *Accounts) patchUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	if !u.Root() {
		return rest.Refuse(http.StatusForbidden, "Only root user can update other users.")
	}
	edit, id, err := readUserEdit(w, r)
	if err != nil {
		return err
	}
	edit.by = u
	other, err := s.changeUser(r, id, edit)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, []codalab.Object{present.UserObject(u, other)}, nil)
}

// readUserEdit reads the change of one user.
func readUserEdit(w http.ResponseWriter, r *http.Request) (e userEdit, id string, err error) {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return e, "", err
	}
	if len(objects) != 1 {
		return e, "", rest.Refuse(http.StatusBadRequest, "Users can only be updated one at a time.")
	}
	if objects[0].Decode(&e) != nil {
		return e, "", rest.Refuse(http.StatusBadRequest, "A user's attributes have the wrong types")
	}
	return e, objects[0].ID, nil
}

func (s *Accounts) changeUser(r *http.Request, id string, e userEdit) (store.User, error) {
	u, err := s.config.Store.ChangeUser(r.Context(), id, e.apply)
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = rest.Refuse(http.StatusNotFound, "User with ID %s not found", id)
	case errors.Is(err, store.ErrExists):
		err = rest.Refuse(http.StatusBadRequest, "User name %s is already taken.", rest.Deref(e.UserName))
	case errors.Is(err, store.ErrTooMany):
		err = rest.Refuse(http.StatusBadRequest, "You have changed your name too often: take one that you had before, or ask the administrator.")
	}
	return u, err
}

// deleteUsers deletes users who own nothing (codalab/rest/users.py: delete_user).
func (s *Accounts) deleteUsers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := rest.ReadIDs(w, r, "users")
	if err != nil {
		return err
	}
	for _, id := range ids { // check all before deleting any
		if id == store.RootID {
			return rest.Refuse(http.StatusUnauthorized, "Cannot delete root user.")
		}
		if !u.Root() && id != u.ID {
			return rest.Refuse(http.StatusUnauthorized, "As a non-root user, you can only delete your own account.")
		}
	}
	for _, id := range ids {
		owned, err := s.config.Store.DeleteUser(r.Context(), id)
		if errors.Is(err, store.ErrNotFound) {
			return rest.Refuse(http.StatusNotFound, "User %s not found", id)
		}
		if err != nil {
			return err
		}
		if err := stillOwns(id, owned); err != nil {
			return err
		}
	}
	return rest.WriteMeta(w, "ids", ids)
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
		return rest.Refuse(http.StatusNotFound, "%s", strings.Join(lines, "\n"))
	}
	return nil
}
