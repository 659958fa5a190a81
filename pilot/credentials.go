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
	// EndWorkerTokens ends all tokens of a worker. It is no error if it has none. It fails with
	// errors.ErrUnsupported if the server has no such tokens.
	EndWorkerTokens(ctx context.Context, workerID string) error
}

// tokenLife is the time in which a pilot of a cloud has to reach the server: it may wait for days for a machine. The worker
// renews its token from then on.
const tokenLife = 7 * 24 * time.Hour

// Credential is a login of one pilot: a token of its own, or else the user's name and password.
type Credential struct{ Token, User, Password string }

// Credentials gives pilots their logins, and ends the tokens of those that have ended. It stores nothing on a disk.
type Credentials struct {
	// Tokens is the server.
	Tokens Tokens
	// User and Password are for the workers of servers that have no worker tokens.
	User, Password string

	live  map[string]bool // pilots that the backend has shown
	ended map[string]bool // those whose tokens are ended
}

// Issue returns the login of a new pilot.
func (c *Credentials) Issue(ctx context.Context, name string) (Credential, error) {
	token, err := c.Tokens.WorkerToken(ctx, WorkerID(name), tokenLife)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return Credential{User: c.User, Password: c.Password}, nil
	case err != nil:
		return Credential{}, fmt.Errorf("token for worker %s: %w", WorkerID(name), err)
	}
	return Credential{Token: token}, nil
}

// Discard ends the token of a pilot that certainly does not start.
func (c *Credentials) Discard(ctx context.Context, name string) error {
	return c.end(ctx, name)
}

func (c *Credentials) end(ctx context.Context, name string) error {
	err := c.Tokens.EndWorkerTokens(ctx, WorkerID(name))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Settle ends the tokens of pilots that have ended: the backend shows their end, or no longer shows them. pilots is a
// complete answer of the backend. A failure is retried at the next call.
func (c *Credentials) Settle(ctx context.Context, pilots []Pilot) error {
	if c.live == nil {
		c.live, c.ended = map[string]bool{}, map[string]bool{}
	}
	shown, due := map[string]bool{}, []string{}
	for _, p := range pilots {
		shown[p.Name] = true
		switch {
		case p.Phase != Ended:
			c.live[p.Name] = true
		case !c.ended[p.Name]:
			due = append(due, p.Name)
		}
	}
	for name := range c.live {
		if !shown[name] {
			due = append(due, name)
		}
	}
	for name := range c.ended {
		if !shown[name] {
			delete(c.ended, name)
		}
	}
	var failed error
	for _, name := range due {
		if err := c.end(ctx, name); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(c.live, name)
		if shown[name] {
			c.ended[name] = true
		}
	}
	if failed != nil {
		return fmt.Errorf("end the tokens of workers: %w", failed)
	}
	return nil
}
