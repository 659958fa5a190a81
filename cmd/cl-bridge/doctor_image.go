package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
)

// registryWithin is how long a registry may take to say what an image is.
const registryWithin = 10 * time.Second

// images tries whether images can be converted here, and whether those of bundles
// that name none can be had.
func (e *examination) images(ctx context.Context) {
	if e.Image.Queue == "" && !e.Image.Offline {
		if err := e.Image.converter().Ready(ctx); err != nil {
			e.note(doctor.Check{Name: "image", Verdict: doctor.Failed, Found: err.Error(), Do: "or name image.queue, in whose jobs images are converted"})
		}
	}
	var seen []string
	for _, q := range e.Queue {
		// A bundle without GPUs asks for the first.
		if name := e.defaultImages(q)[0]; !slices.Contains(seen, name) {
			seen = append(seen, name)
		}
	}
	slices.Sort(seen)
	for _, name := range seen {
		e.note(e.image(ctx, name))
	}
}

// image says whether an image can be had. Bundles may name others, so that its
// absence is a warning.
func (e *examination) image(ctx context.Context, name string) doctor.Check {
	c := doctor.Check{Name: "image", Verdict: doctor.OK, Found: name + ", of runs that name none, "}
	ref, err := source.ParseReference(name)
	if err == nil {
		_, kept, _ := staging.KeptImages(spool.Layout(e.Shared).KeptImages()).Get(ref.Name(), string(architecture("").or())) // else it is not
		if kept {
			c.Found += "is kept here"
			return c
		}
		ctx, cancel := context.WithTimeout(ctx, registryWithin)
		defer cancel()
		if e.Image.Offline {
			err = errors.New("image.offline is set, and it was not brought in")
		} else if _, err = e.imageSource(e.process, nil).Resolve(ctx, ref); err == nil {
			c.Found += "can be had from its registry"
			return c
		}
	}
	c.Verdict, c.Found = doctor.Warning, c.Found+"cannot be had: "+err.Error()
	c.Do = "bring it in with cl-bridge image pull, or name a mirror (image.registry) or another image (image.default_cpu)"
	return c
}
