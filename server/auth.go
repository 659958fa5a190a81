package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Lifetimes of tokens.
const (
	accessLife  = time.Hour
	refreshLife = 30 * 24 * time.Hour
	// refreshGrace is how long a refresh token stays valid after its first use: clients repeat
	// a request after a second if its answer was lost.
	refreshGrace = time.Minute
)

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// authenticated serves a route for the user whose access token the request has.
func (s *Server) authenticated(one rest.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, err := s.authenticate(r, one.Public && !s.RequireSignIn)
		if err == nil {
			err = one.Admit(r, u)
		}
		if err == nil {
			err = rest.CheckTexts(one.Pattern, r)
		}
		seen, objects := &watched{ResponseWriter: w, status: http.StatusOK}, []string{}
		if one.Changes() {
			r = rest.WithObjects(r, &objects)
		}
		if err == nil {
			err = s.serve(one, seen, r, u)
		}
		if err != nil {
			rest.Drain(w, r, u.ID != "")
		}
		s.AnswerError(seen, r, err)
		s.metrics.request(one.Pattern, seen.status)
		if one.Changes() && seen.status != http.StatusUnauthorized {
			s.audit(r, u, objects, seen.status)
		}
	}
}

// authenticate returns the user of the request. On a public route a request without a valid token
// is that of a user who has not signed in (codalab/server/auth.py: OAuth2Authenticator).
func (s *Server) authenticate(r *http.Request, public bool) (store.User, error) {
	nobody := rest.Refuse(http.StatusUnauthorized, "User is not authenticated.")
	if public {
		nobody = nil
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return store.User{}, nobody
	}
	u, err := s.Store.UserOfToken(r.Context(), hashToken(token), s.Now())
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, nobody
	}
	return u, err
}

// token grants tokens for a password or a refresh token (codalab/rest/oauth2.py:
// handle_token).
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	s.AnswerError(w, r, s.grantToken(w, r))
}

func (s *Server) grantToken(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	client, _, _ := r.BasicAuth()
	if err := r.ParseForm(); err != nil {
		return writeTokenError(w, http.StatusBadRequest, "invalid_request", "The form cannot be read.")
	}
	if client != "codalab_cli_client" && client != "codalab_worker_client" {
		return writeTokenError(w, http.StatusUnauthorized, "invalid_client", "")
	}
	var u store.User
	var err error
	description := ""
	switch r.PostForm.Get("grant_type") {
	case "password":
		description = "Invalid credentials given."
		u, err = s.login(r.Context(), r.PostForm.Get("username"), r.PostForm.Get("password"), s.clientAddress(r))
	case "refresh_token":
		u, err = s.Store.UseRefresh(r.Context(), hashToken(r.PostForm.Get("refresh_token")), client, s.Now(), refreshGrace)
	default:
		return writeTokenError(w, http.StatusBadRequest, "unsupported_grant_type", "")
	}
	if errors.Is(err, store.ErrNotFound) {
		return writeTokenError(w, http.StatusUnauthorized, "invalid_grant", description)
	}
	if err != nil {
		return err
	}
	return s.grant(w, r, u, client)
}

func (s *Server) grant(w http.ResponseWriter, r *http.Request, u store.User, client string) error {
	access, refresh, now := rand.Text()+rand.Text(), rand.Text()+rand.Text(), s.Now()
	err := s.Store.AddGrant(r.Context(), store.Grant{
		Access: hashToken(access), Refresh: hashToken(refresh), Client: client, UserID: u.ID,
		AccessExpires: store.Time{Time: now.Add(accessLife)}, RefreshExpires: store.Time{Time: now.Add(refreshLife)},
	}, now)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, map[string]any{
		"access_token": access, "expires_in": int(accessLife.Seconds()), "token_type": "Bearer",
		"scope": "default", "refresh_token": refresh,
	})
}

// revoke ends the tokens of the grant to which a token belongs (RFC 7009). It answers alike for a token
// that it does not know.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	err := r.ParseForm()
	if err != nil {
		err = rest.Refuse(http.StatusBadRequest, "The form cannot be read.")
	} else {
		err = s.Store.DeleteGrant(r.Context(), hashToken(r.PostForm.Get("token")))
	}
	s.AnswerError(w, r, err)
}

// writeTokenError answers a token request with an OAuth2 error.
func writeTokenError(w http.ResponseWriter, status int, reason, description string) error {
	body := map[string]string{"error": reason}
	if description != "" {
		body["error_description"] = description
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, status, body)
}
