package main

import (
	"context"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/provenance"
)

// showProvenance prints where bundles came from.
func (c *cli) showProvenance(ctx context.Context, worksheet string, specs []string) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	text, err := provenance.Of(ctx, at, at.Address(), uuids...)
	if err != nil {
		return err
	}
	return c.print(strings.TrimSuffix(string(text), "\n"))
}
