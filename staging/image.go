package staging

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// image brings the image of that name in, as a SIF.
func (s *Stager) image(ctx context.Context, run codalab.RunBundle, name string, p *part) (sif, digest string, err error) {
	if name == "" {
		return "", "", &Error{What: "image", Err: errors.New("none was asked for, and the server has no default: use --request-docker-image")}
	}
	ref, err := apptainer.ParseReference(name)
	if err != nil {
		return "", "", imageError(err)
	}
	img, err := s.registry.resolve(ctx, ref, s.Converter.Registry)
	if err != nil {
		return "", "", imageError(err)
	}
	key := cache.Key{Kind: "sif", ID: img.Digest + " " + img.Architecture + " " + s.Converter.Settings()}
	sif, err = s.get(ctx, run, cache.Want{Key: key}, p, func(ctx context.Context, d *download, tmp string) error {
		return s.images.do(ctx, d, func() error {
			if err := s.spare(tmp); err != nil {
				return err
			}
			d.converting.Store(false)
			return s.Converter.Convert(ctx, img, tmp, func(p apptainer.Progress) {
				d.converting.Store(p.Stage == apptainer.Converting)
				d.total.Store(p.Total)
				d.done.Store(p.Done)
			})
		})
	})
	if err != nil {
		return "", "", imageError(err)
	}
	return sif, img.Digest, nil
}

// imageError keeps an image's own error, which is a sentence with the image's
// name already, and says of any other that it was about the image. What may
// pass of the former is the registry's, the network's or the disk's trouble.
func imageError(err error) error {
	var refused *apptainer.ImageError
	if errors.As(err, &refused) {
		return &Error{Err: refused, Retry: refused.Transient(), Away: refused.Transient()}
	}
	return &Error{What: "image", Err: err, Retry: true, Away: troubled(err)}
}

// resolver asks registries what references stand for. Bundles that ask for the
// same share an answer for a while: registries count their questions.
type resolver struct {
	once   sync.Once
	asking *semaphore.Weighted

	mu    sync.Mutex
	known map[string]*answer
}

// answer is what a reference stands for, once done is closed.
type answer struct {
	done   chan struct{}
	img    apptainer.Image
	err    error
	cancel context.CancelFunc
	asked  int // how many wait for it
}

// How many references are resolved at a time, and how long an answer is taken
// for true.
const (
	resolvesAtOnce = 8
	resolvedFor    = time.Minute
)

func (r *resolver) resolve(ctx context.Context, ref apptainer.Reference, registry apptainer.Registry) (apptainer.Image, error) {
	r.once.Do(func() { r.asking, r.known = semaphore.NewWeighted(resolvesAtOnce), map[string]*answer{} })
	a := r.join(ctx, ref, registry)
	defer r.leave(ref, a)
	select {
	case <-ctx.Done():
		return apptainer.Image{}, ctx.Err()
	case <-a.done:
		return a.img, a.err
	}
}

func (r *resolver) join(ctx context.Context, ref apptainer.Reference, registry apptainer.Registry) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.known[ref.String()]
	if a == nil {
		a = &answer{done: make(chan struct{})}
		ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
		r.known[ref.String()] = a
		go r.ask(ctx, a, ref, registry)
	}
	a.asked++
	return a
}

func (r *resolver) ask(ctx context.Context, a *answer, ref apptainer.Reference, registry apptainer.Registry) {
	defer a.cancel()
	defer close(a.done)
	if a.err = r.asking.Acquire(ctx, 1); a.err == nil {
		a.img, a.err = registry.Resolve(ctx, ref)
		r.asking.Release(1)
	}
	if a.err != nil {
		r.forget(ref, a)
		return
	}
	time.AfterFunc(resolvedFor, func() { r.forget(ref, a) })
}

// leave takes one off who wait; the last one ends the question.
func (r *resolver) leave(ref apptainer.Reference, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.asked--; a.asked > 0 {
		return
	}
	select {
	case <-a.done:
	default:
		a.cancel()
		if r.known[ref.String()] == a {
			delete(r.known, ref.String())
		}
	}
}

func (r *resolver) forget(ref apptainer.Reference, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[ref.String()] == a {
		delete(r.known, ref.String())
	}
}
