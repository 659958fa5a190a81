package bridge

import (
	"context"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/spool"
)

// AtOnce bounds the effects of a kind that run at once. Package turns gives owners their turns, and one owner
// at most half of them. Slurm gets one request of a kind at a time. Bundles that are being staged mostly wait
// for downloads, which package staging limits: waiting bundles must not block ready ones, so the limit of Stage
// only bounds memory, as does that of Claim: claims wait for a request that has all of them.
//
// Small results have as many places of their own as others, AtOnce(plan.Collect): an upload of hours must not
// keep results waiting that take seconds.
func AtOnce(k plan.Kind) int {
	switch k {
	case plan.Submit, plan.AskQueue, plan.Cancel, plan.QueryAccounting:
		return 1
	case plan.Stage:
		return 2048
	case plan.Collect, plan.Carry:
		return 8
	case plan.Claim:
		return 2 * codalab.MostStarts
	case plan.Prepare, plan.ReadRecords, plan.Fence, plan.TellTimeLimit, plan.StopMember, plan.JoinPack, plan.Confirm, plan.Release, plan.Forget:
	}
	return 16
}

// togetherTimes is the number by which there are more places for small results that may be sent together: one owner's half
// fills a request. Those that are sent alone wait for a place among AtOnce(plan.Collect), too.
const togetherTimes = 16

// measuredAtOnce bounds the results that are measured at a time.
const measuredAtOnce = 8

// places are those of effects.
type places struct {
	collector Collector
	inForce   *inForce
	of        map[plan.Kind]*turns.Turns
	small     *turns.Turns // for small results
	measuring *turns.Turns
}

func newPlaces(atOnce func(plan.Kind) int, c Collector, f *inForce) places {
	small := atOnce(plan.Collect)
	if _, ok := c.(TogetherCollector); ok {
		small *= togetherTimes
	}
	made := places{collector: c, inForce: f, of: map[plan.Kind]*turns.Turns{}, small: turns.New(small), measuring: turns.New(measuredAtOnce)}
	for _, k := range plan.Kinds() {
		made.of[k] = turns.New(atOnce(k))
	}
	return made
}

// enter implements Bridge.Enter.
func (p *places) enter(ctx context.Context, e *plan.Effect, begin func()) (leave func()) {
	among, owner := p.of[e.Kind], turns.Party{Owner: ownerOf(*e)}
	if e.Kind == plan.Collect {
		if e.Measured = p.measure(ctx, *e.Row, owner); e.Measured.Small {
			among = p.small
		}
	}
	return among.Ask(owner, begin).Leave
}

// ownerOf is the owner of an effect's bundle; empty for an orphan job.
func ownerOf(e plan.Effect) string {
	if e.Row.Run == nil {
		return ""
	}
	return e.Row.Run.OwnerID
}

// measure measures a row's results. Of those that are given up only the end of the output is sent. It returns none if ctx
// ends before they are measured.
func (p *places) measure(ctx context.Context, r plan.Row, owner turns.Party) spool.MeasuredResults {
	if r.GivesUp {
		return spool.MeasuredResults{Small: true}
	}
	leave, err := p.measuring.Take(ctx, owner)
	if err != nil {
		return spool.MeasuredResults{}
	}
	defer leave()
	policy := p.inForce.now()
	return p.collector.Measure(ctx, *r.Run, policy.Layout.RunDir(r.Bundle, r.FilesIn()), policy.Queues[r.Queue].ResultsMode)
}

// waits returns the progress of an effect without a place; empty if that is not worth a report.
func waits(k plan.Kind) string {
	switch k {
	case plan.Stage:
		return "Waiting for its turn: the inputs of other bundles are being staged."
	case plan.Carry:
		return "Waiting for its turn: the files of other bundles are being copied."
	case plan.Collect:
		return "Waiting for its turn: the results of other bundles are being collected."
	default: // the others take seconds
	}
	return ""
}
