package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The calls for notices are cl-server's alone. They fail with errors.ErrUnsupported on CodaLab's own server.

// Notify lets the server send the user a mail when all of these bundles have ended.
func (c *Client) Notify(ctx context.Context, uuids ...string) (codalab.Notice, error) {
	object := codalab.NewObject("notices", "", codalab.NewNotice{Bundles: uuids})
	doc, err := c.submit(ctx, http.MethodPost, "/notices", nil, []codalab.Object{object})
	if err != nil {
		return codalab.Notice{}, onlyOurs(err, "notify")
	}
	made, err := doc.Objects()
	if err != nil || len(made) != 1 {
		return codalab.Notice{}, errors.Join(err, errors.New("notify: the answer is no notice"))
	}
	return readNotice(related{}, made[0])
}

// Notices returns the user's notices whose mail was not sent yet, the oldest first.
func (c *Client) Notices(ctx context.Context) ([]codalab.Notice, error) {
	notices, err := getAll(ctx, c, "/notices", nil, nil, readNotice)
	return notices, onlyOurs(err, "list notices")
}

// RemoveNotices removes notices of the user, all or none.
func (c *Client) RemoveNotices(ctx context.Context, ids ...string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/notices", nil, removal("notices", ids))
	return onlyOurs(err, "remove notices")
}

func readNotice(_ related, o codalab.Object) (codalab.Notice, error) {
	n := codalab.Notice{ID: o.ID}
	err := o.Decode(&n)
	return n, err
}
