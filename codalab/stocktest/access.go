package stocktest

import (
	"net/http"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// account is the server's record of a user. The stand-in has no quotas.
type account struct {
	User
	id string
}

func (u *account) root() bool { return u.Name == RootName }

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
			_ = answerJSON(w, codalab.TokenAnswer{ // plain texts always encode
				Access: access, Refresh: codalab.NewUUID(), Type: "Bearer", Seconds: 3600, Scope: "default",
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
	return answerDocument(w, codalab.NewObject("users", u.id, codalab.User{UserName: u.Name, HasAccess: true, Account: &codalab.Account{IsRootUser: new(u.root())}}))
}

// owns reports whether a user may do everything with a bundle. Nobody else may do anything with
// it: the stand-in has no groups.
func (u *account) owns(b *bundle) bool { return b != nil && (u.root() || b.owner == u.id) }

// allowed returns a bundle that a user needs a permission of, "read" or "all". A bundle that
// does not exist is refused in the same words as another user's
// (codalab/objects/permission.py: _check_permissions). The caller holds the lock.
func (s *Server) allowed(u *account, uuid, need string) (*bundle, error) {
	if b := s.bundle(uuid); u.owns(b) {
		return b, nil
	}
	return nil, refuse(http.StatusForbidden, "User %s(%s) does not have sufficient permissions on bundle %s (have none, need %s).",
		u.Name, u.id, uuid, need)
}

// permit is allowed for callers that do not hold the lock.
func (s *Server) permit(u *account, uuid, need string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.allowed(u, uuid, need)
	return err
}
