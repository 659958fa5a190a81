package bridge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// askQueue asks Slurm whether it takes the smallest job of a queue.
func (t *trials) askQueue(ctx context.Context, queue string) plan.Canary {
	_, err := canary.Ask(ctx, t.scheduler, t.inForce.queue(queue))
	var refused *sbatch.Error
	switch {
	case err == nil:
		return plan.Canary{}
	case errors.As(err, &refused) && refused.Refused && !refused.Retry:
		return plan.Canary{Refusal: refused.Message}
	}
	return plan.Canary{Failure: err.Error()}
}

// askAbout is askQueue for a row's job that can never start, and asks what the site has changed of the job. An answer that
// lacks that is none.
func (t *trials) askAbout(ctx context.Context, r plan.Row) plan.Canary {
	c := t.askQueue(ctx, r.Queue)
	if t.describe == nil || c != (plan.Canary{}) || r.Job.ID == 0 {
		return c
	}
	details, err := t.describe(ctx, r.Job.ID)
	if err != nil {
		return plan.Canary{Failure: err.Error()}
	}
	return plan.Canary{SiteChanges: t.inForce.now().SiteChanges(r, details)}
}

// tooLarge returns Slurm's refusal of a request that is larger than all nodes of its queue that the survey has
// shown. It is empty if the request fits one of them, if Slurm takes it all the same, and if Slurm does not
// tell the bundle's fault from the queue's: then the job is submitted, and its refusal is judged.
func (t *trials) tooLarge(ctx context.Context, r plan.Row) string {
	q, ok := t.inForce.queues()[r.Queue]
	if q.Nodes = t.capacity.nodeSizes(r.Queue); !ok || q.Fits(r.Resources) {
		return ""
	}
	return t.refusal(q, r, func(request sbatch.Request) (refusal string, answered bool) {
		ctx, cancel := context.WithTimeout(ctx, trialWithin)
		defer cancel()
		var refused *sbatch.Error
		err := t.scheduler.Try(ctx, request)
		if err == nil || errors.As(err, &refused) && (refused.Retry || refused.OfSite) {
			return "", true
		}
		if refused == nil || !refused.Refused {
			return "", false
		}
		if c := t.askQueue(ctx, r.Queue); c != (plan.Canary{}) {
			return "", c.Failure == ""
		}
		return refused.Message, true
	})
}

const (
	// trialGood is the time for which a trial's answer is used for other bundles with the same request.
	trialGood = time.Minute
	// trialsPerSecond and trialBurst bound the trials. A request beyond is not tried.
	trialsPerSecond, trialBurst = 1, 10
	// trialWithin bounds a trial: the claim waits for it.
	trialWithin = 5 * time.Second
)

// trials ask Slurm about jobs without submitting them. They remember Slurm's answers, so that a hundred
// bundles with one impossible request cost Slurm one question. They are safe for concurrent use.
type trials struct {
	scheduler sbatch.Scheduler
	describe  func(ctx context.Context, id sbatch.JobID) (sbatch.Details, error) // nil for none
	inForce   *inForce
	capacity  *capacity
	now       func() time.Time

	mu     sync.Mutex
	pace   *rate.Limiter    // nil before the first
	answer map[string]trial // by request
}

type trial struct {
	asked   time.Time
	refusal string
}

// refusal returns Slurm's refusal of a row's request. It is empty if there is none, if Slurm does not answer,
// and if the request is not tried. Only answers are remembered.
func (t *trials) refusal(q plan.Queue, r plan.Row, try func(sbatch.Request) (refusal string, answered bool)) string {
	request := plan.Policy{Queues: map[string]plan.Queue{r.Queue: q}, Map: t.inForce.now().Map}.Request(r)
	request.Name, request.Comment, request.Nice, request.Dir, request.Output, request.Script = "cl-trial", "", 0, "/", "/dev/null", "#!/bin/sh\n"
	key := strings.Join(request.Args(), "\x00")
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if known, ok := t.answer[key]; ok && now.Sub(known.asked) < trialGood {
		return known.refusal
	}
	if t.pace == nil {
		t.pace, t.answer = rate.NewLimiter(trialsPerSecond, trialBurst), map[string]trial{}
	}
	if !t.pace.AllowN(now, 1) {
		return ""
	}
	for old, known := range t.answer {
		if now.Sub(known.asked) >= trialGood {
			delete(t.answer, old)
		}
	}
	refusal, answered := try(request)
	if answered {
		t.answer[key] = trial{now, refusal}
	}
	return refusal
}
