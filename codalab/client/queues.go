package client

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Queues returns the queues that serve the user; all of them for root. It fails with errors.ErrUnsupported on CodaLab's
// own server, which has none to show.
func (c *Client) Queues(ctx context.Context) ([]codalab.Queue, error) {
	var answer struct {
		Data []codalab.Queue `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/queues", within: answerWithin}, &answer)
	return answer.Data, onlyOurs(err, "list queues")
}
