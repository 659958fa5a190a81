package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/energy"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// Counts counts what a bridge does, as bridge/metrics. It is an interface so that cl-worker, which counts nothing, has no
// library of metrics in it.
type Counts interface {
	Transfers
	Follow(b *bridge.Bridge, read func() int64)
	Begin(b *bridge.Bridge)
	Count(before, after *plan.Row, news *plan.News)
	Reloaded(err error)
}

// Transfers counts the bytes that a bridge sends, and what its cache has and has not.
type Transfers interface {
	Sent(bytes int)
	Got(k cache.Key, hit bool)
}

// Assembly describes a bridge. Serve builds and runs it, once.
type Assembly struct {
	program.Process
	config.Config
	Log *slog.Logger

	// LedgerLocked is set if the caller has locked the ledger (ledger.Lock), and unlocks it when Serve has
	// returned.
	LedgerLocked bool
	// Client is a client of the server.
	Client *client.Client
	// Scheduler returns the scheduler of the jobs. It is called after the ledger is locked. SubmitBound is
	// the longest duration of a submission.
	Scheduler   func(ctx context.Context) (sbatch.Scheduler, error)
	SubmitBound time.Duration
	// Settings gets Slurm's settings; nil if Adjust sets the values that depend on them.
	Settings func(ctx context.Context) (sbatch.Settings, error)
	// Turns gets the places of pending jobs; nil if they are of no interest.
	Turns func(ctx context.Context, ids []sbatch.JobID) (map[sbatch.JobID]sbatch.Turn, error)
	// Limits gets the limits of Slurm's QOS and associations; nil if they are of no interest.
	Limits bridge.LimitSource
	// Energy gets the allocations of jobs that have ended, with their energy; nil if the server is told no energy. It needs
	// Settings.
	Energy func(ctx context.Context, since time.Time, ids ...sbatch.JobID) ([]sbatch.Charge, error)
	// Describe gets one job; nil if nobody changes jobs.
	Describe func(ctx context.Context, id sbatch.JobID) (sbatch.Details, error)
	// Worker is the path of a cl-worker that jobs run in place; empty to install a copy of the
	// configuration's on the shared disk.
	Worker string
	// ImageCache is a directory for a cache of images of their own, which holds ImageCacheSize bytes at
	// most (0 means no bound); empty for one cache of all.
	ImageCache     string
	ImageCacheSize int64
	// Alone is set in a container, whose files no other account of the host writes: neither the owners of directories nor
	// the programs of jobs are checked.
	Alone bool
	// Neighbours is a directory with the shared directories of other bridges that use the caches too;
	// empty for none.
	Neighbours string
	// Adjust changes the parts before the bridge runs; nil changes nothing.
	Adjust func(p Parts)
	// Run runs the bridge; nil for its own Run.
	Run func(ctx context.Context, b *bridge.Bridge) error
	// TryHost tries once, while the bridge runs, whether this host could run containers by the cl-worker
	// of jobs; nil for no trial.
	TryHost func(ctx context.Context, worker string)
	// Counts counts what the bridge does; nil for nothing.
	Counts Counts
	// Reread lets the bridge follow its configuration file, and needs Counts; the zero value does not.
	Reread Rereading
	// Beside are background tasks. Each ends at the bridge's end.
	Beside []func(ctx context.Context)
}

// Parts are the objects that Adjust may change.
type Parts struct {
	Bridge *bridge.Bridge
	Stager *staging.Stager
	// Images makes SIFs for the Stager, unless Adjust gives the Stager another source.
	Images *images.Images
	// Over reports which holders of the caches' pins are over.
	Over func(ctx context.Context, holders []cache.Holder) (map[cache.Holder]bool, error)
}

// parts are all of a bridge.
type parts struct {
	Parts
	// content is the cache of dependencies. imageContent is that of images, which may be the same one.
	content, imageContent *cache.Cache
	neighbours            *pins.Neighbours // nil for none
	// live, pace and links follow the configuration while the bridge runs, and so do the numbers of transfers.
	live  *live
	pace  *transfer.Pace
	links *inputs.Links
	// energy tells the server the energy of runs; nil if nobody measures it.
	energy *energy.Watch
}

