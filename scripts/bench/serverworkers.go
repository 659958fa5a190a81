package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// samples are durations of requests in milliseconds. It is safe for concurrent use.
type samples struct {
	mu  sync.Mutex
	all []float64
}

func (s *samples) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, float64(took)/float64(time.Millisecond))
}

// p99 returns the 99th percentile of the samples since the last call.
func (s *samples) p99() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		check(errors.New("no answers came"))
	}
	sorted := slices.Sorted(slices.Values(s.all))
	s.all = nil
	return sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
}

// benchWorkers measures a server with 5,000 idle workers that check in as CodaLab's do: the delay of
// check-ins and of users' requests, the server's resource use, and its largest rate of check-ins.
func benchWorkers(ctx context.Context, dir string) {
	const windows, lasts = 3, 10 * time.Second
	data := filepath.Join(dir, "data")
	tokens := makeUsers(ctx, data, accounts()...)
	s := startServer(ctx, data)
	defer s.end()
	user := newCoreUser(ctx, signedIn(s.address, tokens["ann"]), "python:3")
	get := request(http.MethodGet, "/rest/bundles/"+must(user.create(ctx, "none")), tokens["ann"], nil)

	var alone []float64
	var reads, checkIns samples
	reading := s.readEvery(ctx, get, &reads)
	defer reading()
	for range windows {
		check(pause.For(ctx, lasts/4))
		alone = append(alone, reads.p99())
	}
	f := newFleet(ctx, s.address, tokens)
	defer f.close()
	working := f.startCheckIns(ctx, &checkIns)
	defer working()
	check(pause.For(ctx, checkInEvery+checkInHold)) // until all have checked in
	reads.p99()
	checkIns.p99()
	before := s.cpu()
	var ofReads, ofCheckIns, memory []float64
	for range windows {
		check(pause.For(ctx, lasts))
		ofReads, ofCheckIns = append(ofReads, reads.p99()), append(ofCheckIns, checkIns.p99())
		memory = append(memory, residentMB(s.pid))
	}
	used := s.cpu() - before
	working()
	figure{name: "server/check_in_p99_5000_workers", value: median(ofCheckIns), unit: "ms"}.print()
	figure{name: "server/get_bundle_p99_5000_workers", value: median(ofReads), unit: "ms", against: "no_workers", base: median(alone)}.print()
	figure{name: "server/memory_5000_workers", value: median(memory), unit: "MB"}.print()
	figure{name: "server/cpu_5000_workers", value: used / (windows * lasts).Seconds() * 100, unit: "%"}.print()
	reading()
	figure{name: "server/check_ins", value: f.most(ctx), unit: "/s"}.print()
	f.close()
	figure{name: "server/check_ins_held", value: float64(f.holdAll(ctx)), unit: "at_once", bar: idleWorkers, atLeast: true}.print()
	figure{name: "server/memory_5000_held", value: s.memory(), unit: "MB"}.print()
}

// benchUse measures the server's use of processors by workers that report what 1,200 runs use, as often as workers check in. The
// server writes the series of each run once in this time.
func benchUse(ctx context.Context, dir string) {
	const workers, lasts = 4, 75 * time.Second
	token := makeUsers(ctx, dir)["ann"]
	s := startServer(ctx, dir)
	defer s.end()
	user := newCoreUser(ctx, signedIn(s.address, token), "python:3")
	var all []*reporter
	for i := range workers {
		all = append(all, startReporter(ctx, user.Client, user, fmt.Sprint("used", i)))
	}
	began, before := time.Now(), s.cpu()
	var working errgroup.Group
	for _, r := range all {
		working.Go(func() error {
			var err error
			for ran := time.Since(began); err == nil && ran < lasts; ran = time.Since(began) {
				err = r.reportUse(ctx, ran) // the server holds it
			}
			return err
		})
	}
	check(working.Wait())
	figure{name: "server/cpu_1200_used_runs", value: (s.cpu() - before) / time.Since(began).Seconds() * 100, unit: "%"}.print()
}

// readEvery sends a request some fifty times a second, until the caller calls stop.
func (s clServer) readEvery(ctx context.Context, get []byte, took *samples) (stop func()) {
	c := must(dial(ctx, s.address, nil))
	var working sync.WaitGroup
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	working.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for failed == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				began := time.Now()
				failed = c.call(get)
				took.add(time.Since(began))
			}
		}
	})
	return func() {
		cancel()
		working.Wait()
		_ = c.Close() // it may be closed already
		if failed != nil {
			check(fmt.Errorf("read a bundle: %w", failed))
		}
	}
}
