package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// AddProgramToken makes a program token of the user, and returns it with its secret. It fails with
// errors.ErrUnsupported if the server has no such tokens, as CodaLab's own.
func (c *Client) AddProgramToken(ctx context.Context, in codalab.ProgramTokenRequest) (codalab.ProgramToken, error) {
	var made codalab.ProgramToken
	request := call{method: http.MethodPost, path: "/program_tokens", json: in, within: answerWithin}
	err := onlyOurs(c.do(ctx, request, &made), "make program token")
	if err == nil && made.Access == "" {
		err = c.noServer(request, http.StatusOK, errors.New("it has no token"))
	}
	return made, err
}

// ProgramTokens returns the user's program tokens, the oldest first. It fails with errors.ErrUnsupported if the server has
// no such tokens.
func (c *Client) ProgramTokens(ctx context.Context) ([]codalab.ProgramToken, error) {
	var all []codalab.ProgramToken
	err := c.do(ctx, call{method: http.MethodGet, path: "/program_tokens", within: answerWithin}, &all)
	return all, onlyOurs(err, "list program tokens")
}

// EndProgramToken ends one of the user's program tokens.
func (c *Client) EndProgramToken(ctx context.Context, id string) error {
	return onlyOurs(c.do(ctx, call{method: http.MethodDelete, path: path("program_tokens", id), within: answerWithin}, nil), "end program token")
}

// OwnProgramToken describes the client's own program token. It fails with the status 403 if the token is not for the worker
// with this id, and with errors.ErrUnsupported if the server has no such tokens.
func (c *Client) OwnProgramToken(ctx context.Context, workerID string) (codalab.ProgramToken, error) {
	var own codalab.ProgramToken
	err := c.do(ctx, call{method: http.MethodGet, path: path("workers", workerID, "token"), within: answerWithin}, &own)
	return own, onlyOurs(err, "describe program token")
}
