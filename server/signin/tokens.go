package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Lifetimes of tokens.
const (
	accessLife  = time.Hour
	refreshLife = 30 * 24 * time.Hour
	// refreshGrace is the time for which a refresh token stays valid after its first use: clients repeat
	// a request after a second if its answer was lost.
	refreshGrace = time.Minute
)

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// bearer returns the token of a request; empty if it has none.
func bearer(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return token
}

// Authenticate returns the user of the request. On a public route a request without a valid token
// is that of a user who has not signed in (codalab/server/auth.py: OAuth2Authenticator).
func (s *SignIns) Authenticate(r *http.Request, public bool) (store.User, error) {
	nobody := rest.Refuse(http.StatusUnauthorized, "User is not authenticated.")
	if public {
		nobody = nil
	}
	token := bearer(r)
	if token == "" {
		return store.User{}, nobody
	}
	u, err := s.config.Store.UserOfToken(r.Context(), hashToken(token), s.config.Now())
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, nobody
	}
	return u, err
}

// Token grants tokens for a password or a refresh token (codalab/rest/oauth2.py:
// handle_token).
func (s *SignIns) Token(w http.ResponseWriter, r *http.Request) {
	rest.AnswerError(s.config.Log, w, r, s.grantToken(w, r))
}

func (s *SignIns) grantToken(w http.ResponseWriter, r *http.Request) error {
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
		u, err = s.login(r.Context(), r.PostForm.Get("username"), r.PostForm.Get("password"), s.config.Address(r))
	case "refresh_token":
		u, err = s.config.Store.UseRefresh(r.Context(), hashToken(r.PostForm.Get("refresh_token")), client, s.config.Now(), refreshGrace)
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

func (s *SignIns) grant(w http.ResponseWriter, r *http.Request, u store.User, client string) error {
	access, refresh, now := rand.Text()+rand.Text(), rand.Text()+rand.Text(), s.config.Now()
	err := s.config.Store.AddGrant(r.Context(), store.Grant{
		Access: hashToken(access), Refresh: hashToken(refresh), Client: client, UserID: u.ID,
		AccessExpires: store.Time{Time: now.Add(accessLife)}, RefreshExpires: store.Time{Time: now.Add(refreshLife)},
	}, now)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, codalab.TokenAnswer{
		Access: access, Refresh: refresh, Type: "Bearer", Seconds: accessLife.Seconds(), Scope: "default",
	})
}

// Revoke ends the tokens of the grant to which a token belongs (RFC 7009). It answers alike for a token
// that it does not know.
func (s *SignIns) Revoke(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	err := r.ParseForm()
	if err != nil {
		err = rest.Refuse(http.StatusBadRequest, "The form cannot be read.")
	} else {
		err = s.config.Store.DeleteGrant(r.Context(), hashToken(r.PostForm.Get("token")))
	}
	rest.AnswerError(s.config.Log, w, r, err)
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
