package imagejob

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Convert writes the image, an OCI layout in a local directory, as a SIF at dst.
type Convert func(ctx context.Context, s Settings, img source.Image, dst string, progress func(Progress)) error

// Run does what the spec.json at path says, inside a job, and writes the result
// beside it, unless ctx ended before. The error is that of the conversion; it is in
// the result too.
func Run(ctx context.Context, path string, convert Convert) error {
	dir := filepath.Dir(path)
	var s spec
	if err := readRecord(dir, filepath.Base(path), &s); err != nil {
		return err
	}
	err := s.convert(ctx, dir, convert)
	if err != nil && ctx.Err() != nil {
		return err // Slurm knows better how the job ended, and why
	}
	var r result
	if err != nil {
		r.Error, r.Transient = err.Error(), true
		var failed *source.ImageError
		if errors.As(err, &failed) {
			r.Error, r.Transient = failed.Err.Error(), failed.Transient()
		}
		var program *command.Error
		r.Killed = errors.As(err, &program) && program.Killed()
	}
	return errors.Join(err, writeRecord(dir, resultName, r))
}

func (s spec) convert(ctx context.Context, dir string, convert Convert) error {
	ref, err := source.ParseReference(string(source.OCILayout) + ":" + s.Layout)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var told latest
	var telling sync.WaitGroup
	telling.Go(func() { told.tell(ctx, dir) })
	img := source.Image{Reference: ref, Digest: s.Digest, Architecture: s.Architecture, Origin: s.Origin}
	err = convert(ctx, s.Settings, img, filepath.Join(dir, sifName), told.set)
	cancel()
	telling.Wait()
	return err
}

// latest is the last progress there was.
type latest struct {
	mu sync.Mutex
	p  Progress
}

func (l *latest) set(p Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.p = p
}

// tell writes the progress down now and then, until ctx ends. That is worth no
// error.
func (l *latest) tell(ctx context.Context, dir string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.mu.Lock()
			p := l.p
			l.mu.Unlock()
			_ = writeRecord(dir, progressName, p)
		}
	}
}
