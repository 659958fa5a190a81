package assembly

import (
	"cmp"
	"context"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/imagejob"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Convert makes a SIF in place of Converter.Convert.
type Convert func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error

// ImageJobs returns a function that converts images in jobs of image.queue, or nil if the
// configuration names no such queue.
func ImageJobs(c config.Config, slurm *sbatch.Observer, installed sharedfiles.Programs) Convert {
	q, ok := c.Plan()[c.Image.Queue]
	if !ok {
		return nil
	}
	request := q.Request(0)
	request.Comment, request.Time = "codalab image", c.Image.JobTime()
	jobs := imagejob.Jobs{
		Slurm:   slurm,
		Now:     slurm.Now,
		Program: installed.Converter,
		Request: request,
	}
	return func(ctx context.Context, c apptainer.Converter, img source.Image, dst string, progress func(apptainer.Progress)) error {
		return jobs.Convert(ctx, imagePuller{c}, img, dst, func(p imagejob.Progress) { progress(apptainer.Progress(p)) })
	}
}

// imagePuller adapts the Converter to bridge/imagejob.
type imagePuller struct{ converter apptainer.Converter }

// Pull is [apptainer.Converter.Pull].
func (i imagePuller) Pull(ctx context.Context, img source.Image, dir string, progress func(imagejob.Progress)) (source.Image, error) {
	return i.converter.Pull(ctx, img, dir, func(p apptainer.Progress) { progress(imagejob.Progress(p)) })
}

// Settings returns the Converter's settings for a job.
func (i imagePuller) Settings() imagejob.Settings {
	c := i.converter
	return imagejob.Settings{
		Compression: c.Compression, Level: c.Level, BlockSize: c.BlockSize, MaxBytes: c.MaxBytes, MaxEntries: c.MaxEntries,
		Processors: cmp.Or(c.Processors, apptainer.DefaultProcessors), MemoryMiB: cmp.Or(c.MemoryMiB, apptainer.DefaultMemoryMiB),
	}
}
