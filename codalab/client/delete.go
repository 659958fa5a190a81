package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// DeleteOptions select further bundles to delete, or only their contents (codalab/rest/bundles.py:
// _delete_bundles).
type DeleteOptions struct {
	// Force also deletes bundles on which others depend, or that are on several worksheets.
	Force bool
	// Recursive deletes the bundles that depend on them, too.
	Recursive bool
	// DataOnly keeps the bundles without their contents.
	DataOnly bool
	// DryRun deletes nothing.
	DryRun bool
}

// DeleteBundles deletes bundles, all or none, and returns the ids of all that were deleted, or that
// would be.
func (c *Client) DeleteBundles(ctx context.Context, uuids []string, o DeleteOptions) ([]string, error) {
	var answer struct {
		Meta struct {
			IDs []string `json:"ids"`
		} `json:"meta"`
	}
	err := c.do(ctx, call{
		method: http.MethodDelete, path: "/bundles", within: relayWithin, json: codalab.NewDocument(removal("bundles", uuids)),
		query: url.Values{
			"force": {boolParam(o.Force)}, "recursive": {boolParam(o.Recursive)},
			"data-only": {boolParam(o.DataOnly)}, "dry-run": {boolParam(o.DryRun)},
		},
	}, &answer)
	return answer.Meta.IDs, err
}
