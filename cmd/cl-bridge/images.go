package main

import (
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// newImages brings images into a cache, as configured.
func newImages(c config.Config, content *cache.Cache, from source.Source) *images.Images {
	layout, converter := spool.Layout(c.Shared), c.Image.Converter()
	converter.Source, converter.Reserve = from, c.LowWater.Of
	return &images.Images{
		Cache: content, Converter: converter, Login: ownLogins(c, from),
		Kept:     images.Records(layout.KeptImages()),
		Names:    images.Names{Dir: layout.ImageNames()},
		Remember: c.Image.Remember.Duration,
		Offline:  c.Image.Offline,
		AtOnce:   c.Image.Conversions,
		LowWater: c.LowWater.Of,
	}
}
