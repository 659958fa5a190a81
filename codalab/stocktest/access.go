package stocktest

import (
	"net/http"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// account is what the server keeps of a user. The stand-in has no quotas.
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
	return 0
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
