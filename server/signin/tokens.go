package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/failures"
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
	// refreshReused is the time after which another use of a refresh token means that two programs have it, of which
	// one is a thief (RFC 9700, section 4.14.2). Before that, a program may have read a token from a network disk that
	// shows old files for a while.
	refreshReused = 10 * time.Minute
	// noteUseEvery is the time between two notes of a session's use.
	noteUseEvery = 5 * time.Minute
)

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newToken returns a token that nobody can guess.
func newToken() string { return rand.Text() + rand.Text() }

// bearer returns the token of a request; empty if it has none.
func bearer(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return token
}

// Authenticate returns the user of the request. On a public route a request without a valid token
// is that of a user who has not signed in (codalab/server/auth.py: OAuth2Authenticator). A browser whose session has ended
// loses its mark with the answer w.
func (s *SignIns) Authenticate(w http.ResponseWriter, r *http.Request, public bool) (store.User, error) {
	u, err := s.authenticate(r)
	if err != nil {
		return store.User{}, err
	}
	if u.ID == "" {
		s.unmark(w, r)
		if !public {
			return u, notAuthenticated()
		}
	}
	return u, nil
}

// authenticate returns the user of the request; none if it has no valid token.
func (s *SignIns) authenticate(r *http.Request) (store.User, error) {
	token, err := s.token(r)
	if err != nil || token == "" {
		return store.User{}, err
	}
	find := s.config.Store.UserOfToken
	if codalab.IsProgramToken(token) {
		find = s.config.Store.UserOfProgramToken
	}
	u, err := find(r.Context(), hashToken(token), s.config.Now())
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, nil
	}
	if err == nil && u.SessionID != "" {
		s.noteUse(r, u)
	}
	if err == nil && u.Program.ID != "" {
		s.noteProgramUse(r.Context(), u.Program)
	}
	return u, err
}

// noteUse records that a session is in use, at most once in a while. The request is served also if the database takes no
// changes.
func (s *SignIns) noteUse(r *http.Request, u store.User) {
	now := s.config.Now()
	if since := now.Sub(u.SessionUsed.Time).Abs(); since < noteUseEvery {
		return
	}
	if _, busy := s.noting.LoadOrStore(u.SessionID, true); busy {
		return
	}
	defer s.noting.Delete(u.SessionID)
	err := s.config.Store.NoteUse(r.Context(), u.SessionID, s.config.Address(r), now)
	failures.Log(r.Context(), s.config.Log, "note the use of a session", err)
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
	var err error
	description := ""
	switch r.PostForm.Get("grant_type") {
	case "password":
		description = "Invalid credentials given."
		err = s.grantForPassword(w, r, client)
	case "refresh_token":
		err = s.grantForRefresh(w, r, client)
	case codalab.DeviceGrant:
		if s.config.Redeem == nil {
			return writeTokenError(w, http.StatusBadRequest, "unsupported_grant_type", "")
		}
		userID, no := s.config.Redeem(r.PostForm.Get("device_code"), client)
		if no != nil {
			return writeTokenError(w, http.StatusBadRequest, no.Error(), "")
		}
		err = s.begin(w, r, store.SignIn{Session: store.Session{UserID: userID, Client: client}}, "")
	default:
		return writeTokenError(w, http.StatusBadRequest, "unsupported_grant_type", "")
	}
	if errors.Is(err, store.ErrNotFound) {
		return writeTokenError(w, http.StatusUnauthorized, "invalid_grant", description)
	}
	return err
}

// grantForPassword begins a session for a password. A client that sends the field device_token, which may be empty, gets a
// device token, by which it is known at its next sign-in.
func (s *SignIns) grantForPassword(w http.ResponseWriter, r *http.Request, client string) error {
	in := try{
		name: r.PostForm.Get("username"), password: r.PostForm.Get("password"), device: r.PostForm.Get("device_token"), address: s.config.Address(r),
	}
	c, err := s.check(r.Context(), in)
	if err != nil {
		return err
	}
	marks := []string{networkMark(in.address)}
	if r.PostForm.Has("device_token") {
		if !c.knownDevice {
			in.device = newToken()
		}
		marks = append(marks, deviceMark(in.device))
	}
	return s.begin(w, r, store.SignIn{
		Session: store.Session{UserID: c.user.ID, Client: client}, Checked: c.user.Password, Rehashed: c.rehashed, Marks: marks,
	}, in.device)
}

// begin begins a session, and answers with its first tokens.
func (s *SignIns) begin(w http.ResponseWriter, r *http.Request, in store.SignIn, device string) error {
	now := s.config.Now()
	tokens := newPair(now)
	in.Grant = tokens.stored
	in.Session.ID, in.Session.Program, in.Session.Address = strings.ToLower(rand.Text()[:12]), program(r), s.config.Address(r)
	in.InUse = s.live.inUse(in.Session.UserID)
	if _, err := s.config.Store.BeginSession(r.Context(), in, now); err != nil {
		return err
	}
	tokens.answer.Device = device
	return writeTokens(w, tokens.answer)
}

// grantForRefresh goes on with the session of a refresh token.
func (s *SignIns) grantForRefresh(w http.ResponseWriter, r *http.Request, client string) error {
	now := s.config.Now()
	tokens := newPair(now)
	u, err := s.config.Store.RenewSession(r.Context(), store.Renewal{
		Refresh: hashToken(r.PostForm.Get("refresh_token")), Client: client, Next: tokens.stored, Address: s.config.Address(r),
		Grace: refreshGrace, ReusedAfter: refreshReused, Strict: usesRefreshTokensOnce,
	}, now)
	switch {
	case errors.Is(err, store.ErrReused):
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "a refresh token was used again, long after its first use: two programs have it; its session has ended",
			slog.String("user", u.Name), slog.String("session", u.SessionID), slog.String("address", s.config.Address(r)))
		return store.ErrNotFound
	case err != nil:
		return err
	}
	return writeTokens(w, tokens.answer)
}

// pair is a new pair of tokens.
type pair struct {
	answer codalab.TokenAnswer
	stored store.Grant
}

func newPair(now time.Time) pair {
	access, refresh := newToken(), newToken()
	return pair{
		answer: codalab.TokenAnswer{Access: access, Refresh: refresh, Type: "Bearer", Seconds: accessLife.Seconds(), Scope: "default"},
		stored: store.Grant{
			Access: hashToken(access), Refresh: hashToken(refresh),
			AccessExpires: store.Time{Time: now.Add(accessLife)}, RefreshExpires: store.Time{Time: now.Add(refreshLife)},
		},
	}
}

func writeTokens(w http.ResponseWriter, answer codalab.TokenAnswer) error {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, answer)
}

// program returns the name of the program that sends a request, for the list of sessions.
func program(r *http.Request) string {
	const longest = 100
	text := strings.ToValidUTF8(r.UserAgent(), "")
	return termtext.OneLine(strings.ToValidUTF8(text[:min(len(text), longest)], ""))
}

// usesRefreshTokensOnce reports whether a program uses each refresh token once, so that another use is a thief's. The
// programs of this project do. CodaLab's own cl reads its tokens once, at its start: after another cl has renewed them,
// one that runs for long uses the old one again (codalab/lib/codalab_manager.py: _authenticate).
func usesRefreshTokensOnce(program string) bool { return strings.HasPrefix(program, "cl-slurm/") }

// Revoke ends the session to which a token belongs (RFC 7009). It answers alike for a token that it does not
// know.
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
