package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// benchLifecycles measures the number of runs that go from creation to end in a second. At the same time a
// user creates runs in bulk, and workers claim them, report their ends and get the acknowledgements. Each
// of these steps survives a crash. The runs have no contents.
func benchLifecycles(ctx context.Context, dir string) {
	const rounds, runs, workers, bulk, creators = 3, 1000, 4, 100, 2
	token := makeUsers(ctx, dir)["ann"]
	s := startServer(ctx, dir)
	defer s.end()
	cl := signedIn(s.address, token)
	post := request(http.MethodPost, "/rest/bundles?worksheet="+newCoreUser(ctx, cl, "").worksheet, token, newRuns(bulk))
	var rates []float64
	for range rounds {
		took := seconds(func() {
			var group errgroup.Group
			for range creators {
				group.Go(func() error {
					c, err := dial(ctx, s.address, nil)
					for i := 0; err == nil && i < runs/bulk/creators; i++ {
						err = c.call(post)
					}
					return err
				})
			}
			finish(ctx, cl, workers, runs)
			check(group.Wait())
		})
		rates = append(rates, runs/took)
	}
	figure{name: "server/run_lifecycles", value: median(rates), unit: "/s"}.print()
}

// finish claims and ends runs by several workers, until the server has acknowledged the ends of n.
func finish(ctx context.Context, cl *client.Client, workers, n int) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	working, done := context.WithCancel(ctx)
	defer done()
	group, working := errgroup.WithContext(working)
	var acknowledged atomic.Int64
	for i := range workers {
		w := &finisher{client: cl, name: fmt.Sprint("w", i)}
		group.Go(func() error {
			for working.Err() == nil {
				ended, err := w.round(working)
				if err != nil && working.Err() == nil {
					return err
				}
				if acknowledged.Add(int64(ended)) == int64(n) {
					done() // ends the check-ins that are held
				}
			}
			return ctx.Err()
		})
	}
	check(group.Wait())
}

// finisher is a worker that reports the end of each run as soon as it has claimed it.
type finisher struct {
	client *client.Client
	name   string
	ended  []codalab.RunReport // not acknowledged
}

// round checks in, claims the worker's runs, and returns the number of acknowledged ends.
func (f *finisher) round(ctx context.Context) (acknowledged int, err error) {
	messages, err := f.client.CheckIn(ctx, f.name, codalab.CheckIn{
		CPUs: 1e6, MemoryBytes: 1 << 60, FreeDiskBytes: 1 << 60, ExitAfterNumRuns: codalab.UnlimitedRuns, Hostname: f.name, Reports: f.ended,
	})
	if err != nil {
		return 0, err
	}
	known := map[string]bool{}
	var group errgroup.Group
	group.SetLimit(8)
	var mu sync.Mutex
	var claimed []codalab.RunReport
	for _, m := range messages {
		if m.Type == codalab.MessageMarkFinalized {
			known[m.UUID] = true
		}
		if m.Type == codalab.MessageRun {
			group.Go(func() error {
				ended, err := f.claim(ctx, m.Bundle.UUID)
				mu.Lock()
				defer mu.Unlock()
				claimed = append(claimed, ended)
				return err
			})
		}
	}
	err = group.Wait()
	for _, run := range f.ended {
		if !known[run.UUID] {
			claimed = append(claimed, run)
		}
	}
	f.ended = claimed
	return len(known), err
}

// claim claims a run, and returns the report of its end.
func (f *finisher) claim(ctx context.Context, uuid string) (codalab.RunReport, error) {
	now, code := time.Now(), 0
	granted, err := f.client.StartBundle(ctx, f.name, uuid, codalab.StartBundle{Hostname: f.name, StartTime: now.Unix()})
	if err == nil && !granted {
		err = fmt.Errorf("claim %s: it is another worker's", uuid)
	}
	profile := map[string]codalab.StageTimes{}
	for _, stage := range codalab.Stages() {
		profile[stage] = codalab.NewStageTimes(now, now)
	}
	return codalab.RunReport{
		UUID: uuid, State: codalab.StateFinalizing, RunStatus: "Finished", BundleStart: float64(now.Unix()),
		Remote: f.name, ExitCode: &code, Profile: profile,
	}, err
}