// doorbellEvery is the interval of checks of the doorbell, readEvery the least interval between two
// readings of one run's usage.
const (
	doorbellEvery = 350 * time.Millisecond
	readEvery     = 5 * time.Second
)

// stopWithin limits the stop of a bridge. Only a call on a disk that does not answer takes longer, and
// nothing can interrupt such a call. The units of service managers wait longer.
const stopWithin = 30 * time.Second

// Serve builds the bridge and runs it until ctx ends. It waits for a disk that does not answer (awaitDisks). It
// returns within half a minute after the end of ctx, even if calls on a disk have not returned. The
// process then ends as if it were killed, and the next start continues from the ledger.
func (a Assembly) Serve(ctx context.Context) error {
	var err error
	ended := background.Go(func() { err = a.serve(ctx) })
	select {
	case <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return err
	case <-time.After(stopWithin):
		a.Log.WarnContext(ctx, "the bridge ends although calls on a disk have not returned; jobs continue, and the next start takes them up", slog.Duration("waited", stopWithin))
		return nil
	}
}

func (a Assembly) serve(ctx context.Context) error {
	if err := a.awaitDisks(ctx); err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("start bridge: %w", err)
	}
	if err := a.checkOwn(a.Config); err != nil {
		return err
	}
	take := TakeLedger
	if a.LedgerLocked {
		take = openLedger
	}
	book, release, err := take(ctx, a.Ledger)
	if err != nil {
		return err
	}
	defer release()
	layout := spool.Layout(a.Shared)
	installed, err := a.prepareSite(ctx, book, layout)
	if err != nil {
		return err
	}
	scheduler, err := a.Scheduler(ctx)
	if err != nil {
		return err
	}
	now := steadyClock(time.Now())
	watched := &sbatch.Observer{Scheduler: scheduler, Interval: a.Slurm.ObserveEvery.Duration, Now: now}
	made, err := a.build(book, watched, installed, host)
	if err != nil {
		return err
	}
	b := made.Bridge
	me := lease.Holder{Bridge: book.ID, Ledger: ledger.Name(a.Ledger), Host: host, Process: os.Getpid(), Started: now()}
	held, err := takeShared(ctx, layout, me, a.Log)
	if err != nil {
		return err
	}
	heartbeats := heartbeat.Recorder{Bridge: b, Config: func() config.Config { return *made.live.Load() }, Ledger: book, Lease: held, Holder: me, Log: a.Log}
	sweeps := Sweeper(a.Config, book, watched, a.swept(installed), now)
	beside := append(a.upkeep(made, installed.Worker().Path, sweeps), a.Beside...)
	if a.Reread.Asked != nil {
		follow := reloader{Rereading: a.Reread, own: a.checkOwn, made: made, policy: a.policyOf(book.ID, layout, installed), counts: a.Counts, log: a.Log}
		beside = append(beside, follow.run)
	}
	heartbeats.FollowOrders(ctx, true)
	return whileHeld(ctx, &heartbeats, func(ctx context.Context) error {
		return runBeside(ctx, func() error { return a.runBridge(ctx, b) }, beside...)
	})
}

// awaitDisks waits until the disks of the shared directory and of the cache answer, and logs a wait.
func (a Assembly) awaitDisks(ctx context.Context) error {
	err := diskspace.Await(ctx, a.Shared, func(e *diskspace.SilentError) {
		a.Log.WarnContext(ctx, "the shared disk does not answer; the bridge starts when it does", slog.String("directory", e.Path))
	})
	if err != nil {
		return err
	}
	return diskspace.Await(ctx, CacheDir(a.Config), func(e *diskspace.SilentError) {
		a.Log.WarnContext(ctx, "the disk of cache.dir does not answer; the bridge starts when it does", slog.String("directory", e.Path))
	})
}

