package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
)

// ErrCredentials is the error of a refused login: the user name or the password is wrong. The
// same ones will be refused again.
var ErrCredentials = errors.New("wrong user name or password")

// ErrToken is the error of a call whose given token (Options.Token) has expired or was revoked.
var ErrToken = errors.New("the token has ended or was revoked")

// Token is the server's answer to a password.
type Token struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh"`
	// Renew is the time at which a Client gets a new token, some minutes before this one expires.
	Renew time.Time `json:"renew"`
	// Device is the token by which cl-server knows the program again when it signs in, so that others' failed sign-ins
	// do not delay it. It permits nothing, and stays valid after the others.
	Device string `json:"device,omitempty"`
}

// TokenCache keeps one user's token for one server. Other processes may use the same token.
type TokenCache interface {
	// Load returns the token that was saved last; the zero Token if there is none.
	Load() Token
	// Save keeps a token. It reports its failures itself: the call goes on with the token.
	Save(token Token)
}

// authority has the token of a Client and gets new ones.
type authority struct {
	given       func(ctx context.Context) (token string, err error) // nil for credentials
	credentials func(context.Context) (user, password string, err error)
	cache       TokenCache // nil for none
	grant       func(ctx context.Context, form url.Values) (Token, error)
	now         func() time.Time
	renewals    sharedcall.Group[Token]

	mu      sync.Mutex
	current Token
	// renewed is set once current was replaced by a renewal (Client.RenewWorkerToken).
	renewed bool
	// replaced is the server's refusal of a worker that has begun again as another program; nil for none.
	replaced error
}

// token returns an access token other than refused, the one that the server has just refused;
// refused is empty if it has refused none.
func (a *authority) token(ctx context.Context, refused string) (string, error) {
	for {
		if have := a.latest(); a.usable(have, refused) {
			return have.Access, nil
		}
		mine := false
		t, err := a.renewals.Do(ctx, "", func(ctx context.Context) (Token, error) {
			mine = true
			return a.renew(ctx, refused)
		})
		if err != nil {
			return "", err
		}
		// Another caller's renewal may return the token that was refused to this caller.
		if mine || t.Access != refused {
			return t.Access, nil
		}
	}
}

func (a *authority) latest() Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

func (a *authority) usable(t Token, refused string) bool {
	return t.Access != "" && t.Access != refused && a.now().Before(t.Renew)
}

// renew gets a token from the cheapest source: the cache, where another process may have saved one, then the
// refresh token, then the password.
func (a *authority) renew(ctx context.Context, refused string) (Token, error) {
	if a.given != nil {
		return a.renewGiven(ctx, refused)
	}
	have := a.latest()
	if a.cache != nil {
		have = a.cache.Load()
		if a.usable(have, refused) {
			return a.set(have), nil
		}
	}
	if have.Refresh != "" {
		t, err := a.grant(ctx, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {have.Refresh}})
		if err == nil {
			t.Device = have.Device
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
	form := url.Values{"grant_type": {"password"}, "username": {user}, "password": {password}}
	if a.cache != nil { // a device token is of use to later processes only
		have.Device = a.cache.Load().Device // the user may be known only now
		form.Set("device_token", have.Device)
	}
	t, err := a.grant(ctx, form)
	if err != nil {
		return Token{}, err
	}
	t.Device = cmp.Or(t.Device, have.Device)
	return a.save(t), nil
}

// neverRenew lies after the end of every given token: the server's refusal shows the end.
const neverRenew = 100 * 365 * 24 * time.Hour

// renewGiven returns the token that Options.Token returns now. It fails with ErrToken if the server has just
// refused that token.
func (a *authority) renewGiven(ctx context.Context, refused string) (Token, error) {
	text, err := a.given(ctx)
	if err == nil && text == refused {
		err = ErrToken
	}
	if err != nil {
		return Token{}, err
	}
	return a.set(Token{Access: text, Renew: a.now().Add(neverRenew)}), nil
}

func (a *authority) save(t Token) Token {
	if a.cache != nil {
		a.cache.Save(t)
	}
	return a.set(t)
}

func (a *authority) set(t Token) Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = t
	return t
}

// replace sets a token that the client has got by a renewal.
func (a *authority) replace(access string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current, a.renewed = Token{Access: access, Renew: a.now().Add(neverRenew)}, true
}

// mayRenew returns whether the client has renewed its token, and the reason for which it may not do so any more.
func (a *authority) mayRenew() (before bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renewed, a.replaced
}

// noteReplaced notes that the server has refused the client's worker, because that has begun again as another program.
func (a *authority) noteReplaced(refusal error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replaced = refusal
}

// grant returns the call that gets a token for a form (codalab/server/auth.py:
// generate_token).
func (c *Client) grant(clientID string, now func() time.Time) func(context.Context, url.Values) (Token, error) {
	return func(ctx context.Context, form url.Values) (Token, error) {
		var answer codalab.TokenAnswer
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
		return Token{Access: answer.Access, Refresh: answer.Refresh, Renew: now().Add(life - margin), Device: answer.Device}, nil
	}
}

