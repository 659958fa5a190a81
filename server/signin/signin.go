package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Config has what SignIns needs. All fields are required.
type Config struct {
	Log   *slog.Logger
	Now   func() time.Time
	Store *store.Store
	// Cost is the work of hashing a password.
	Cost PasswordCost
	// Address returns the address of a request's client.
	Address func(*http.Request) string
	// Count is told the outcome of each sign-in with a password: ok, refused, or put off.
	Count func(outcome string)
}

// SignIns gives out tokens, and knows the users of tokens.
type SignIns struct {
	config  Config
	guesses guesses
	// hashing shares the places to check passwords among the addresses of clients: each check keeps
	// a core busy.
	hashing *turns.Turns
	// unknown is the hash for names that no user has.
	unknown string
}

// New returns SignIns.
func New(c Config) *SignIns {
	return &SignIns{
		config: c, guesses: guesses{failed: map[string]*rate.Limiter{}}, hashing: turns.New(4),
		unknown: HashPassword(rand.Text(), c.Cost),
	}
}

// Routes returns the routes for worker tokens. Token and Revoke are not routes: they need no token.
func (s *SignIns) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "POST /workers/{worker}/token", Serve: s.addWorkerToken, WorkerToken: true, Begins: true, Audited: true, Differs: "only this server has it: it gives out a worker token; a worker renews its own"},
		{Pattern: "DELETE /workers/{worker}/token", Serve: s.endWorkerTokens, Audited: true, Differs: "only this server has it: it ends all of the user's tokens for this worker"},
	}
}

// guesses bounds failed sign-ins, so that passwords cannot be guessed. Each kind of key has its own
// bound: a name from one address, an address, and a name from anywhere. The last is wide, since
// anybody could use it up to keep a user from signing in. It is safe for concurrent use.
type guesses struct {
	mu     sync.Mutex
	failed map[string]*rate.Limiter
}

// bound allows a burst of failed sign-ins, and one more after each interval every.
type bound struct {
	burst int
	every time.Duration
}

// guessKeys returns the keys of a sign-in, with their bounds.
func guessKeys(name, address string) map[string]bound {
	return map[string]bound{
		"name from address " + address + " " + name: {10, 30 * time.Second},
		"address " + address:                        {50, 3 * time.Second},
		"name " + name:                              {200, 10 * time.Second},
	}
}

// wait returns the time for which sign-ins of a name from an address are refused; 0 if they are not.
func (g *guesses) wait(name, address string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	var longest time.Duration
	for key, b := range guessKeys(name, address) {
		if l := g.failed[key]; l != nil && l.TokensAt(now) < 1 {
			longest = max(longest, time.Duration((1-l.TokensAt(now))*float64(b.every)))
		}
	}
	return longest
}

// fail counts a failed sign-in.
func (g *guesses) fail(name, address string, now time.Time) {
	const most = 100_000 // keys in memory
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) > most {
		g.forget(now)
	}
	for key, b := range guessKeys(name, address) {
		if g.failed[key] == nil {
			g.failed[key] = rate.NewLimiter(rate.Every(b.every), b.burst)
		}
		g.failed[key].AllowN(now, 1)
	}
}

// forget drops the keys whose failures are long ago, or else all.
func (g *guesses) forget(now time.Time) {
	for key, l := range g.failed {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(g.failed, key)
		}
	}
	if len(g.failed) > 50_000 {
		clear(g.failed)
	}
}

// login returns the user with this name and password; ErrNotFound if there is none. It takes
// as long for an unknown name as for a wrong password.
func (s *SignIns) login(ctx context.Context, name, password, address string) (store.User, error) {
	const longest = 255
	if len(name) > longest || !rest.IsText(name) {
		return store.User{}, store.ErrNotFound
	}
	if err := s.mayTry(name, address); err != nil {
		return store.User{}, err
	}
	u, err := s.config.Store.User(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.User{}, err
	}
	known := err == nil && u.Name == name
	if !known {
		u.Password = s.unknown
	}
	leave, err := s.hashing.Take(ctx, turns.Party{Owner: address})
	if err != nil {
		return store.User{}, err
	}
	defer leave()
	if err := s.mayTry(name, address); err != nil { // others have failed meanwhile
		return store.User{}, err
	}
	fits, outdated := passwordFits(password, u.Password, s.config.Cost)
	if !fits || !known {
		s.config.Count("refused")
		s.guesses.fail(name, address, s.config.Now())
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "sign-in refused", slog.String("name", name), slog.String("address", address))
		return store.User{}, store.ErrNotFound
	}
	s.config.Count("ok")
	u, err = s.config.Store.ChangeUser(ctx, u.ID, func(u *store.User) error {
		u.LastLogin = store.Time{Time: s.config.Now()}
		if outdated {
			u.Password = HashPassword(password, s.config.Cost)
		}
		return nil
	})
	return u, err
}

// mayTry refuses a sign-in after too many failed ones.
func (s *SignIns) mayTry(name, address string) error {
	if wait := s.guesses.wait(name, address, s.config.Now()); wait > 0 {
		s.config.Count("put off")
		return rest.Refuse(http.StatusTooManyRequests, "Too many failed sign-ins. Try again in %d seconds.", int(wait.Seconds())+1)
	}
	return nil
}
