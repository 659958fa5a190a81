package staging

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Images brings the image of a reference for a run on nodes of that architecture (in Go's spelling;
// empty means the bridge's own), and returns the inputs' fields that describe it. The holder keeps
// the image. item shows the progress. Errors are *transfer.Error.
type Images interface {
	Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, holder cache.Holder, item *transfer.Item) (spool.Inputs, error)
}

// Stager brings the inputs of bundles to the shared disk. It is safe for concurrent use. Its fields
// must not change after its first use.
type Stager struct {
	// Images is an *images.Images, or an *engineimages.Images if an engine runs the containers.
	Images       Images
	Dependencies *inputs.Dependencies
	// Holder returns the holder of the pins of a bundle's inputs in the cache.
	Holder func(bundle string) cache.Holder
}

// Stage brings the image of a reference, for nodes of that architecture (in Go's spelling; empty
// means the bridge's own), and the dependencies of a run at the same time, and returns their paths.
// It blocks until all are there or one has failed. A permanent failure ends the others; a transient
// one does not. It calls progress repeatedly with one sentence, from one goroutine at a time.
//
// Bundles that want the same data share one transfer, and each shows its progress. Any number of
// bundles may be staged at the same time.
func (s *Stager) Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, progress func(string)) (spool.Inputs, error) {
	holder := s.Holder(run.UUID)
	items := []*transfer.Item{{Name: "image " + reference, Image: true}}
	for _, d := range run.Dependencies {
		items = append(items, &transfer.Item{Name: inputs.Name(d.Dependency)})
	}
	var in spool.Inputs
	dependencies := make([]spool.Dependency, len(run.Dependencies))
	err := transfer.Report(items, progress, func() error {
		return all(ctx, len(items), 1+s.Dependencies.AtOnceNow(), func(ctx context.Context, i int) (err error) {
			if i == 0 {
				in, err = s.Images.Stage(ctx, run, reference, architecture, holder, items[0])
				return err
			}
			dependencies[i-1], err = s.Dependencies.Stage(ctx, run, run.Dependencies[i-1], holder, items[i])
			return err
		})
	})
	if err != nil {
		if transfer.IsFull(err) {
			// Bundles that each hold a part and wait for room for the rest would block each other.
			// This bundle does not use its inputs yet.
			err = errors.Join(err, s.Dependencies.Cache.Unpin(ctx, holder))
		}
		return spool.Inputs{}, err
	}
	in.Dependencies = dependencies
	return in, nil
}

// all calls bring with 0 to n-1, atOnce of them at a time. Of several failures it returns a
// permanent one, if there is one.
func all(ctx context.Context, n, atOnce int, bring func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	transient := make([]error, n)
	for i := range n {
		g.Go(func() error {
			err := bring(ctx, i)
			if e, ok := errors.AsType[*transfer.Error](err); ok && e.Retry {
				transient[i] = err
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, err := range transient {
		if err != nil {
			return err
		}
	}
	return nil
}

// Changed is Links.Changed. It returns "" if links are not used in place.
func (s *Stager) Changed(ctx context.Context, in spool.Inputs) string {
	if s.Dependencies.Links == nil {
		return ""
	}
	return s.Dependencies.Links.Changed(ctx, in)
}
