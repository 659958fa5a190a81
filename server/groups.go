package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Server) groupRoutes() []route {
	return []route{
		{pattern: "GET /groups", serve: s.listGroups, worker: true},
		{pattern: "POST /groups", serve: s.createGroups},
		{pattern: "DELETE /groups", serve: s.deleteGroups},
		{pattern: "GET /groups/{group}", serve: s.showGroup},
		{pattern: "POST /groups/{group}/relationships/members", serve: s.addMembers(false), differs: "the answer lists the members that were added"},
		{pattern: "POST /groups/{group}/relationships/admins", serve: s.addMembers(true), differs: "the answer lists the admins that were added"},
		{pattern: "DELETE /groups/{group}/relationships/members", serve: s.removeMembers},
		{pattern: "DELETE /groups/{group}/relationships/admins", serve: s.removeMembers},
	}
}

// group returns the group with this uuid, beginning of a uuid, or name (codalab/objects/permission.py:
// unique_group).
func (s *Server) group(ctx context.Context, spec string) (store.Group, error) {
	found, err := s.Store.FindGroups(ctx, spec)
	how := "name"
	if codalab.IsUUID(spec) || codalab.IsUUIDPrefix(spec) {
		how = "uuid starting with"
	}
	switch {
	case err != nil:
		return store.Group{}, err
	case len(found) == 0:
		return store.Group{}, refuse(http.StatusNotFound, "Found no group with %s '%s'", how, spec)
	case len(found) > 1:
		return store.Group{}, refuse(http.StatusBadRequest, "Found multiple groups with %s '%s'", how, spec)
	}
	return found[0], nil
}

// administered returns a group that the user may change: root, its owner and its admins may
// (codalab/rest/util.py: get_group_info).
func (s *Server) administered(ctx context.Context, u store.User, spec string) (store.Group, error) {
	g, err := s.group(ctx, spec)
	if err != nil {
		return store.Group{}, err
	}
	if !g.UserDefined {
		return store.Group{}, refuse(http.StatusForbidden, "Cannot modify the public group %s.", spec)
	}
	if u.Root() || deref(g.OwnerID) == u.ID {
		return g, nil
	}
	members, err := s.Store.Members(ctx, []string{g.UUID})
	if err != nil {
		return store.Group{}, err
	}
	if !slices.ContainsFunc(members, func(m store.Member) bool { return m.UserID == u.ID && m.Admin }) {
		return store.Group{}, refuse(http.StatusForbidden, "You are not the admin of group %s.", spec)
	}
	return g, nil
}

// listGroups returns the user's groups, and all groups to root (codalab/rest/groups.py:
// fetch_groups).
func (s *Server) listGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	of := u.ID
	if u.Root() {
		of = ""
	}
	groups, err := s.Store.Groups(r.Context(), of)
	if err != nil {
		return err
	}
	objects, users, err := s.groupObjects(r.Context(), groups)
	if err != nil {
		return err
	}
	return writeDocument(w, objects, users)
}

// showGroup returns any group, with its members (codalab/rest/groups.py: fetch_group).
func (s *Server) showGroup(w http.ResponseWriter, r *http.Request, _ store.User) error {
	g, err := s.group(r.Context(), r.PathValue("group"))
	if err != nil {
		return err
	}
	objects, users, err := s.groupObjects(r.Context(), []store.Group{g})
	if err != nil {
		return err
	}
	return writeDocument(w, objects[0], users)
}

// groupObjects returns groups as clients see them, and their owners, admins and members.
func (s *Server) groupObjects(ctx context.Context, groups []store.Group) (objects, users []codalab.Object, err error) {
	objects = []codalab.Object{}
	var uuids, people []string
	for _, g := range groups {
		uuids = append(uuids, g.UUID)
	}
	list, err := s.Store.Members(ctx, uuids)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range groups {
		var admins, members []string
		for _, m := range list {
			switch {
			case m.GroupUUID != g.UUID || m.UserID == deref(g.OwnerID):
			case m.Admin:
				admins = append(admins, m.UserID)
			default:
				members = append(members, m.UserID)
			}
		}
		o := codalab.NewObject("groups", g.UUID, map[string]any{"name": g.Name, "user_defined": g.UserDefined})
		o.Relationships = map[string]codalab.Relationship{
			"owner":  codalab.ToOne("users", deref(g.OwnerID)),
			"admins": codalab.ToMany("users", admins), "members": codalab.ToMany("users", members),
		}
		objects = append(objects, o)
		people = append(append(append(people, admins...), members...), deref(g.OwnerID))
	}
	users, err = s.userObjects(ctx, people)
	return objects, users, err
}

// createGroups creates groups (codalab/rest/groups.py: create_group).
func (s *Server) createGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := readObjects(w, r)
	if err != nil {
		return err
	}
	var created []store.Group
	var names []string
	for _, o := range objects {
		var in struct {
			Name string `json:"name"`
		}
		if o.Decode(&in) != nil {
			return refuse(http.StatusBadRequest, "A group's name must be a text")
		}
		if err := checkGroupName(in.Name); err != nil {
			return err
		}
		created = append(created, store.Group{UUID: codalab.NewUUID(), Name: in.Name, OwnerID: &u.ID, UserDefined: true})
		names = append(names, in.Name)
	}
	err = s.Store.AddGroups(r.Context(), created...)
	if errors.Is(err, store.ErrExists) {
		return refuse(http.StatusConflict, "Group with name %s already exists", strings.Join(names, " or "))
	}
	if err != nil {
		return err
	}
	answer, _, err := s.groupObjects(r.Context(), created)
	if err != nil {
		return err
	}
	return writeDocument(w, answer, nil)
}

// deleteGroups deletes groups, with all that they were permitted.
func (s *Server) deleteGroups(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := readIDs(w, r, "groups")
	if err != nil {
		return err
	}
	var groups []store.Group
	for _, id := range ids { // check all before deleting any
		g, err := s.administered(r.Context(), u, id)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		if err := s.Store.DeleteGroup(r.Context(), g.UUID); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// addMembers adds users to a group, or makes its members admins or plain members
// (codalab/rest/groups.py: add_group_members_helper). It answers with the request.
func (s *Server) addMembers(admin bool) handler {
	return func(w http.ResponseWriter, r *http.Request, u store.User) error {
		ids, err := readIDs(w, r, "users")
		if err != nil {
			return err
		}
		g, err := s.administered(r.Context(), u, r.PathValue("group"))
		if err != nil {
			return err
		}
		var links []codalab.Link
		for _, id := range ids { // check all before adding any
			if id == deref(g.OwnerID) {
				return refuse(http.StatusBadRequest, "Cannot relegate the group owner into non-admin status")
			}
			other, err := s.Store.User(r.Context(), id)
			if errors.Is(err, store.ErrNotFound) {
				return refuse(http.StatusNotFound, "User %s not found", id)
			}
			if err != nil {
				return err
			}
			links = append(links, codalab.Link{Type: "users", ID: other.ID})
		}
		for _, link := range links {
			if err := s.Store.SetMember(r.Context(), store.Member{UserID: link.ID, GroupUUID: g.UUID, Admin: admin}); err != nil {
				return err
			}
		}
		return writeDocument(w, links, nil)
	}
}

// removeMembers removes users from a group.
func (s *Server) removeMembers(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := readIDs(w, r, "users")
	if err != nil {
		return err
	}
	g, err := s.administered(r.Context(), u, r.PathValue("group"))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.Store.RemoveMember(r.Context(), id, g.UUID); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
