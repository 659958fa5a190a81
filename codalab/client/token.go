package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// ErrCredentials is why the server gives no token: the user's name or
// password is wrong. Asking again with the same ones is of no use.
var ErrCredentials = errors.New("wrong user name or password")

// Token is what a server hands out for a password.
type Token struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh"`
	// Renew is when it is time for a new one, some minutes before the server
	// stops taking this one.
	Renew time.Time `json:"renew"`
}

// TokenCache keeps one user's token for one server. A Client uses it from one
// goroutine at a time; other processes may use the same token.
type TokenCache interface {
	// Load returns the token that was saved last, the zero Token for none.
	Load() Token
	// Save keeps a token. A cache that cannot is a nuisance to its user, not
	// a failure of the call.
	Save(token Token)
}

// authority hands out the token of a Client and gets new ones.
type authority struct {
	credentials func(context.Context) (user, password string, err error)
	cache       TokenCache
	grant       func(ctx context.Context, form url.Values) (Token, error)
	now         func() time.Time

	mu      sync.Mutex
	current Token
	flight  *flight
}

// flight is one attempt to get a token, for all who need one meanwhile.
type flight struct {
	done  chan struct{}
	token Token
	err   error
}

// token returns an access token other than refused, the one that the server
// has just turned away; empty when it has not.
func (a *authority) token(ctx context.Context, refused string) (string, error) {
	for {
		a.mu.Lock()
		if a.usable(a.current, refused) {
			defer a.mu.Unlock()
			return a.current.Access, nil
		}
		f, mine := a.flight, false
		if f == nil {
			f, mine = &flight{done: make(chan struct{})}, true
			a.flight = f
		}
		a.mu.Unlock()
		if mine {
			a.fly(ctx, f, refused)
			return f.token.Access, f.err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-f.done:
		}
		switch {
		case f.err == nil && f.token.Access != refused:
			return f.token.Access, nil
		case f.err == nil, errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded):
			// That caller gave up, or got what was refused to this one.
		default:
			return "", f.err
		}
	}
}

func (a *authority) fly(ctx context.Context, f *flight, refused string) {
	f.token, f.err = a.renew(ctx, refused)
	a.mu.Lock()
	if f.err == nil {
		a.current = f.token
	}
	a.flight = nil
	a.mu.Unlock()
	close(f.done)
}

func (a *authority) usable(t Token, refused string) bool {
	return t.Access != "" && t.Access != refused && a.now().Before(t.Renew)
}

// renew gets a token from the cheapest source: another process's work in the
// cache, the refresh grant, the password.
func (a *authority) renew(ctx context.Context, refused string) (Token, error) {
	have := a.current
	if a.cache != nil {
		have = a.cache.Load()
		if a.usable(have, refused) {
			return have, nil
		}
	}
	if have.Refresh != "" {
		t, err := a.grant(ctx, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {have.Refresh}})
		if err == nil {
			return a.save(t), nil
		}
		if !errors.Is(err, ErrCredentials) {
			return Token{}, err
		}
	}
	user, password, err := a.credentials(ctx)
	if err != nil {
		return Token{}, err
	}
	t, err := a.grant(ctx, url.Values{"grant_type": {"password"}, "username": {user}, "password": {password}})
	if err != nil {
		return Token{}, err
	}
	return a.save(t), nil
}

func (a *authority) save(t Token) Token {
	if a.cache != nil {
		a.cache.Save(t)
	}
	return t
}

// grant returns the call that gets a token for a form
// (codalab/server/auth.py: generate_token).
func (c *Client) grant(clientID string, now func() time.Time) func(context.Context, url.Values) (Token, error) {
	return func(ctx context.Context, form url.Values) (Token, error) {
		var answer struct {
			Access  string  `json:"access_token"`
			Refresh string  `json:"refresh_token"`
			Type    string  `json:"token_type"`
			Seconds float64 `json:"expires_in"`
		}
		in := call{
			method: "POST", path: "/oauth2/token", form: form, basic: clientID, within: answerWithin,
		}
		if err := c.do(ctx, in, &answer); err != nil {
			return Token{}, c.loginError(err, form)
		}
		if answer.Access == "" || !strings.EqualFold(cmp.Or(answer.Type, "Bearer"), "Bearer") {
			return Token{}, &codalab.Error{
				Method: in.method, Path: in.path, Status: 200,
				Message: "the server at " + c.address + " gave no bearer token",
			}
		}
		life := time.Duration(answer.Seconds * float64(time.Second))
		margin := min(5*time.Minute, life/2)
		return Token{Access: answer.Access, Refresh: answer.Refresh, Renew: now().Add(life - margin)}, nil
	}
}

// loginError says in words what a refused grant means.
func (c *Client) loginError(err error, form url.Values) error {
	var refused *codalab.Error
	if !errors.As(err, &refused) || refused.Status != 401 {
		return err
	}
	if strings.Contains(refused.Message, "invalid_client") {
		refused.Message = "the server at " + c.address + " does not know this kind of client"
		return refused
	}
	refused.Err = ErrCredentials
	refused.Message = fmt.Sprintf("%v: the server at %s refuses user %q",
		ErrCredentials, c.address, form.Get("username"))
	return refused
}
