package imagejob

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Convert writes the image, an OCI layout in a local directory, as a SIF at dst.
type Convert func(ctx context.Context, s Settings, img source.Image, dst string, progress func(Progress)) error

// Run converts the image that the spec.json at path describes. It is called inside a job, and writes
// result.json into the same directory unless ctx ended before. The result has the conversion's error, too.
func Run(ctx context.Context, path string, convert Convert) error {
	dir := filepath.Dir(path)
	var s spec
	if err := readRecord(dir, filepath.Base(path), &s); err != nil {
		return err
	}
	err := s.convert(ctx, dir, convert)
	if err != nil && ctx.Err() != nil {
		return err // Slurm knows the end of the job and its reason better
	}
	var r result
	if err != nil {
		r.Error, r.Transient = err.Error(), true
		if failed, ok := errors.AsType[*source.ImageError](err); ok {
			r.Error, r.Transient = failed.Err.Error(), failed.Transient()
		}
		var program interface{ Killed() bool } // a *command.Error
		r.Killed = errors.As(err, &program) && program.Killed()
	}
	return errors.Join(err, writeRecord(dir, resultName, r))
}

func (s spec) convert(ctx context.Context, dir string, convert Convert) error {
	ref, err := source.ParseReference(string(source.OCILayout) + ":" + s.Layout)
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	var latest atomic.Pointer[Progress]
	latest.Store(&Progress{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for pause.For(writing, time.Second) == nil {
			_ = writeRecord(dir, progressName, latest.Load()) // a lost record of progress does no harm
		}
	})
	img := source.Image{Reference: ref, Digest: s.Digest, Architecture: s.Architecture, Origin: s.Origin}
	err = convert(ctx, s.Settings, img, filepath.Join(dir, sifName), func(p Progress) { latest.Store(&p) })
	stop()
	writer.Wait()
	return err
}