// upkeep returns the background tasks for the host and the disk.
func (a Assembly) upkeep(made parts, worker string, sweeps *sharedfiles.Sweeper) []func(ctx context.Context) {
	ready := made.Bridge.Observed
	tasks := []func(ctx context.Context){
		func(ctx context.Context) { pins.KeepTrimmed(ctx, ready, made.imageContent, made.Images, a.Log) },
		func(ctx context.Context) { sweeps.Run(ctx, sweepFirst, sweepEvery, a.Log) },
	}
	if a.TryHost != nil {
		tasks = append(tasks, func(ctx context.Context) { a.TryHost(ctx, worker) })
	}
	if made.content != made.imageContent {
		tasks = append(tasks, func(ctx context.Context) { pins.KeepTrimmed(ctx, ready, made.content, nil, a.Log) })
	}
	if made.energy != nil {
		tasks = append(tasks, made.energy.Run)
	}
	if made.neighbours != nil {
		tasks = append(tasks, func(ctx context.Context) { a.removeEnded(ctx, made.neighbours) })
	}
	return tasks
}

// A neighbour without a sign of life for endedFor counts as gone for good.
const endedFor = 7 * 24 * time.Hour

// removeEnded removes the files of neighbours that are gone for good, once.
func (a Assembly) removeEnded(ctx context.Context, n *pins.Neighbours) {
	if pause.For(ctx, sweepFirst) != nil {
		return
	}
	removed, err := n.RemoveEnded(ctx, endedFor)
	if err != nil && ctx.Err() == nil {
		a.Log.WarnContext(ctx, "the files of ended workers were not removed", slog.Any("error", err))
	}
	for _, dir := range removed {
		a.Log.InfoContext(ctx, "removed the files of a worker that has shown no sign of life for a week", slog.String("directory", dir))
	}
}

func (a Assembly) runBridge(ctx context.Context, b *bridge.Bridge) error {
	if a.Run == nil {
		return b.Run(ctx)
	}
	return a.Run(ctx, b)
}

// build builds the bridge, its caches and its stagers.
func (a Assembly) build(book *ledger.Ledger, watched *sbatch.Observer, installed sharedfiles.Programs, host string) (parts, error) {
	c, layout := a.Config, spool.Layout(a.Shared)
	made := parts{neighbours: a.neighbours(layout, watched.Now), live: newLive(c)}
	judge := pins.Judge{
		Ledger: &book.Reader, Observe: watched.Observe, Now: watched.Now, Neighbours: made.neighbours,
		Ready: func() bool { return made.Bridge.Observed() },
	}
	made.Over = judge.Over
	var err error
	options := CacheOptions(c, judge.Over)
	options.Quota = made.live.quota
	if a.Counts != nil {
		options.Got = a.Counts.Got
	}
	if made.content, err = cache.Open(CacheDir(c), options); err != nil {
		return made, err
	}
	made.imageContent = made.content
	if a.ImageCache != "" {
		of := c
		of.Cache.Dir, of.Cache.Size.Bytes = a.ImageCache, a.ImageCacheSize
		if made.imageContent, err = cache.Open(CacheDir(of), CacheOptions(of, judge.Over)); err != nil {
			return made, err
		}
	}
	made.addStager(a.Process, c, a.Client, book.ID, watched.Now, ImageJobs(c, watched, installed))
	made.Images.Cache = made.imageContent
	made.Bridge = &bridge.Bridge{Config: bridge.Config{
		Policy:     a.policyOf(book.ID, layout, installed)(c),
		Name:       c.BridgeName(host),
		Hostname:   host,
		SharedDisk: c.ServerStore != "",
		Ledger:     book,
		Scheduler:  watched,
		Service:    a.Client,
		Owners:     a.Client,
		Secrets:    &bridge.Secrets{Service: a.Client, Files: spool.Disk{Layout: layout, Bridge: book.ID}},
		Spool:      spool.Disk{Layout: layout, Bridge: book.ID},
		Carrier:    spool.Disk{Layout: layout, Bridge: book.ID},
		Gauge:      spool.Disk{Layout: layout},
		Stager:     made.Stager,
		Collector:  a.collector(made.live, watched.Now),
		Log:        a.Log,
		Now:        watched.Now,
		Settings:   a.Settings, Adapt: func(p *plan.Policy, s sbatch.Settings) { adapt(c.Slurm, p, s) },
		Turns:         a.Turns,
		Limits:        a.Limits,
		Describe:      a.Describe,
		ObserveEvery:  watched.Interval,
		DoorbellEvery: doorbellEvery,
		ReadEvery:     readEvery,
	}}
	if a.Counts != nil {
		made.Bridge.Count = a.Counts.Count
		a.Counts.Follow(made.Bridge, made.pace.Read)
	}
	made.energy = a.watchEnergy(made.Bridge, &book.Reader)
	if a.Adjust != nil {
		a.Adjust(made.Parts)
	}
	return made, nil
}

