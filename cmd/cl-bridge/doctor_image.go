package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// registryWithin is how long a registry may take to say what an image is.
const registryWithin = 10 * time.Second

// images tries whether this host can convert images, and whether it gets the images
// of runs that name none.
func (e *examination) images(ctx context.Context) {
	if e.Image.Queue == "" && !e.Image.Offline {
		e.note(doctor.Converter(e.Image.Converter().Ready(ctx))...)
	}
	var names []string
	for _, q := range e.Queue {
		names = append(names, e.DefaultImages(q)[0]) // a run without GPUs gets the first
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		kept, err := e.findImage(ctx, name)
		e.note(doctor.Image(name, kept, err))
	}
}

// findImage looks for an image among those that are kept here, and then in its
// registry.
func (e *examination) findImage(ctx context.Context, name string) (kept bool, err error) {
	ref, err := source.ParseReference(name)
	if err != nil {
		return false, err
	}
	_, kept, _ = images.Records(spool.Layout(e.Shared).KeptImages()).Get(ref.Name(), string(config.Architecture("").Canonical())) // what cannot be read is not kept
	if kept {
		return true, nil
	}
	if e.Image.Offline {
		return false, errors.New("image.offline is set, and it was not brought in")
	}
	ctx, cancel := context.WithTimeout(ctx, registryWithin)
	defer cancel()
	_, err = imageSource(e.process, e.Config, nil).Resolve(ctx, ref)
	return false, err
}
