package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The calls for sessions and passwords are cl-server's alone. They fail with errors.ErrUnsupported on CodaLab's own
// server.

// Sessions returns the user's sessions, the last used first.
func (c *Client) Sessions(ctx context.Context) ([]codalab.Session, error) {
	sessions, err := getAll(ctx, c, "/user/sessions", nil, nil, func(_ related, o codalab.Object) (codalab.Session, error) {
		s := codalab.Session{ID: o.ID}
		err := o.Decode(&s)
		return s, err
	})
	return sessions, onlyOurs(err, "list sessions")
}

// EndSession ends one of the user's sessions.
func (c *Client) EndSession(ctx context.Context, id string) error {
	return onlyOurs(c.do(ctx, call{method: http.MethodDelete, path: path("user", "sessions", id), within: answerWithin}, nil), "end session")
}

// endedSessions is an answer with the number of sessions that a call has ended.
type endedSessions struct {
	Meta struct {
		Ended int `json:"ended_sessions"`
	} `json:"meta"`
}

// EndOtherSessions ends the user's sessions, except the client's own. It returns their number.
func (c *Client) EndOtherSessions(ctx context.Context) (int, error) {
	var answer endedSessions
	err := c.do(ctx, call{method: http.MethodDelete, path: "/user/sessions", within: answerWithin}, &answer)
	return answer.Meta.Ended, onlyOurs(err, "end sessions")
}

// ChangePassword changes the user's password. It ends the user's other sessions, whose number it returns, and the
// worker tokens. It fails with status 403 if the old password is wrong.
func (c *Client) ChangePassword(ctx context.Context, old, next string) (int, error) {
	var answer endedSessions
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/user/password", json: codalab.PasswordChange{Old: old, New: next}, within: answerWithin,
	}, &answer)
	return answer.Meta.Ended, onlyOurs(err, "change password")
}

// ResetPassword sets a new password by a one-time code, which needs no login. CodaLab's own server has a call of the same
// path for its web page, and answers right and wrong codes by redirections to pages. So it gets no code.
func (c *Client) ResetPassword(ctx context.Context, code, next string) error {
	const doing = "reset password"
	switch ours, err := c.hasPost(ctx, "/user/password"); {
	case err != nil:
		return err
	case !ours:
		return fmt.Errorf("%s: %w", doing, errors.ErrUnsupported)
	}
	return onlyOurs(c.do(ctx, call{
		method: http.MethodPost, path: "/account/reset/finalize", basic: CommandClient, within: answerWithin,
		form: url.Values{"code": {code}, "password": {next}, "confirm_password": {next}},
	}, nil), doing)
}

// hasPost reports whether the server has a POST of this path, and no GET: it refuses the wrong method, and does not know
// the path otherwise.
func (c *Client) hasPost(ctx context.Context, path string) (bool, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path, within: answerWithin}, "")
	if err != nil {
		return false, err
	}
	_ = resp.Body.Close() // nothing is read
	return resp.StatusCode == http.StatusMethodNotAllowed, nil
}

// onlyOurs returns errors.ErrUnsupported for the error of a server that does not know a call of cl-server's.
func onlyOurs(err error, doing string) error {
	refused, ok := errors.AsType[*codalab.Error](err)
	if ok && refused.UnknownRoute() {
		return fmt.Errorf("%s: %w", doing, errors.ErrUnsupported)
	}
	return err
}