// neighbours judges the pins of the other bridges that use the caches.
func (a Assembly) neighbours(own spool.Layout, now func() time.Time) *pins.Neighbours {
	if a.Neighbours == "" {
		return nil
	}
	return &pins.Neighbours{Dir: a.Neighbours, Own: string(own), Now: now}
}

// prepareSite sets the ledger as configured, checks that the configuration and the shared
// directory fit the ledger's rows, and installs the programs of jobs.
func (a Assembly) prepareSite(ctx context.Context, book *ledger.Ledger, layout spool.Layout) (sharedfiles.Programs, error) {
	book.KeepHistory = a.KeepHistory.Duration
	rows, err := book.Outline(ctx)
	if err != nil {
		return sharedfiles.Programs{}, err
	}
	if err := a.CheckRows(rows.Rows); err != nil {
		return sharedfiles.Programs{}, program.Usage(err)
	}
	if err := sharedfiles.Prepare(a.Config, layout, len(rows.Rows)+len(rows.Done)); err != nil {
		return sharedfiles.Programs{}, err
	}
	if err := a.checkOwn(a.Config); err != nil { // somebody may have made a directory before Prepare did
		return sharedfiles.Programs{}, err
	}
	if a.Worker != "" {
		return sharedfiles.InPlace(a.Worker), nil
	}
	installed, err := sharedfiles.InstallPrograms(a.Config, layout)
	if a.Alone {
		installed = installed.Unchecked()
	}
	return installed, err
}

// checkOwn refuses directories and files of the bridge's own that others can write or replace.
func (a Assembly) checkOwn(c config.Config) error {
	if a.Alone {
		return nil
	}
	if open := sharedfiles.CheckOwn(c); len(open) > 0 {
		return program.Usage(open[0])
	}
	return nil
}

// swept are the programs that a sweep leaves on the shared disk.
func (a Assembly) swept(installed sharedfiles.Programs) []string {
	if a.Worker != "" {
		return nil
	}
	return installed.Paths()
}

// whileHeld runs work while heartbeats renew the lease, and cancels work if the lease is lost.
func whileHeld(ctx context.Context, heartbeats *heartbeat.Recorder, work func(ctx context.Context) error) error {
	working, stop := context.WithCancelCause(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { stop(heartbeats.Run(working)) })
	err := work(working)
	stop(nil)
	beats.Wait()
	if lost, ok := errors.AsType[*lease.LostError](context.Cause(working)); ok {
		return lost // and leave the lease to its new holder
	}
	heartbeats.End(ctx, err)
	return err
}

// takeShared takes the lease of the shared directory for a bridge that has locked its ledger.
func takeShared(ctx context.Context, layout spool.Layout, me lease.Holder, log *slog.Logger) (*lease.Lease, error) {
	// A holder with the same ledger must have ended, because this bridge has the ledger's lock.
	over := func(h lease.Holder) bool {
		return h.Bridge == me.Bridge && h.Ledger == me.Ledger && (h.Host == me.Host || sqldb.IsURL(me.Ledger))
	}
	waiting := func(h lease.Holder) {
		log.WarnContext(ctx, "another bridge has not given up the shared directory; this one watches it for up to two minutes", slog.String("holder", h.String()))
	}
	l, err := lease.Acquire(ctx, layout.BridgeDir(), me, over, waiting)
	if err != nil {
		return nil, fmt.Errorf("start bridge: %w", err)
	}
	return l, nil
}

// runBeside runs work, and the others in the background until work has ended.
func runBeside(ctx context.Context, work func() error, others ...func(ctx context.Context)) error {
	ctx, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	for _, do := range others {
		g.Go(func() { do(ctx) })
	}
	err := work()
	stop()
	g.Wait()
	return err
}

// steadyClock returns a clock that continues from start. The bridge measures time with it, so that changes
// of the machine's clock do not matter.
func steadyClock(start time.Time) func() time.Time {
	return func() time.Time { return start.Round(0).Add(time.Since(start)) }
}
