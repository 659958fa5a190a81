package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// claims claims bundles at the server. One request per worker is under way at a time, and the next one has all claims that
// wait until then. It is safe for concurrent use.
//
// A server that has no requests for several claims, as CodaLab's own, gets a request for each, claimedAtOnce of them at a time,
// and so does one that refuses a request as a whole: one claim must not be the others' fault. To repeat a claim does no harm,
// so each claim of a request without an answer is repeated like a single one.
type claims struct {
	service BundleService
	now     func() time.Time
	single  *turns.Turns

	mu      sync.Mutex
	workers map[string]*workerClaims
	// alone is the time until which each claim is a request of its own.
	alone time.Time
}

const (
	// claimedAtOnce bounds the requests for one claim each.
	claimedAtOnce = 16
	// claimAloneFor is the time for which a server without requests for several claims is not asked for one again. It may be
	// updated.
	claimAloneFor = 10 * time.Minute
)

// workerClaims are the claims of a worker that wait.
type workerClaims struct {
	waiting []*claim
	// sending has an element while a request is under way.
	sending chan struct{}
}

// claim is a claim that waits. over is closed when the request that has it has ended; the rest is its outcome.
type claim struct {
	codalab.BundleStart

	over     chan struct{}
	accepted bool
	err      error
	// alone means that it has no outcome, and needs a request of its own.
	alone bool
}

func newClaims(s BundleService, now func() time.Time) *claims {
	return &claims{service: s, now: now, single: turns.New(claimedAtOnce), workers: map[string]*workerClaims{}}
}

// start claims a bundle of an owner for a worker, as BundleService.StartBundle does.
func (c *claims) start(ctx context.Context, worker, owner string, in codalab.BundleStart) (bool, error) {
	starter, ok := c.service.(BundleStarter)
	if one, of := c.enqueue(worker, in, ok); one != nil {
		for sent := false; !sent; {
			select {
			case <-one.over:
				sent = true
			case <-ctx.Done():
				c.remove(of, one)
				return false, fmt.Errorf("claim bundle %s: %w", in.UUID, ctx.Err())
			case of.sending <- struct{}{}:
				c.send(ctx, starter, worker, of)
				<-of.sending
			}
		}
		if !one.alone {
			return one.accepted, one.err
		}
	}
	leave, err := c.single.Take(ctx, turns.Party{Owner: owner})
	if err != nil {
		return false, err
	}
	defer leave()
	return c.service.StartBundle(ctx, worker, in.UUID, in.StartBundle)
}

// enqueue adds a claim to those that wait; nil if each claim is a request of its own.
func (c *claims) enqueue(worker string, in codalab.BundleStart, together bool) (*claim, *workerClaims) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !together || c.now().Before(c.alone) {
		return nil, nil
	}
	of := c.workers[worker]
	if of == nil {
		of = &workerClaims{sending: make(chan struct{}, 1)}
		c.workers[worker] = of
	}
	one := &claim{BundleStart: in, over: make(chan struct{})}
	of.waiting = append(of.waiting, one)
	return one, of
}

// remove removes a claim whose effect has ended. A request may have it already.
func (c *claims) remove(of *workerClaims, one *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, waiting := range of.waiting {
		if waiting == one {
			of.waiting = append(of.waiting[:i:i], of.waiting[i+1:]...)
			return
		}
	}
}

// take takes the claims that have waited longest, at most one of each bundle.
func (c *claims) take(of *workerClaims) (taken []*claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := map[string]bool{}
	var left []*claim
	for _, one := range of.waiting {
		if named[one.UUID] || len(taken) == codalab.MostStarts {
			left = append(left, one)
			continue
		}
		named[one.UUID] = true
		taken = append(taken, one)
	}
	of.waiting = left
	return taken
}

// send sends the claims that wait, if there are any.
func (c *claims) send(ctx context.Context, starter BundleStarter, worker string, of *workerClaims) {
	taken := c.take(of)
	defer func() {
		for _, one := range taken {
			close(one.over)
		}
	}()
	switch len(taken) {
	case 0:
		return
	case 1:
		one := taken[0]
		one.accepted, one.err = c.service.StartBundle(ctx, worker, one.UUID, one.StartBundle)
		return
	}
	starts := make([]codalab.BundleStart, len(taken))
	for i, one := range taken {
		starts[i] = one.BundleStart
	}
	answers, err := starter.StartBundles(ctx, worker, starts)
	refused, ok := errors.AsType[*codalab.Error](err)
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported {
		c.mu.Lock()
		c.alone = c.now().Add(claimAloneFor)
		c.mu.Unlock()
	}
	for i, one := range taken {
		switch {
		case unsupported, ok && !refused.Transient():
			one.alone = true
		case err != nil:
			one.err = err
		default:
			one.accepted, one.err = answers[i].Started, refusalOf(worker, answers[i])
		}
	}
}

// refusalOf returns the refusal of a claim; nil for none.
func refusalOf(worker string, answer codalab.StartedBundle) error {
	if answer.Status == 0 {
		return nil
	}
	return &codalab.Error{
		Method: http.MethodPost, Path: "/workers/" + worker + "/start_bundles", Status: answer.Status, Message: answer.UUID + ": " + answer.Message,
	}
}
