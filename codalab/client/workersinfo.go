package client

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Workers returns the connected workers of the user and of the user's groups; all of them for root.
func (c *Client) Workers(ctx context.Context) ([]codalab.WorkerInfo, error) {
	var answer struct {
		Data []codalab.WorkerInfo `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/workers/info", within: answerWithin}, &answer)
	return answer.Data, err
}
