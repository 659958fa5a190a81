package staging

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
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
	// whose is who gave the credentials that the registry is shown; empty for the
	// site's, if it has any, which are for all who have given none.
	whose string
}

// answer is what a reference stands for, once done is closed.
type answer struct {
	done   chan struct{}
	img    source.Image
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
	// longestSilence is how long a registry that asks for it is not asked for an
	// image again.
	longestSilence = time.Hour
	// forgottenAfter is how long an answer is known that does not count any more:
	// the registry is only asked whether it still holds.
	forgottenAfter = 24 * time.Hour
)

// resolve returns what a reference stands for in a registry that is shown the
// credentials of the question.
func (r *resolver) resolve(ctx context.Context, q question, ref source.Reference, from source.Source) (source.Image, error) {
	r.once.Do(func() { r.asking, r.known = semaphore.NewWeighted(resolvesAtOnce), map[question]*answer{} })
	a := r.join(ctx, q, ref, from)
	defer r.leave(q, a)
	select {
	case <-ctx.Done():
		return source.Image{}, ctx.Err()
	case <-a.done:
	}
	img := a.img
	img.Reference = ref // there are several ways to write one
	return img, r.since(a)
}

// since is an answer's error as it is by now.
func (r *resolver) since(a *answer) error {
	var refused *source.ImageError
	if !errors.As(a.err, &refused) || refused.RetryAfter == 0 {
		return a.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := *refused
	now.RetryAfter = max(a.until.Sub(r.now()), time.Second)
	return &now
}

func (r *resolver) join(ctx context.Context, q question, ref source.Reference, from source.Source) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for other, a := range r.known {
		if !a.until.IsZero() && now.Sub(a.until) > forgottenAfter {
			delete(r.known, other)
		}
	}
	// What anybody may have need not be asked for with somebody's credentials.
	if a := r.known[question{name: q.name, architecture: q.architecture}]; a != nil && a.fresh(now) && a.err == nil && !a.img.Private {
		a.asked++
		return a
	}
	a := r.known[q]
	if a == nil || !a.until.IsZero() && !a.fresh(now) {
		before := a
		a = &answer{done: make(chan struct{})}
		ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
		r.known[q] = a
		go r.ask(ctx, q, a, before, ref, from)
	}
	a.asked++
	return a
}

// fresh says whether an answer was given, and still counts.
func (a *answer) fresh(now time.Time) bool { return now.Before(a.until) }

// ask asks a registry; where there was an answer before, whether it still holds.
func (r *resolver) ask(ctx context.Context, q question, a, before *answer, ref source.Reference, from source.Source) {
	defer a.cancel()
	defer close(a.done)
	if a.err = r.asking.Acquire(ctx, 1); a.err == nil {
		if before != nil && before.err == nil {
			a.img, a.err = from.Refresh(ctx, before.img)
		} else {
			a.img, a.err = from.Resolve(ctx, ref)
		}
		r.asking.Release(1)
	}
	good := r.remember
	if a.err != nil {
		good = failedFor
	}
	var refused *source.ImageError
	if errors.As(a.err, &refused) {
		good = max(good, min(refused.RetryAfter, longestSilence))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.until = r.now().Add(good)
	if everybodys := (question{name: q.name, architecture: q.architecture}); a.err == nil && !a.img.Private {
		r.known[everybodys] = a
	}
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
