package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// coreBridge is a bridge with all parts of cl-bridge run, except the programs that jobs run and
// Slurm's commands. It may run in a synctest bubble.
type coreBridge struct {
	config config.Config
	book   *ledger.Ledger
	bridge *bridge.Bridge

	content *cache.Cache
	images  *images.Images
	sweeps  *sharedfiles.Sweeper
}

// coreConfig is the configuration of the bridge.
const coreConfig = `
server = "SERVER"
user = "ann"
password_file = "DIR/password"
name = "bench"
shared = "DIR/shared"
ledger = "DIR/ledger.db"
low_water = "1%"

[slurm]
accounting = true
min_job_age = "300s"

[image]
roots = ["IMAGES"]

[cache]
settle = "1s"

[queue.cpu]
default = true
partition = "cpu"
default_time = "1h"
`

// openCore makes a bridge with its files in dir. httpClient is nil for the usual way to the server.
func openCore(ctx context.Context, dir, imageRoot, server string, httpClient *http.Client, slurm sbatch.Scheduler) *coreBridge {
	check(os.WriteFile(filepath.Join(dir, "password"), []byte(corePassword), 0o600))
	text := strings.NewReplacer("SERVER", server, "DIR", dir, "IMAGES", imageRoot).Replace(coreConfig)
	c := must(config.Parse(strings.NewReader(text)))
	b := &coreBridge{config: c, book: must(ledger.Open(ctx, c.Ledger))}
	b.book.KeepHistory = c.KeepHistory.Duration
	layout := b.layout()
	check(os.MkdirAll(string(layout), 0o700))
	check(sharedfiles.Prepare(c, layout, 0))
	check(os.MkdirAll(filepath.Dir(b.worker()), 0o700))
	check(os.WriteFile(b.worker(), nil, 0o700))
	cl := must(client.New(c.Server, client.Options{HTTP: httpClient, Credentials: c.Credentials}))
	start := time.Now()
	now := func() time.Time { return start.Round(0).Add(time.Since(start)) } // as cl-bridge: steadyClock
	watched := &sbatch.Observer{Scheduler: slurm, Interval: c.Slurm.ObserveEvery.Duration, Now: now}
	judge := pins.Judge{Ledger: &b.book.Reader, Observe: watched.Observe, Now: now, Ready: func() bool { return b.bridge.Observed() }}
	b.content = must(cache.Open(layout.Cache(), cache.Options{Size: c.Cache.Size.Bytes, Over: judge.Over}))
	stage := b.stager(cl)
	disk := spool.Disk{Layout: layout, Bridge: b.book.ID}
	b.bridge = &bridge.Bridge{Config: bridge.Config{
		Policy: b.policy(), Name: c.Name, Hostname: coreHost,
		Ledger: b.book, Scheduler: watched, Service: cl, Spool: disk, Carrier: disk, Gauge: disk,
		Stager: stage, Collector: &results.Collector{Contents: cl, Layout: layout, MaxBytes: func() int64 { return c.Staging.MaxResults.Bytes }, Now: now},
		Log: slog.New(slog.DiscardHandler), Now: now,
		ObserveEvery: watched.Interval, DoorbellEvery: 350 * time.Millisecond, ReadEvery: 5 * time.Second,
	}}
	b.sweeps = &sharedfiles.Sweeper{Ledger: b.book, Scheduler: watched, Disk: disk, Workers: []string{b.worker()}, Grace: c.SweepGrace.Duration, Now: now}
	return b
}

// coreHost is the name of the bridge's host.
const coreHost = "login"

func (b *coreBridge) layout() spool.Layout { return spool.Layout(b.config.Shared) }

// worker is the path of the program that jobs would run.
func (b *coreBridge) worker() string { return filepath.Join(b.layout().Bin("0"), "cl-worker") }

// run runs the bridge until ctx ends, with the lease and the background tasks of cl-bridge run.
func (b *coreBridge) run(ctx context.Context) {
	log := b.bridge.Log
	me := lease.Holder{Bridge: b.book.ID, Ledger: ledger.Name(b.config.Ledger), Host: coreHost, Process: os.Getpid(), Started: b.bridge.Now()}
	held := must(lease.Acquire(ctx, b.layout().BridgeDir(), me, func(lease.Holder) bool { return false }, func(lease.Holder) {}))
	heartbeats := heartbeat.Recorder{Bridge: b.bridge, Config: func() config.Config { return b.config }, Ledger: b.book, Lease: held, Holder: me, Log: log}
	var beside sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	beside.Go(func() { _ = heartbeats.Run(ctx) }) // nobody else takes the lease
	beside.Go(func() { pins.KeepTrimmed(ctx, b.bridge.Observed, b.content, b.images, log) })
	beside.Go(func() { b.sweeps.Run(ctx, time.Minute, time.Hour, log) })
	err := b.bridge.Run(ctx)
	stop()
	beside.Wait()
	check(errors.Join(err, b.book.Close()))
}

func (b *coreBridge) policy() plan.Policy {
	c := b.config
	return plan.Policy{
		Bridge: b.book.ID, Owner: c.User, Layout: b.layout(), Worker: sbatch.Program{Path: b.worker()}, Queues: c.Plan(),
		SubmitGrace: 90 * time.Second, OrphanGrace: 10 * time.Minute, CancelOrphans: *c.CancelStrays,
		RecordAge: c.Slurm.MinJobAge.Duration, Accounting: *c.Slurm.Accounting, Settle: c.DiskSettle.Duration, StuckFor: 5 * time.Second,
		StagePatience: c.StagePatience.Duration, OutagePatience: c.OutagePatience.Duration, CollectPatience: c.CollectPatience.Duration, QuotaPatience: c.QuotaPatience.Duration,
		LongestAckPause: 10 * time.Minute, MaxAttempts: c.MaxAttempts, KeepAfterAck: c.KeepAfterAck.Duration, LowWater: c.LowWater.LowWater,
	}
}

func (b *coreBridge) stager(cl *client.Client) *staging.Stager {
	c, layout, converter := b.config, b.layout(), b.config.Image.Converter()
	converter.Source, converter.Reserve = localRegistries(), c.LowWater.Of
	b.images = &images.Images{
		Cache: b.content, Converter: converter, Files: &images.Files{Roots: c.Image.Roots, Records: layout.SIFDigests()},
		Kept: images.Records(layout.KeptImages()), References: images.References{Dir: layout.ImageReferences()},
		Remember: c.Image.Remember.Duration, AtOnce: c.Image.Conversions, LowWater: c.LowWater.Of, Now: time.Now,
	}
	return &staging.Stager{
		Images: b.images,
		Dependencies: &inputs.Dependencies{
			Contents: cl, Cache: b.content, Identity: cl.Identity, LowWater: c.LowWater.Of, AtOnce: c.Staging.Downloads, Layout: layout,
			Limits: func() tarstream.Limits {
				return tarstream.Limits{Bytes: c.Staging.MaxDependency.Bytes, Entries: int64(c.Staging.MaxFiles)}
			},
		},
		Holder: func(bundle string) cache.Holder { return pins.RowHolder(b.book.ID, bundle) },
	}
}
