package signin

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/clientnet"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/guesses"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config has what SignIns needs. The fields up to Count are required.
type Config struct {
	Log   *slog.Logger
	Now   func() time.Time
	Store *store.Store
	// Cost is the work of hashing a password.
	Cost PasswordCost
	// Address returns the address of a request's client, and Encrypted whether the client has sent it by TLS.
	Address   func(*http.Request) string
	Encrypted func(*http.Request) bool
	// Count is told the outcome of each sign-in with a password: ok, refused, or put off.
	Count func(outcome string)
	// Redeem returns the id of the user who has signed in by a browser for the program with a device code (package sso).
	// Its error is one of RFC 8628, section 3.5. It is nil without a provider of sign-ins.
	Redeem func(deviceCode, client string) (userID string, err error)
	// Mail is the SMTP server, and PublicURL the address of this server in mails. Without both, the operator alone adds users,
	// and resets passwords and addresses.
	Mail      mail.Options
	PublicURL string
	// HelpAddress receives messages of users to the operator; empty for the sender of mails.
	HelpAddress string
	SignUp      SignUp
}

// SignUp lets people make accounts for themselves. The zero value lets nobody.
type SignUp struct {
	Open bool
	// Domains are those whose addresses may sign up; none means all.
	Domains []string
	// The quotas of new users.
	TimeQuota, DiskQuota, ParallelRunQuota int64
}

// SignIns gives out tokens, and knows the users of tokens.
type SignIns struct {
	config  Config
	guesses *guesses.Guesses
	// known and strangers are the places to check passwords. Known clients have their own, so that any number of
	// strangers does not delay them. Strangers share theirs by their networks.
	known, strangers *turns.Turns
	// unknown is the hash for names that no user has.
	unknown string
	// noting has the sessions whose use is being noted.
	noting sync.Map
	live   live
	// mailed bounds the mails that people ask for. letters are those that wait, of which each has one of the places.
	mailed  *guesses.Guesses
	places  chan struct{}
	letters chan letter
	// page is the template of pages about accounts.
	page *template.Template
}

// New returns SignIns.
func New(c Config) *SignIns {
	return &SignIns{
		config: c, guesses: guesses.New(), known: turns.New(2), strangers: turns.New(2),
		unknown: hashOfNobody(c.Cost), live: live{requests: map[*Live]bool{}},
		mailed: guesses.New(), places: make(chan struct{}, mostLetters), letters: make(chan letter, mostLetters), page: newAccountTemplate(),
	}
}

// Routes returns the routes for sessions, passwords and worker tokens. Token, Revoke and the page for a new password are
// not routes: they need no token.
func (s *SignIns) Routes() []rest.Route {
	const ours = "only this server has it: "
	return []rest.Route{
		{Pattern: "GET /user/sessions", Serve: s.listSessions, Differs: ours + "the user's sessions, of which each is one sign-in of a program"},
		{Pattern: "DELETE /user/sessions", Serve: s.endOtherSessions, Differs: ours + "it ends all of the user's sessions but that of the request"},
		{Pattern: "DELETE /user/sessions/{session}", Serve: s.endSession, Differs: ours + "it ends one of the user's sessions"},
		{Pattern: "POST /user/password", Serve: s.changePassword, Differs: ours + "it changes the password, given the old one; this ends the user's other sessions and worker tokens"},
		{Pattern: "POST /workers/{worker}/token", Serve: s.addWorkerToken, WorkerToken: true, Begins: true, Audited: true, Differs: ours + "it gives out a worker token; a worker renews its own"},
		{Pattern: "DELETE /workers/{worker}/token", Serve: s.endWorkerTokens, Manager: true, Audited: true, Differs: ours + "it ends all of the user's tokens for this worker"},
		{Pattern: "GET /workers/{worker}/token", Serve: s.ownProgramToken, Worker: true, WorkerToken: true, Differs: ours + "a program learns whether its program token is for this worker, and the token's end"},
		{Pattern: "POST /program_tokens", Serve: s.addProgramToken, Worker: true, Audited: true, Differs: ours + "a program token for workers of the user (cl-bridge init)"},
		{Pattern: "GET /program_tokens", Serve: s.listProgramTokens, Worker: true, Differs: ours + "the user's program tokens, without their secrets"},
		{Pattern: "DELETE /program_tokens/{token}", Serve: s.endProgramToken, Worker: true, Audited: true, Differs: ours + "it ends a program token of the user, and the worker tokens that it made"},
		{Pattern: "POST /help/{$}", Serve: s.help, Differs: "with --mail-server; a message has 10,000 bytes at most, and a user sends three, and then one in twenty minutes"},
	}
}

