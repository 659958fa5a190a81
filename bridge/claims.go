package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/batch"
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
	workers map[string]*batch.Calls[codalab.BundleStart, claimed]
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

// claimed is the outcome of a claim. alone means that it has none, and needs a request of its own.
type claimed struct {
	accepted bool
	err      error
	alone    bool
}

func newClaims(s BundleService, now func() time.Time) *claims {
	return &claims{service: s, now: now, single: turns.New(claimedAtOnce), workers: map[string]*batch.Calls[codalab.BundleStart, claimed]{}}
}

// start claims a bundle of an owner for a worker, as BundleService.StartBundle does.
func (c *claims) start(ctx context.Context, worker, owner string, in codalab.BundleStart) (bool, error) {
	if calls := c.of(worker); calls != nil {
		got, err := calls.Do(ctx, in)
		if err != nil {
			return false, fmt.Errorf("claim bundle %s: %w", in.UUID, err)
		}
		if !got.alone {
			return got.accepted, got.err
		}
	}
	leave, err := c.single.Take(ctx, turns.Party{Owner: owner})
	if err != nil {
		return false, err
	}
	defer leave()
	return c.service.StartBundle(ctx, worker, in.UUID, in.StartBundle)
}

// of returns the requests for several claims of a worker; nil if each claim is a request of its own.
func (c *claims) of(worker string) *batch.Calls[codalab.BundleStart, claimed] {
	starter, ok := c.service.(BundleStarter)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || c.now().Before(c.alone) {
		return nil
	}
	calls := c.workers[worker]
	if calls == nil {
		calls = batch.New(1, claimFits, func(ctx context.Context, starts []codalab.BundleStart) ([]claimed, error) {
			return c.send(ctx, starter, worker, starts), nil
		})
		c.workers[worker] = calls
	}
	return calls
}

// claimFits bounds a request for several claims, which has each bundle once.
func claimFits(starts []codalab.BundleStart, more codalab.BundleStart) bool {
	return len(starts) < codalab.MostStarts && !slices.ContainsFunc(starts, func(one codalab.BundleStart) bool { return one.UUID == more.UUID })
}

// send claims bundles by one request, and returns the outcomes in their order.
func (c *claims) send(ctx context.Context, starter BundleStarter, worker string, starts []codalab.BundleStart) []claimed {
	outcomes := make([]claimed, len(starts))
	if one := starts[0]; len(starts) == 1 {
		outcomes[0].accepted, outcomes[0].err = c.service.StartBundle(ctx, worker, one.UUID, one.StartBundle)
		return outcomes
	}
	answers, err := starter.StartBundles(ctx, worker, starts)
	refused, ok := errors.AsType[*codalab.Error](err)
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported {
		c.mu.Lock()
		c.alone = c.now().Add(claimAloneFor)
		c.mu.Unlock()
	}
	for i := range outcomes {
		switch {
		case unsupported, ok && !refused.Transient():
			outcomes[i].alone = true
		case err != nil:
			outcomes[i].err = err
		default:
			outcomes[i] = claimed{accepted: answers[i].Started, err: refusalOf(worker, answers[i])}
		}
	}
	return outcomes
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
