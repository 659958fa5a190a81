package pilot

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Tokens makes and ends the tokens of single workers. *client.Client implements it.
type Tokens interface {
	// WorkerToken returns a token with which only the worker of this id can log in, valid for life. It fails
	// with errors.ErrUnsupported if the server has no such tokens.
	WorkerToken(ctx context.Context, workerID string, life time.Duration) (token string, err error)
	// EndWorkerTokens ends all tokens of a worker, also those that the worker has renewed. It is no error if it has
	// none. It fails with errors.ErrUnsupported if the server has no such tokens.
	EndWorkerTokens(ctx context.Context, workerID string) error
}

// ErrNoLogin means that pilots have no login. No retry helps: another flag does.
var ErrNoLogin = errors.New("this server gives out no worker tokens")

// CheckLogin fails with ErrNoLogin if the pilots of a backend need tokens, and the server gives out none.
func CheckLogin(ctx context.Context, server Tokens, b Starter) error {
	n, ok := b.(TokenNeeder)
	if !ok {
		return nil
	}
	refusal := n.NeedsToken()
	if refusal == nil {
		return nil
	}
	_, err := server.WorkerToken(ctx, WorkerID(b.NewName()), time.Second)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return refusal
	case err != nil:
		return fmt.Errorf("try whether the server gives out worker tokens: %w", err)
	}
	return nil
}

// CloudTokenLife is the TokenLife of clouds: a pilot may wait for days for a machine. A worker that has reached the server
// renews its token by itself.
const CloudTokenLife = 7 * 24 * time.Hour

// unseenFor is the time for which a pilot keeps its token that the backend has not shown yet: a batch system may be late with
// a start without an answer.
const unseenFor = 10 * time.Minute

// NewToken returns a new token for the pilot with this name. The token is empty if the server gives out none.
type NewToken func(ctx context.Context, name string) (token string, err error)

// tokenKeeper issues the tokens of a backend's pilots, and ends them when the pilots have ended. It stores nothing on a
// disk: a token that a killed manager has issued to a pilot that never started ends with its life.
type tokenKeeper struct {
	server Tokens
	// life is the backend's TokenLife; 0 means that its pilots have no tokens.
	life time.Duration

	// live are the pilots whose tokens end once the backend does not show them, each from a time on. It is zero for those
	// that the backend has shown.
	live  map[string]time.Time
	ended map[string]bool // ended pilots that the backend shows, whose tokens have been ended
}

// issue is a NewToken.
func (k *tokenKeeper) issue(ctx context.Context, name string) (string, error) {
	if k.life == 0 {
		return "", nil
	}
	token, err := k.server.WorkerToken(ctx, WorkerID(name), k.life)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("token for worker %s: %w", WorkerID(name), err)
	}
	return token, nil
}

// end ends the tokens of a pilot.
func (k *tokenKeeper) end(ctx context.Context, name string) error {
	err := k.server.EndWorkerTokens(ctx, WorkerID(name))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// discard ends the token of a pilot that certainly does not start. After a failure, settle tries again.
func (k *tokenKeeper) discard(ctx context.Context, name string) {
	if err := k.end(ctx, name); err != nil {
		k.live[name] = time.Time{}
	}
}

// unseen notes that the backend does not show a pilot, perhaps because it has never started. Its token ends in a while,
// or with the pilot.
func (k *tokenKeeper) unseen(name string, now time.Time) {
	if _, known := k.live[name]; !known {
		k.live[name] = now.Add(unseenFor)
	}
}

// settle ends the tokens of pilots that have ended: the backend shows their end, or no longer shows them. pilots is a
// complete answer of the backend. A failure is retried at the next call.
func (k *tokenKeeper) settle(ctx context.Context, now time.Time, pilots []Pilot) error {
	shown, due := map[string]bool{}, []string{}
	for _, p := range pilots {
		shown[p.Name] = true
		switch {
		case p.Phase != Ended || p.Leaving:
			k.live[p.Name] = time.Time{}
		case !k.ended[p.Name]:
			due = append(due, p.Name)
		}
	}
	for name, from := range k.live {
		if !shown[name] && !now.Before(from) {
			due = append(due, name)
		}
	}
	for name := range k.ended {
		if !shown[name] {
			delete(k.ended, name)
		}
	}
	var failed error
	for _, name := range due {
		if err := k.end(ctx, name); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(k.live, name)
		if shown[name] {
			k.ended[name] = true
		}
	}
	if failed != nil {
		return fmt.Errorf("end the tokens of workers: %w", failed)
	}
	return nil
}
