package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// ErrNotSignedIn is the error of a sign-in by a browser that its user has refused, or has not finished in time.
var ErrNotSignedIn = errors.New("nobody has signed in")

// SignInByBrowser signs in by a browser on whatever machine (RFC 8628), and returns the tokens. show gets the address of the
// server's page and the code that the user types there. It blocks until the user has signed in, or until the server has
// given up; if the server does not answer, until the code's time is over. It fails with errors.ErrUnsupported if the server has no such sign-in, as CodaLab's own.
func (c *Client) SignInByBrowser(ctx context.Context, show func(codalab.DeviceAnswer)) (Token, error) {
	var codes codalab.DeviceAnswer
	begin := call{method: http.MethodPost, path: "/oauth2/device_authorization", form: url.Values{"scope": {"default"}}, basic: CommandClient, within: answerWithin}
	err := c.do(ctx, begin, &codes)
	switch {
	case codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed):
		return Token{}, fmt.Errorf("sign in by a browser: %w", errors.ErrUnsupported)
	case err == nil && (codes.DeviceCode == "" || codes.UserCode == ""):
		err = c.noServer(begin, http.StatusOK, errors.New("it has no code"))
	}
	if err != nil {
		return Token{}, err
	}
	show(codes)
	form := url.Values{"grant_type": {codalab.DeviceGrant}, "device_code": {codes.DeviceCode}}
	interval := time.Duration(max(codes.Interval, 0.01) * float64(time.Second))
	end := c.auth.now().Add(time.Duration(codes.Seconds * float64(time.Second)))
	for {
		if err := pause.For(ctx, interval); err != nil {
			return Token{}, err
		}
		t, err := c.auth.grant(ctx, form)
		var answer struct {
			Error string `json:"error"`
		}
		refused, isRefusal := errors.AsType[*codalab.Error](err)
		if isRefusal && refused.Status == http.StatusBadRequest {
			_ = json.Unmarshal([]byte(refused.Message), &answer) // another text is another error
		}
		switch answer.Error {
		case "authorization_pending":
		case "slow_down":
			interval += 5 * time.Second
		case "access_denied":
			return Token{}, fmt.Errorf("%w: the sign-in was refused in the browser", ErrNotSignedIn)
		case "expired_token":
			return Token{}, fmt.Errorf("%w in time", ErrNotSignedIn)
		default:
			if isRefusal && refused.Transient() && c.auth.now().Before(end) {
				continue // the server does not answer for a while
			}
			if err == nil {
				t = c.auth.set(t)
			}
			return t, err
		}
	}
}

// OffersBrowser reports whether the server lets people sign in by a browser.
func (c *Client) OffersBrowser(ctx context.Context) bool {
	offers, err := c.hasPost(ctx, "/oauth2/device_authorization")
	return offers && err == nil
}
