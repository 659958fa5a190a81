package images

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// resolver asks registries for the images of references. Registries count questions, so bundles
// with the same question share an answer for a while. An answer that needed credentials is only for
// bundles with that login.
type resolver struct {
	remember time.Duration
	now      func() time.Time

	asking *turns.Turns
	calls  sharedcall.Group[answer]

	mu    sync.Mutex
	known map[question]answer
}

func newResolver(remember time.Duration, now func() time.Time) *resolver {
	return &resolver{remember: remember, now: now, asking: turns.New(resolvesAtOnce), known: map[question]answer{}}
}

// question is a question to a registry.
type question struct {
	// reference is the full one, and architecture that of the image.
	reference, architecture string
	// login names the credentials for the registry; empty means the site's.
	login string
}

// answer is the image of a reference, or the reason why it is unknown.
type answer struct {
	img   source.Image
	err   error
	until time.Time // the answer counts until then
}

const (
	// resolvesAtOnce limits the references that are resolved at the same time.
	resolvesAtOnce = 16
	// failedFor is the time for which a failure counts as the answer, so that a thousand bundles
	// ask the registry once.
	failedFor = 5 * time.Second
	// longestSilence limits the pause that a registry may demand.
	longestSilence = time.Hour
	// forgottenAfter is the time for which an outdated answer is remembered. Until then the
	// registry is only asked whether the answer still holds.
	forgottenAfter = 24 * time.Hour
)

// resolve returns the image of a reference, from a source with the question's credentials. Owners
// take turns. Calls of two owners are never shared, because the second owner would wait for the
// first one's turn.
func (r *resolver) resolve(ctx context.Context, owner string, q question, ref source.Reference, from source.Source) (source.Image, error) {
	a, fresh := r.recall(q)
	if !fresh {
		var err error
		a, err = r.calls.Do(ctx, fmt.Sprintf("%q %q", owner, q), func(ctx context.Context) (answer, error) { return r.query(ctx, owner, q, ref, from) })
		if err != nil {
			return source.Image{}, err
		}
	}
	a.img.Reference = ref // there are several ways to write one
	return a.img, r.waitLess(a)
}

// waitLess returns an answer's error, with RetryAfter reduced by the time that has passed.
func (r *resolver) waitLess(a answer) error {
	var refused *source.ImageError
	if !errors.As(a.err, &refused) || refused.RetryAfter == 0 {
		return a.err
	}
	now := *refused
	now.RetryAfter = max(a.until.Sub(r.now()), time.Second)
	return &now
}

// recall returns the last answer to a question, and whether it still counts. An answer that needed
// no credentials counts for every login.
func (r *resolver) recall(q question) (a answer, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for other, a := range r.known {
		if now.Sub(a.until) > forgottenAfter {
			delete(r.known, other)
		}
	}
	if a := r.known[q.anyLogin()]; now.Before(a.until) && a.err == nil && !a.img.Private {
		return a, true
	}
	a = r.known[q]
	return a, now.Before(a.until)
}

// anyLogin returns the question with the site's credentials.
func (q question) anyLogin() question {
	return question{reference: q.reference, architecture: q.architecture}
}

// query asks the source or, if there was an answer before, whether that still holds. It fails only
// if ctx ends, when no caller waits for the answer any more.
func (r *resolver) query(ctx context.Context, owner string, q question, ref source.Reference, from source.Source) (answer, error) {
	leave, err := r.asking.Take(ctx, turns.Party{Owner: owner})
	if err != nil {
		return answer{}, err
	}
	defer leave()
	before, fresh := r.recall(q)
	if fresh { // another call has just ended
		return before, nil
	}
	var a answer
	if before.err == nil && before.img.Digest != "" {
		a.img, a.err = from.Refresh(ctx, before.img)
	} else {
		a.img, a.err = from.Resolve(ctx, ref)
	}
	if ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	counts := r.remember
	if a.err != nil {
		counts = failedFor
	}
	if refused, ok := errors.AsType[*source.ImageError](a.err); ok {
		counts = max(counts, min(refused.RetryAfter, longestSilence))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.until = r.now().Add(counts)
	r.known[q] = a
	if a.err == nil && !a.img.Private {
		r.known[q.anyLogin()] = a
	}
	return a, nil
}
