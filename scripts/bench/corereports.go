package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const runsOfOneCheckIn = 300

// benchReports measures the number of reports of live runs that cl-server applies in a second. Each
// report has new values.
func benchReports(ctx context.Context, dir string) {
	const workers, rounds = 4, 7
	address, _, stop := serveCore(ctx, filepath.Join(dir, "reports"), time.Millisecond)
	defer stop()
	cl := ann(address, nil)
	user := newCoreUser(ctx, cl, "python:3")
	var all []*reporter
	for i := range workers {
		all = append(all, startReporter(ctx, cl, user, fmt.Sprintf("w%d", i)))
	}
	rate := func(reporters []*reporter) float64 {
		var rates []float64
		for range rounds {
			took := seconds(func() {
				var group errgroup.Group
				for _, r := range reporters {
					group.Go(func() error { return r.report(ctx) })
				}
				check(group.Wait())
			})
			rates = append(rates, float64(len(reporters)*runsOfOneCheckIn)/took)
		}
		return median(rates)
	}
	figure{name: "core/reports", value: rate(all[:1]), unit: "/s", against: stock, base: stockReports}.print()
	figure{name: "core/reports_of_4", value: rate(all), unit: "/s", against: stock, base: stockReportsOf4}.print()
}

// reporter is a worker with runs, which it reports all at once.
type reporter struct {
	client *client.Client
	name   string
	in     codalab.CheckIn
	round  int
}

// startReporter makes a worker and its runs.
func startReporter(ctx context.Context, cl *client.Client, user coreUser, name string) *reporter {
	user.createMany(ctx, runsOfOneCheckIn, name)
	r := &reporter{client: cl, name: name, in: codalab.CheckIn{
		Tag: name, TagExclusive: true, CPUs: 1e6, MemoryBytes: 1 << 60, FreeDiskBytes: 1 << 60, ExitAfterNumRuns: codalab.UnlimitedRuns, Hostname: name,
	}}
	now := time.Now().Unix()
	for len(r.in.Reports) < runsOfOneCheckIn {
		offer := r.in
		offer.Reports = nil
		for _, m := range must(cl.CheckIn(ctx, name, offer)) {
			if m.Type != codalab.MessageRun {
				continue
			}
			if must(cl.StartBundle(ctx, name, m.Bundle.UUID, codalab.StartBundle{Hostname: name, StartTime: now})) {
				r.in.Reports = append(r.in.Reports, codalab.RunReport{UUID: m.Bundle.UUID, State: codalab.StateRunning, BundleStart: float64(now), Remote: name})
			}
		}
	}
	return r
}

// report sends a report with new values for each run.
func (r *reporter) report(ctx context.Context) error {
	r.round++
	for i := range r.in.Reports {
		r.in.Reports[i].RunStatus = fmt.Sprintf("It runs as Slurm job %d, since %d minutes.", i, r.round)
	}
	_, err := r.client.CheckIn(ctx, r.name, r.in)
	return err
}

// reportUse sends a report with the use of each run, whose command has run for some time. Nothing else in it is new.
func (r *reporter) reportUse(ctx context.Context, ran time.Duration) error {
	for i := range r.in.Reports {
		r.in.Reports[i].ContainerTimeTotal, r.in.Reports[i].ContainerTimeUser = ran.Seconds(), ran.Seconds()/2
		r.in.Reports[i].Usage = &codalab.UsageNow{MemoryBytes: 1<<30 + int64(ran), GPUs: &codalab.GPUsNow{Busy: .9, MemoryBytes: 1<<34 + int64(ran)}}
	}
	_, err := r.client.CheckIn(ctx, r.name, r.in)
	return err
}
