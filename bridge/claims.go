package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	single  *turns.Turns
	// several has the requests for several claims of each worker; nil if service has none.
	several *batch.Optional[codalab.BundleStart, claimed]
}

// claimedAtOnce bounds the requests for one claim each.
const claimedAtOnce = 16

// claimed is the outcome of a claim.
type claimed struct {
	accepted bool
	err      error
}

func newClaims(s BundleService, now func() time.Time) *claims {
	c := &claims{service: s, single: turns.New(claimedAtOnce)}
	if starter, ok := s.(BundleStarter); ok {
		c.several = batch.NewOptional(now, 1, claimFits, batch.Requests[codalab.BundleStart, claimed]{
			Several: func(ctx context.Context, worker string, starts []codalab.BundleStart) ([]claimed, error) {
				return send(ctx, starter, worker, starts)
			},
			Single: func(ctx context.Context, worker string, one codalab.BundleStart) (claimed, error) {
				accepted, err := s.StartBundle(ctx, worker, one.UUID, one.StartBundle)
				return claimed{accepted, err}, nil
			},
		})
	}
	return c
}

// start claims a bundle of an owner for a worker, as BundleService.StartBundle does.
func (c *claims) start(ctx context.Context, worker, owner string, in codalab.BundleStart) (bool, error) {
	if c.several != nil {
		got, err := c.several.Do(ctx, worker, in)
		refused, ok := errors.AsType[*codalab.Error](err)
		switch goesAlone := ok && !refused.Transient() || errors.Is(err, errors.ErrUnsupported); {
		case err == nil:
			return got.accepted, got.err
		case !goesAlone:
			return false, fmt.Errorf("claim bundle %s: %w", in.UUID, err)
		}
	}
	leave, err := c.single.Take(ctx, turns.Party{Owner: owner})
	if err != nil {
		return false, err
	}
	defer leave()
	return c.service.StartBundle(ctx, worker, in.UUID, in.StartBundle)
}

// claimFits bounds a request for several claims, which has each bundle once.
func claimFits(starts []codalab.BundleStart, more codalab.BundleStart) bool {
	return len(starts) < codalab.MostStarts && !slices.ContainsFunc(starts, func(one codalab.BundleStart) bool { return one.UUID == more.UUID })
}

// send claims bundles by one request, and returns the outcomes in their order, or the failure of the request as a whole.
func send(ctx context.Context, starter BundleStarter, worker string, starts []codalab.BundleStart) ([]claimed, error) {
	answers, err := starter.StartBundles(ctx, worker, starts)
	if err != nil {
		return nil, err
	}
	outcomes := make([]claimed, len(starts))
	for i := range outcomes {
		outcomes[i] = claimed{accepted: answers[i].Started, err: refusalOf(worker, answers[i])}
	}
	return outcomes, nil
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
