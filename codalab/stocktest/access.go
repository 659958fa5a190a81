package stocktest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// account is a user as the server has it. The stand-in has no quotas.
type account struct {
	User
	id string
}

func (a *account) root() bool { return a.Name == RootName }

func (s *Server) addUser(u User) {
	a := &account{User: u, id: codalab.NewUUID()}
	if a.root() {
		a.id = "0"
	}
	s.users[a.id] = a
}

// token hands out a token for a password (codalab/rest/oauth2.py; grants of other kinds are
// refused).
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		if r.PostFormValue("grant_type") == "password" && u.Name == r.PostFormValue("username") && u.Password == r.PostFormValue("password") {
			access := codalab.NewUUID()
			s.tokens[access] = u
			_ = answerJSON(w, map[string]any{ // plain texts always encode
				"access_token": access, "expires_in": 3600, "token_type": "Bearer", "scope": "default", "refresh_token": codalab.NewUUID(),
			})
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "Invalid credentials given."}`)) // the caller may have gone
}

// caller returns the user of a request's token, nil for an unknown token.
func (s *Server) caller(r *http.Request) *account {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[token]
}

func (s *Server) showUser(w http.ResponseWriter, _ *http.Request, u *account) error {
	return answerDocument(w, codalab.NewObject("users", u.id, map[string]any{"user_name": u.Name, "is_root_user": u.root()}))
}

// group is a group of users; its owner is a member.
type group struct {
	id, name, owner string
	members         []string
}

func (g *group) has(user string) bool { return slices.Contains(g.members, user) }

// groupByName finds a group by its name or id; the caller holds the lock.
func (s *Server) groupByName(spec string) *group {
	for _, g := range s.groups {
		if g.name == spec || g.id == spec {
			return g
		}
	}
	return nil
}

func (g *group) object() codalab.Object {
	o := codalab.NewObject("groups", g.id, map[string]any{"name": g.name, "user_defined": true})
	o.Relationships = map[string]codalab.Relationship{
		"owner": codalab.ToOne("users", g.owner), "admins": codalab.ToMany("users", nil), "members": codalab.ToMany("users", g.members),
	}
	return o
}

// makeGroup is codalab/rest/groups.py: create_group.
func (s *Server) makeGroup(w http.ResponseWriter, _ *http.Request, u *account, in []codalab.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var made []codalab.Object
	for _, o := range in {
		var wanted struct{ Name string }
		if err := o.Decode(&wanted); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
		if s.groupByName(wanted.Name) != nil {
			return refuse(http.StatusConflict, "Group with name %s already exists", wanted.Name)
		}
		g := &group{id: codalab.NewUUID(), name: wanted.Name, owner: u.id, members: []string{u.id}}
		s.groups[g.id] = g
		made = append(made, g.object())
	}
	return answerDocument(w, made)
}

func (s *Server) showGroup(w http.ResponseWriter, r *http.Request, _ *account) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groupByName(r.PathValue("group"))
	if g == nil {
		return refuse(http.StatusNotFound, "Found no group with name '%s'", r.PathValue("group"))
	}
	return answerDocument(w, g.object())
}

// addMembers is codalab/rest/groups.py: add_group_members_helper.
func (s *Server) addMembers(w http.ResponseWriter, r *http.Request, u *account, users []codalab.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groupByName(r.PathValue("group"))
	if g == nil || (g.owner != u.id && !u.root()) {
		return refuse(http.StatusForbidden, "You are not the admin of group %s.", r.PathValue("group"))
	}
	for _, o := range users {
		if !g.has(o.ID) {
			g.members = append(g.members, o.ID)
		}
	}
	return answerDocument(w, users)
}

// What a user may do with a bundle (codalab/model/tables.py).
const (
	mayRead = 1
	mayAll  = 2
)

func permissionNames() [3]string { return [...]string{"none", "read", "all"} }

// permission is what a user may do with a bundle; the caller holds the lock
// (codalab/model/bundle_model.py: get_user_permissions).
func (s *Server) permission(u *account, b *bundle) int {
	if u.root() || b.owner == u.id {
		return mayAll
	}
	most := 0
	for id, p := range b.permissions {
		if g := s.groups[id]; g != nil && g.has(u.id) {
			most = max(most, p)
		}
	}
	return most
}

// allowed returns a bundle that a user may read or change. Nobody may read a bundle that does
// not exist (codalab/objects/permission.py: _check_permissions). The caller holds the lock.
func (s *Server) allowed(u *account, uuid string, need int) (*bundle, error) {
	b, have := s.bundle(uuid), 0
	if b != nil {
		have = s.permission(u, b)
	}
	if have >= need && b != nil {
		return b, nil
	}
	names := permissionNames()
	return nil, refuse(http.StatusForbidden, "User %s(%s) does not have sufficient permissions on bundle %s (have %s, need %s).",
		u.Name, u.id, uuid, names[have], names[need])
}

// permit is allowed for callers that do not hold the lock.
func (s *Server) permit(u *account, uuid string, need int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.allowed(u, uuid, need)
	return err
}

// setPermissions is codalab/rest/bundles.py: _set_bundle_permissions.
func (s *Server) setPermissions(w http.ResponseWriter, _ *http.Request, u *account, in []codalab.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range in {
		var to struct{ Permission int }
		bundle, _ := o.Relationships["bundle"].Link()
		group, _ := o.Relationships["group"].Link()
		if err := json.Unmarshal(o.Attributes, &to); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
		b, err := s.allowed(u, bundle.ID, mayAll)
		if err != nil {
			return err
		}
		b.permissions[group.ID] = to.Permission
	}
	return answerDocument(w, in)
}
