// Package nodeimages is for runs on nodes that pull their images by themselves, as those of Kubernetes do, with their own
// logins and mirrors. It brings nothing, and asks no registry.
package nodeimages

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Images are images of registries.
type Images struct{}

// Stage returns the inputs' field that names the image to the nodes. Errors are *transfer.Error.
func (Images) Stage(_ context.Context, _ codalab.RunBundle, reference, _ string, _ cache.Holder, item *transfer.Item) (spool.Inputs, error) {
	if reference == "" {
		return spool.Inputs{}, &transfer.Error{What: "image", Err: errors.New("none was asked for, and there is no default: use --request-docker-image")}
	}
	ref, err := source.ParseReference(reference)
	if err != nil {
		return spool.Inputs{}, &transfer.Error{Err: err}
	}
	if ref.Kind() != source.InRegistry {
		return spool.Inputs{}, &transfer.Error{What: "image " + reference, Err: fmt.Errorf("the nodes of Kubernetes pull images of registries only")}
	}
	item.Arrived()
	return spool.Inputs{PinnedReference: strings.TrimPrefix(reference, "docker://")}, nil
}
