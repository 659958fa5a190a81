package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// Converter judges whether this host can convert images.
func Converter(err error) []Check {
	if err == nil {
		return nil
	}
	return []Check{failed("image", err.Error(), "or name image.queue: jobs of that queue convert images")}
}

// Image judges the image of runs that name none: whether it is kept here, and else why it
// cannot be had from its registry or its file. Runs may name another image, so a missing
// one is a warning.
func Image(reference string, kept bool, err error) Check {
	found := reference + ", of runs that name none, "
	switch {
	case kept:
		return ok("image", "%s", found+"is kept here")
	case err == nil:
		return ok("image", "%s", found+"can be had")
	}
	return warning("image", found+"cannot be had: "+err.Error(), "bring it in with cl-bridge image pull, or name a mirror (image.registry) or another image (image.default_cpu)")
}

// registryWithin bounds the time in which a registry has to answer for an image.
const registryWithin = 10 * time.Second

// images checks whether this host can convert images, and whether it gets the images
// of runs that name none.
func (e *Examination) images(ctx context.Context) {
	c := e.Config
	if c.Image.Queue == "" && !c.Image.Offline {
		e.add(Converter(c.Image.Converter().Ready(ctx))...)
	}
	var references []string
	for _, q := range c.Queue {
		references = append(references, c.DefaultImages(q)[0]) // for runs without GPUs
	}
	slices.Sort(references)
	for _, reference := range slices.Compact(references) {
		kept, err := e.image(ctx, reference)
		e.add(Image(reference, kept, err))
	}
}

// image looks for an image among those that are kept here, and then in its registry.
func (e *Examination) image(ctx context.Context, reference string) (kept bool, err error) {
	ref, err := source.ParseReference(reference)
	if err != nil {
		return false, err
	}
	records := images.Records(spool.Layout(e.Config.Shared).KeptImages())
	_, kept, _ = records.Get(ref.Full(), string(config.Architecture("").Canonical())) // an unreadable record keeps nothing
	if kept {
		return true, nil
	}
	if e.Config.Image.Offline {
		return false, errors.New("image.offline is set, and it was not brought in")
	}
	ctx, cancel := context.WithTimeout(ctx, registryWithin)
	defer cancel()
	_, err = e.Images.Resolve(ctx, ref)
	return false, err
}
