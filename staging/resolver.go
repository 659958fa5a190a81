package staging

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/apptainer"
)

// resolver asks registries what references stand for. Bundles that ask for the
// same share an answer for a while: registries count their questions. What was
// answered to one person's credentials is for that person's bundles alone.
type resolver struct {
	once     sync.Once
	asking   *semaphore.Weighted
	remember time.Duration
	now      func() time.Time

	mu    sync.Mutex
	known map[question]*answer
}

// question is what a registry is asked.
type question struct {
	// name is the reference in full, architecture that of the image.
	name, architecture string
	// whose names the credentials that the registry is shown; empty for none
	// and for those of the bridge, which all bundles share.
	whose string
}

// answer is what a reference stands for, once done is closed.
type answer struct {
	done   chan struct{}
	img    apptainer.Image
	err    error
	until  time.Time // zero while the registry is asked; guarded by resolver.mu
	cancel context.CancelFunc
	asked  int // how many wait for it
}

const (
	// resolvesAtOnce is how many references are resolved at a time.
	resolvesAtOnce = 8
	// failedFor is how long it is taken for true that a registry does not answer,
	// or knows no such image: a thousand bundles hear of one question.
	failedFor = 5 * time.Second
)

// resolve returns what a reference stands for in a registry that is shown the
// credentials of the question.
func (r *resolver) resolve(ctx context.Context, q question, ref apptainer.Reference, registry apptainer.Registry) (apptainer.Image, error) {
	r.once.Do(func() { r.asking, r.known = semaphore.NewWeighted(resolvesAtOnce), map[question]*answer{} })
	a := r.join(ctx, q, ref, registry)
	defer r.leave(q, a)
	select {
	case <-ctx.Done():
		return apptainer.Image{}, ctx.Err()
	case <-a.done:
		img := a.img
		img.Reference = ref // there are several ways to write one
		return img, a.err
	}
}

func (r *resolver) join(ctx context.Context, q question, ref apptainer.Reference, registry apptainer.Registry) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, a := range r.known {
		if !a.until.IsZero() && !r.now().Before(a.until) {
			delete(r.known, other)
		}
	}
	a := r.known[q]
	if a == nil {
		a = &answer{done: make(chan struct{})}
		ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
		r.known[q] = a
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
	good := r.remember
	if a.err != nil {
		good = failedFor
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.until = r.now().Add(good)
}

// leave takes one off who wait; the last one ends the question.
func (r *resolver) leave(q question, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.asked--; a.asked > 0 || !a.until.IsZero() {
		return
	}
	a.cancel()
	if r.known[q] == a {
		delete(r.known, q)
	}
}