// loginError returns the error of a refused grant.
func (c *Client) loginError(err error, form url.Values) error {
	refused, ok := errors.AsType[*codalab.Error](err)
	if !ok || refused.Status != 401 {
		return err
	}
	var answer struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal([]byte(refused.Message), &answer) // another text is another error
	if answer.Error == "invalid_client" {
		refused.Message = "the server at " + c.address + " does not know this kind of client"
		return refused
	}
	refused.Err = ErrCredentials
	refused.Message = fmt.Sprintf("%v: the server at %s refuses user %q",
		ErrCredentials, c.address, form.Get("username"))
	return refused
}

// tokenError returns the error of a call that got no token. refusedBy is the refusal of the previous token, if
// there was one.
func (c *Client) tokenError(err, refusedBy error) error {
	if refused, ok := errors.AsType[*codalab.Error](refusedBy); ok && errors.Is(err, ErrToken) {
		refused.Err = ErrToken
		refused.Message = fmt.Sprintf("the server at %s: %v", c.address, ErrToken)
		if codalab.IsProgramToken(c.auth.latest().Access) {
			refused.Message += "; CodaLab's own server has no such tokens"
		}
		return refused
	}
	return err
}

// WorkerToken returns a token for the calls of the worker with this id, valid for life. It fails with
// errors.ErrUnsupported if the server has no such tokens, as CodaLab's own.
func (c *Client) WorkerToken(ctx context.Context, workerID string, life time.Duration) (string, error) {
	in := call{
		method: "POST", path: path("workers", workerID, "token"),
		json: codalab.WorkerTokenRequest{Seconds: int64(life / time.Second)}, within: answerWithin,
	}
	var out codalab.TokenAnswer
	err := c.do(ctx, in, &out)
	switch {
	case codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed):
		return "", fmt.Errorf("get worker token: %w", errors.ErrUnsupported)
	case err == nil && out.Access == "":
		return "", c.noServer(in, http.StatusOK, errors.New("it has no token"))
	}
	return out.Access, err
}

// TokenLife is the validity of a worker token, from now.
type TokenLife struct {
	// Left is the time until the token ends.
	Left time.Duration
	// Latest is the time until the last of its renewals ends: then the worker needs a token that a program
	// gets with a login.
	Latest time.Duration
}

// RenewWorkerToken replaces the client's token, which is one of the worker with this id, by a new one. The client
// uses the new one from now on, and keeps it in memory only. After an error it goes on with the old one.
//
// The first renewal of a token that a login made is a new start of the worker: the server refuses the start before it.
// So a later renewal does not come back to the given token (Options.Token) when the server refuses the renewed one. Other
// calls come back to it. If CheckIn learns from one that the worker has begun again as another program, there are no
// more renewals.
func (c *Client) RenewWorkerToken(ctx context.Context, workerID string) (TokenLife, error) {
	before, err := c.auth.mayRenew()
	if err != nil {
		return TokenLife{}, err
	}
	in := call{
		method: "POST", path: path("workers", workerID, "token"), json: codalab.WorkerTokenRequest{}, within: answerWithin,
		oneToken: before,
	}
	var out codalab.TokenAnswer
	if err := c.do(ctx, in, &out); err != nil {
		return TokenLife{}, err
	}
	left := time.Duration(out.Seconds * float64(time.Second))
	if out.Access == "" || left <= 0 {
		return TokenLife{}, c.noServer(in, http.StatusOK, errors.New("it has no token"))
	}
	c.auth.replace(out.Access)
	return TokenLife{Left: left, Latest: max(left, time.Duration(out.LatestSeconds*float64(time.Second)))}, nil
}

// EndWorkerTokens ends all tokens of the user's worker with this id, also those that the worker has renewed. It is
// no error if there are none. It fails with errors.ErrUnsupported if the server has no such tokens.
func (c *Client) EndWorkerTokens(ctx context.Context, workerID string) error {
	err := c.do(ctx, call{method: "DELETE", path: path("workers", workerID, "token"), within: answerWithin}, nil)
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return fmt.Errorf("end worker tokens: %w", errors.ErrUnsupported)
	}
	return err
}

// RevokeToken ends a token. It needs no login, and is no error for a token that has ended already (RFC 7009). It
// fails with errors.ErrUnsupported if the server ends no tokens, as CodaLab's own: that refuses a call without the client's
// id in the form (codalab/server/oauth2_provider.py: authenticate_client_id). Calls with an id succeed, but the token stays
// valid: the server deletes from another table (codalab/model/bundle_model.py: delete_oauth2_token).
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	err := c.do(ctx, call{
		method: "POST", path: "/oauth2/revoke", form: url.Values{"token": {token}}, basic: CommandClient, within: answerWithin,
	}, nil)
	if codalab.IsStatus(err, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return fmt.Errorf("end session: %w", errors.ErrUnsupported)
	}
	return err
}
