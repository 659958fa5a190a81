package signin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// errEnded is the error of a request whose session, worker token or user is there no more.
var errEnded = errors.New("the sign-in of the request has ended")

// live has the requests under way. It is safe for concurrent use.
type live struct {
	mu       sync.Mutex
	requests map[*Live]bool
}

// Live is a request under way. It ends when its session or worker token is ended, or its user removed.
type Live struct {
	all    *live
	holder store.Holder
	ended  atomic.Bool
	cancel context.CancelFunc
}

// liveKey is the context's key for a request's Live.
type liveKey struct{}

// Begin follows a request of a user until Close. The context to serve it under ends with the sign-in.
func (s *SignIns) Begin(ctx context.Context, u store.User) (*Live, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	l := &Live{all: &s.live, holder: store.Holder{UserID: u.ID, SessionID: u.SessionID, WorkerID: u.OnlyWorker, ProgramID: u.Program.ID}, cancel: cancel}
	s.live.mu.Lock()
	s.live.requests[l] = true
	s.live.mu.Unlock()
	return l, context.WithValue(ctx, liveKey{}, l)
}

// Follow returns a context for a request that ends with its sign-in, too. The caller calls leave in the end. It refuses a request
// whose sign-in has ended already.
func (s *SignIns) Follow(r *http.Request) (ctx context.Context, leave func(), err error) {
	u, err := s.authenticate(r)
	if err != nil {
		return nil, nil, err
	}
	if u.ID == "" {
		return r.Context(), func() {}, nil
	}
	l, ctx := s.Begin(r.Context(), u)
	return ctx, l.Close, nil
}

// Body returns the body of a request whose context is Begin's: once the sign-in has ended, it cannot be read any more.
func Body(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	l, ok := ctx.Value(liveKey{}).(*Live)
	if !ok || body == nil || body == http.NoBody {
		return body
	}
	return &liveBody{body, l}
}

// inUse returns the sessions of a user with a request under way.
func (l *live) inUse(userID string) (sessions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.requests {
		if one.holder.UserID == userID && one.holder.SessionID != "" && !slices.Contains(sessions, one.holder.SessionID) {
			sessions = append(sessions, one.holder.SessionID)
		}
	}
	return sessions
}

// Err returns an error once the sign-in has ended.
func (l *Live) Err() error {
	if l.ended.Load() {
		return errEnded
	}
	return nil
}

// Refusal returns the request's error, or a refusal if the sign-in has ended.
func (l *Live) Refusal(err error) error {
	if err != nil && l.Err() != nil {
		return notAuthenticated()
	}
	return err
}

// Close ends the following.
func (l *Live) Close() {
	l.all.mu.Lock()
	delete(l.all.requests, l)
	l.all.mu.Unlock()
	l.cancel()
}

// liveBody is the body of a request under way.
type liveBody struct {
	io.ReadCloser
	live *Live
}

// Read fails once the sign-in has ended.
func (b *liveBody) Read(p []byte) (int, error) {
	if err := b.live.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// StillSignedIn asks the store whether the sign-in of a request under way goes on, and refuses the request if not. A held
// check-in asks before it gives out a run.
func (s *SignIns) StillSignedIn(ctx context.Context) error {
	l, ok := ctx.Value(liveKey{}).(*Live)
	if !ok {
		return nil
	}
	ended, err := s.config.Store.Ended(ctx, []store.Holder{l.holder})
	if err == nil && ended[l.holder] {
		err = notAuthenticated()
	}
	return err
}

func notAuthenticated() error {
	return rest.Refuse(http.StatusUnauthorized, "User is not authenticated.")
}

const (
	// endEvery is the time between two looks for requests whose sign-in has ended.
	endEvery = time.Second
	// tidyEvery is the time between two removals of expired tokens.
	tidyEvery = time.Hour
)

// Run ends requests under way whose sign-in has ended, and removes expired tokens, until ctx ends.
func (s *SignIns) Run(ctx context.Context) error {
	looks, tidies := time.NewTicker(endEvery), time.NewTicker(tidyEvery)
	defer looks.Stop()
	defer tidies.Stop()
	s.tidy(ctx)
	for {
		select {
		case <-looks.C:
			failures.Log(ctx, s.config.Log, "look for requests whose sign-in has ended", s.endRequests(ctx))
		case <-tidies.C:
			s.tidy(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *SignIns) tidy(ctx context.Context) {
	err := s.config.Store.TidyTokens(ctx, s.config.Now(), store.TokenLives{
		Access: accessLife, Refresh: refreshLife, Worker: longestWorkerToken, Reset: ResetLife, Confirmation: confirmLife,
	})
	failures.Log(ctx, s.config.Log, "remove expired tokens", err)
}

// endRequests ends the requests under way whose sign-in has ended.
func (s *SignIns) endRequests(ctx context.Context) error {
	requests := map[store.Holder][]*Live{}
	s.live.mu.Lock()
	for l := range s.live.requests {
		requests[l.holder] = append(requests[l.holder], l)
	}
	s.live.mu.Unlock()
	if len(requests) == 0 {
		return nil
	}
	holders := make([]store.Holder, 0, len(requests))
	for h := range requests {
		holders = append(holders, h)
	}
	ended, err := s.config.Store.Ended(ctx, holders)
	for h := range ended {
		for _, l := range requests[h] {
			l.ended.Store(true)
			l.cancel()
		}
	}
	return err
}
