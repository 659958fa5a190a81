package accounts

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Accounts) groupRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /groups", Serve: s.listGroups, Worker: true},
		{Pattern: "POST /groups", Serve: s.createGroups, Differs: "refuses a name that differs from a group's by case alone, that of another user, and names such as admin"},
		{Pattern: "DELETE /groups", Serve: s.deleteGroups},
		{Pattern: "GET /groups/{group}", Serve: s.showGroup, Differs: "the admins and members of a group are shown to these and to root alone; the beginning of a uuid names a group of the user"},
		{Pattern: "POST /groups/{group}/relationships/members", Serve: s.addMembers(false), Differs: "the answer lists the members that were added"},
		{Pattern: "POST /groups/{group}/relationships/admins", Serve: s.addMembers(true), Differs: "the answer lists the admins that were added"},
		{Pattern: "DELETE /groups/{group}/relationships/members", Serve: s.removeMembers, Differs: "members may leave; the owner cannot be removed"},
		{Pattern: "DELETE /groups/{group}/relationships/admins", Serve: s.removeMembers, Differs: "members may leave; the owner cannot be removed"},
	}
}

// listGroups returns the user's groups, and all groups to root (codalab/rest/groups.py:
// fetch_groups).
func (s *Accounts) listGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	of := u.ID
	if u.Root() {
		of = ""
	}
	groups, err := s.config.Store.Groups(r.Context(), of)
	if err != nil {
		return err
	}
	objects, users, err := s.groupObjects(r.Context(), groups)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, objects, users)
}

// showGroup returns any group, so that every user can share with it. Its admins and members are shown to those alone,
// and to root; its owner to all users, who see by that with whom they share (codalab/rest/groups.py: fetch_group).
func (s *Accounts) showGroup(w http.ResponseWriter, r *http.Request, u store.User) error {
	g, err := s.config.Access.Group(r.Context(), u, r.PathValue("group"))
	if err != nil {
		return err
	}
	all, err := s.config.Access.SeesMembers(r.Context(), u, g)
	if err != nil {
		return err
	}
	objects, users, err := s.groupObjects(r.Context(), []store.Group{g})
	if err != nil {
		return err
	}
	if !all {
		for _, name := range []string{"admins", "members"} {
			objects[0].Relationships[name] = codalab.ToMany("users", nil)
		}
		users = slices.DeleteFunc(users, func(o codalab.Object) bool { return o.ID != rest.Deref(g.OwnerID) })
	}
	return rest.WriteDocument(w, objects[0], users)
}

// groupObjects returns groups as clients see them, and their owners, admins and members.
func (s *Accounts) groupObjects(ctx context.Context, groups []store.Group) (objects, users []codalab.Object, err error) {
	objects = []codalab.Object{}
	var uuids, people []string
	for _, g := range groups {
		uuids = append(uuids, g.UUID)
	}
	list, err := s.config.Store.Members(ctx, uuids)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range groups {
		var admins, members []string
		for _, m := range list {
			switch {
			case m.GroupUUID != g.UUID || m.UserID == rest.Deref(g.OwnerID):
			case m.Admin:
				admins = append(admins, m.UserID)
			default:
				members = append(members, m.UserID)
			}
		}
		o := codalab.NewObject("groups", g.UUID, codalab.Group{Name: g.Name, UserDefined: g.UserDefined})
		o.Relationships = map[string]codalab.Relationship{
			"owner":  codalab.ToOne("users", rest.Deref(g.OwnerID)),
			"admins": codalab.ToMany("users", admins), "members": codalab.ToMany("users", members),
		}
		objects = append(objects, o)
		people = append(append(append(people, admins...), members...), rest.Deref(g.OwnerID))
	}
	users, err = present.UserObjects(ctx, s.config.Store, people)
	return objects, users, err
}

