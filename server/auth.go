package server

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// HashIterations is the default number of PBKDF2 iterations for new passwords.
const HashIterations = 600_000

// Lifetimes of tokens.
const (
	accessLife  = time.Hour
	refreshLife = 30 * 24 * time.Hour
	// refreshGrace is how long a refresh token stays valid after its first use: clients repeat
	// a request after a second if its answer was lost.
	refreshGrace = time.Minute
)

// HashPassword hashes a password in the form of CodaLab's own server, so that its users can
// keep their passwords here: pbkdf2_sha256$ITERATIONS$SALT$BASE64 (codalab/lib/crypt_util.py).
func HashPassword(password string, iterations int) (string, error) {
	salt := rand.Text()[:12]
	sum, err := pbkdf2.Key(sha256.New, password, []byte(salt), iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return fmt.Sprintf("pbkdf2_sha256$%d$%s$%s", iterations, salt, base64.StdEncoding.EncodeToString(sum)), nil
}

// passwordFits reports whether hashed is a hash of password.
func passwordFits(password, hashed string) bool {
	parts := strings.Split(hashed, "$")
	if len(parts) != 4 || parts[0] != "pbkdf2_sha256" {
		return false
	}
	iterations, err := strconv.Atoi(parts[1])
	want, decodeErr := base64.StdEncoding.DecodeString(parts[3])
	if err != nil || decodeErr != nil || len(want) == 0 {
		return false
	}
	got, err := pbkdf2.Key(sha256.New, password, []byte(parts[2]), iterations, len(want))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// authenticated serves a route for the user whose access token the request has.
func (s *Server) authenticated(one route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, err := s.authenticate(r, one.public && !s.RequireSignIn)
		if err == nil && u.IsWorker && !one.worker {
			err = refuse(http.StatusForbidden, "%s is a worker account: it may only run bundles.", u.Name)
		}
		if err == nil {
			err = one.serve(w, r, u)
		}
		s.answerError(w, r, err)
	}
}

// authenticate returns the user of the request. On a public route a request without a valid token
// is that of a user who has not signed in (codalab/server/auth.py: OAuth2Authenticator).
func (s *Server) authenticate(r *http.Request, public bool) (store.User, error) {
	nobody := refuse(http.StatusUnauthorized, "User is not authenticated.")
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
	s.answerError(w, r, s.grantToken(w, r))
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
		u, err = s.login(r.Context(), r.PostForm.Get("username"), r.PostForm.Get("password"))
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

// login returns the user with this name and password; ErrNotFound if there is none. It takes
// as long for an unknown name as for a wrong password.
func (s *Server) login(ctx context.Context, name, password string) (store.User, error) {
	u, err := s.Store.User(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.User{}, err
	}
	known := err == nil && u.Name == name
	if !known {
		u.Password = fmt.Sprintf("pbkdf2_sha256$%d$salt$%s", s.HashIterations, base64.StdEncoding.EncodeToString(make([]byte, sha256.Size)))
	}
	if err := s.hashing.Acquire(ctx, 1); err != nil {
		return store.User{}, err
	}
	defer s.hashing.Release(1)
	if !passwordFits(password, u.Password) || !known {
		return store.User{}, store.ErrNotFound
	}
	return u, nil
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
	return writeJSON(w, http.StatusOK, map[string]any{
		"access_token": access, "expires_in": int(accessLife.Seconds()), "token_type": "Bearer",
		"scope": "default", "refresh_token": refresh,
	})
}

// writeTokenError answers a token request with an OAuth2 error.
func writeTokenError(w http.ResponseWriter, status int, reason, description string) error {
	body := map[string]string{"error": reason}
	if description != "" {
		body["error_description"] = description
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return writeJSON(w, status, body)
}
