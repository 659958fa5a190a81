package client

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The calls for a user's secrets are cl-server's alone. They fail with errors.ErrUnsupported on CodaLab's own server.

// Secrets returns the user's secrets, without their values.
func (c *Client) Secrets(ctx context.Context) ([]codalab.Secret, error) {
	secrets, err := getAll(ctx, c, "/secrets", nil, nil, readSecret)
	return secrets, onlyOurs(err, "list secrets")
}

// SetSecret sets a secret of the user, or replaces its value.
func (c *Client) SetSecret(ctx context.Context, name, value string) error {
	object := codalab.NewObject("secrets", name, codalab.NewSecret{Value: value})
	_, err := c.submit(ctx, http.MethodPost, "/secrets", nil, []codalab.Object{object})
	return onlyOurs(err, "set secret")
}

// RemoveSecrets removes secrets of the user, all or none.
func (c *Client) RemoveSecrets(ctx context.Context, names ...string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/secrets", nil, removal("secrets", names))
	return onlyOurs(err, "remove secrets")
}

func readSecret(_ related, o codalab.Object) (codalab.Secret, error) {
	s := codalab.Secret{Name: o.ID}
	err := o.Decode(&s)
	return s, err
}

// RunSecrets returns the values of the secrets that a run names, by name, for a worker that has claimed the run. Only
// cl-server has secrets.
func (c *Client) RunSecrets(ctx context.Context, workerID, uuid string) (map[string]string, error) {
	var answer codalab.RunSecrets
	err := c.do(ctx, call{method: http.MethodPost, path: path("workers", workerID, "secrets", uuid), json: struct{}{}, within: answerWithin}, &answer)
	return answer.Values, err
}