// createGroups creates groups (codalab/rest/groups.py: create_group).
func (s *Accounts) createGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var created []store.Group
	var names []string
	for _, o := range objects {
		var in codalab.Group
		if o.Decode(&in) != nil {
			return rest.Refuse(http.StatusBadRequest, "A group's name must be a text")
		}
		if err := s.checkGroupName(r.Context(), u, in.Name); err != nil {
			return err
		}
		created = append(created, store.Group{UUID: codalab.NewUUID(), Name: in.Name, OwnerID: &u.ID, UserDefined: true})
		names = append(names, in.Name)
	}
	err = s.config.Store.AddGroups(r.Context(), created...)
	if errors.Is(err, store.ErrExists) {
		return rest.Refuse(http.StatusConflict, "Group with name %s already exists", strings.Join(names, " or "))
	}
	if errors.Is(err, store.ErrTooMany) {
		return rest.Refuse(http.StatusForbidden, "A user may have %d groups: remove some before you make others.", store.MostGroups)
	}
	if err != nil {
		return err
	}
	answer, _, err := s.groupObjects(r.Context(), created)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, answer, nil)
}

// checkGroupName refuses a name that a user cannot give to a group. Nobody takes the name of another user: what is shared
// with the group would seem to be shared with that user.
func (s *Accounts) checkGroupName(ctx context.Context, u store.User, name string) error {
	if err := access.CheckGroupName(name); err != nil {
		return err
	}
	if err := access.CheckSystemName(u, name); err != nil {
		return err
	}
	others, err := s.config.Store.UsersNamedLike(ctx, name)
	if err == nil && !u.Root() && slices.ContainsFunc(others, func(other store.User) bool { return other.ID != u.ID }) {
		err = rest.Refuse(http.StatusConflict, "%s is the name of a user: give the group another one", name)
	}
	return err
}

// deleteGroups deletes groups, with all that they were permitted.
func (s *Accounts) deleteGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := rest.ReadIDs(w, r, "groups")
	if err != nil {
		return err
	}
	var groups []store.Group
	for _, id := range ids { // check all before deleting any
		g, err := s.config.Access.Administered(r.Context(), u, id)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		if err := s.config.Store.DeleteGroup(r.Context(), g.UUID); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// addMembers adds users to a group, or makes its members admins or plain members
// (codalab/rest/groups.py: add_group_members_helper). It answers with the request.
func (s *Accounts) addMembers(admin bool) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request, u store.User) error {
		ids, err := rest.ReadIDs(w, r, "users")
		if err != nil {
			return err
		}
		g, err := s.config.Access.Administered(r.Context(), u, r.PathValue("group"))
		if err != nil {
			return err
		}
		var links []codalab.Link
		for _, id := range ids { // check all before adding any
			other, err := s.config.Store.User(r.Context(), id)
			if errors.Is(err, store.ErrNotFound) {
				return rest.Refuse(http.StatusNotFound, "User %s not found", id)
			}
			if err != nil {
				return err
			}
			if other.ID == rest.Deref(g.OwnerID) { // also by name
				return rest.Refuse(http.StatusBadRequest, "Cannot relegate the group owner into non-admin status")
			}
			links = append(links, codalab.Link{Type: "users", ID: other.ID})
		}
		for _, link := range links {
			if err := s.config.Store.SetMember(r.Context(), store.Member{UserID: link.ID, GroupUUID: g.UUID, Admin: admin}); err != nil {
				return err
			}
		}
		return rest.WriteDocument(w, links, nil)
	}
}

// removeMembers removes users from a group. Members may leave it, but not its owner, who could not read any more what is
// shared with it.
func (s *Accounts) removeMembers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := rest.ReadIDs(w, r, "users")
	if err != nil {
		return err
	}
	g, err := s.config.Access.Administered(r.Context(), u, r.PathValue("group"))
	if rest.HasStatus(err, http.StatusForbidden) && len(ids) == 1 && ids[0] == u.ID {
		g, err = s.ownGroup(r, u)
	}
	if err != nil {
		return err
	}
	if slices.Contains(ids, rest.Deref(g.OwnerID)) {
		return rest.Refuse(http.StatusBadRequest, "The owner of group %s cannot be removed from it.", g.Name)
	}
	for _, id := range ids {
		if err := s.config.Store.RemoveMember(r.Context(), id, g.UUID); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ownGroup returns the group that a request names, of which the user is a member.
func (s *Accounts) ownGroup(r *http.Request, u store.User) (store.Group, error) {
	g, err := s.config.Access.Group(r.Context(), u, r.PathValue("group"))
	if err != nil {
		return g, err
	}
	member, err := s.config.Access.SeesMembers(r.Context(), u, g)
	if err == nil && (!member || !g.UserDefined) {
		err = rest.Refuse(http.StatusForbidden, "You are not a member of group %s.", g.Name)
	}
	return g, err
}