// try is one try of a password.
type try struct {
	name, password string
	// address is that of the client, device its device token, and session the session of a client that has signed in;
	// the last two may be empty.
	address, device, session string
}

// checked is a password that is right.
type checked struct {
	user store.User
	// rehashed replaces the hash of the password; empty if that is up to date.
	rehashed string
	// knownDevice is set if the device token is one of the user's.
	knownDevice bool
}

// longestPassword bounds the passwords that are tried, in bytes.
const longestPassword = 4096

// check returns the user with this name and password; ErrNotFound if there is none. It takes as long for an unknown
// name as for a wrong password.
func (s *SignIns) check(ctx context.Context, in try) (c checked, err error) {
	const longest = 255
	if len(in.name) > longest || !rest.IsText(in.name) || len(in.password) > longestPassword {
		return c, store.ErrNotFound
	}
	u, err := s.config.Store.User(ctx, in.name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	exists := err == nil && u.Name == in.name
	if !exists {
		u = store.User{Password: s.unknown}
	}
	attempt, err := s.attempt(ctx, u, in)
	if err != nil {
		return c, err
	}
	leave, err := s.mayTry(ctx, attempt, "Too many failed sign-ins.")
	if err != nil {
		if rest.HasStatus(err, http.StatusTooManyRequests) {
			s.config.Count("put off")
		}
		return c, err
	}
	defer leave()
	fits, outdated := passwordFits(in.password, u.Password, s.config.Cost)
	if !fits || !exists {
		s.config.Count("refused")
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "sign-in refused", slog.String("name", in.name), slog.String("address", in.address))
		return c, store.ErrNotFound
	}
	s.config.Count("ok")
	s.guesses.Right(attempt)
	c = checked{user: u, knownDevice: attempt.Device != ""}
	if outdated {
		c.rehashed = HashPassword(in.password, s.config.Cost)
	}
	return c, nil
}

// attempt returns what package guesses has to know of a try.
func (s *SignIns) attempt(ctx context.Context, u store.User, in try) (guesses.Attempt, error) {
	a := guesses.Attempt{Name: in.name, Network: clientnet.Of(in.address)}
	if in.session != "" {
		a.Device = "session " + in.session
		return a, nil
	}
	device, network := deviceMark(in.device), networkMark(in.address)
	known, err := s.config.Store.KnownClient(ctx, u.ID, []string{device, network}, s.config.Now())
	if known[device] {
		a.Device = device
	}
	a.Familiar = known[network]
	return a, err
}

// The marks by which clients are known. A device is known by its token's hash, as all tokens.
func deviceMark(token string) string    { return "device " + hashToken(token) }
func networkMark(address string) string { return "network " + clientnet.Of(address) }

// mayTry waits for a place to check a password or a name, or refuses the attempt after too many failed ones, with a sentence that
// names these.
func (s *SignIns) mayTry(ctx context.Context, a guesses.Attempt, tooMany string) (leave func(), err error) {
	if wait := s.guesses.Try(a, s.config.Now()); wait > 0 {
		wait = wait.Truncate(time.Second) + time.Second
		return nil, &rest.RefusalError{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: tooMany + " " + tryAgain(wait)}
	}
	if a.Known() {
		leave, err = s.known.Take(ctx, turns.Party{Owner: a.Name})
	} else {
		leave, err = s.strangers.Take(ctx, turns.Party{Owner: a.Network, Bundle: a.Name})
	}
	if err != nil { // the client has left: it learned nothing
		s.guesses.Right(a)
	}
	return leave, err
}
