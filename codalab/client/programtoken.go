package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// AddProgramToken makes a program token of the user, and returns it with its secret. It fails with
// errors.ErrUnsupported if the server has no such tokens, as CodaLab's own.
func (c *Client) AddProgramToken(ctx context.Context, in codalab.ProgramTokenRequest) (codalab.ProgramToken, error) {
	var made codalab.ProgramToken
	request := call{method: http.MethodPost, path: "/program_tokens", json: in, within: answerWithin}
	err := unsupported(c.do(ctx, request, &made))
	if err == nil && made.Access == "" {
		err = c.noServer(request, http.StatusOK, errors.New("it has no token"))
	}
	return made, err
}

// ProgramTokens returns the user's program tokens, the oldest first. It fails with errors.ErrUnsupported if the server has
// no such tokens.
func (c *Client) ProgramTokens(ctx context.Context) ([]codalab.ProgramToken, error) {
	var all []codalab.ProgramToken
	err := unsupported(c.do(ctx, call{method: http.MethodGet, path: "/program_tokens", within: answerWithin}, &all))
	return all, err
}

// EndProgramToken ends one of the user's program tokens.
func (c *Client) EndProgramToken(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: path("program_tokens", id), within: answerWithin}, nil)
}

// OwnProgramToken describes the client's own program token. It fails with the status 403 if the token is not for the worker
// with this id, and with errors.ErrUnsupported if the server has no such tokens.
func (c *Client) OwnProgramToken(ctx context.Context, workerID string) (codalab.ProgramToken, error) {
	var own codalab.ProgramToken
	err := unsupported(c.do(ctx, call{method: http.MethodGet, path: path("workers", workerID, "token"), within: answerWithin}, &own))
	return own, err
}

// unsupported returns the error of a call that only our server has.
func unsupported(err error) error {
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return fmt.Errorf("the server has no program tokens, as CodaLab's own: %w", errors.ErrUnsupported)
	}
	return err
}
