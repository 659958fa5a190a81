package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
)

const (
	// passes is the number of measured passes. A pass may take passShare of the five seconds between two of them, as an idle
	// manager may take that share of a processor (cpu_1000).
	passes    = 21
	passEvery = 5 * time.Second
	passShare = 0.05
)

// eager is a backend that a manager asks at each pass.
type eager struct{ *kubernetes.Backend }

func (eager) Refresh() time.Duration { return time.Nanosecond }

// benchPass measures one pass of a second manager of all workers of a namespace: it searches bundles, asks the server for its
// workers and the backend for all pods, tidies, and decides to start none.
func (l *workerLab) benchPass(ctx context.Context, address string, k pods, workers int) {
	cluster := must(kubernetes.Connect(kubeclient.Access{Host: address, Token: "none", Namespace: k.namespace}))
	b := &kubernetes.Backend{Cluster: cluster, Manager: "codalab", Now: time.Now}
	watching, stop := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { return b.Run(watching) })
	defer func() {
		stop()
		check(watch.Wait())
	}()
	m := &pilot.Manager{
		Server: l.user, Backend: eager{b}, Shape: pilot.Shape{CPUs: 1, Memory: 64 << 20}, Max: workers, MostFailed: -1,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for found := 0; found < workers; {
		pilots, err := b.Pilots(within)
		if found = len(pilots); err != nil || found < workers {
			check(pause.For(within, 200*time.Millisecond))
		}
	}
	var took []float64
	for range passes {
		began := time.Now()
		check(m.Pass(ctx))
		took = append(took, time.Since(began).Seconds()*1000)
	}
	if pilots := must(b.Pilots(ctx)); len(pilots) != workers {
		check(errors.New("the measured passes have changed the workers"))
	}
	figure{name: "managers/pass_1000", value: median(took), unit: "ms", bar: passEvery.Seconds() * 1000 * passShare}.print()
}
