package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/engineimages"
	"github.com/cl-slurm/cl-slurm/worker/local"
)

// queueName is the name of a stand-alone worker's only queue.
const queueName = "worker"

// standalone is a stand-alone worker that is being set up.
type standalone struct {
	program.Process
	flags
	log    *slog.Logger
	place  place
	client *client.Client
	login  account.Login
	config config.Config
	host   string
	// slurm is Slurm if it runs the bundles; else machine is what runs may have of this host.
	slurm   *sbatch.Client
	machine local.Machine
	// engine is Docker, if that runs the containers. engineRecords is the file about its images.
	engine        *engineimages.Engine
	engineRecords string
	// keepTrimmed removes images from Docker's store until ctx ends; adjust sets it.
	keepTrimmed func(ctx context.Context)
	until       time.Time
}

// work is cl-worker, stand-alone.
func work(ctx context.Context, p program.Process, f flags) error {
	// A terminal that is closed counts as a signal to stop (codalab/worker/main.py: main).
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	if err := f.check(); err != nil {
		return program.Usage(err)
	}
	w := standalone{Process: p, flags: f, log: logger(p, f.verbose)}
	defer func() { w.place.release() }()
	if err := w.setUp(ctx); err != nil {
		w.place.removeEmpty()
		return err
	}
	w.log.InfoContext(ctx, "Worker started!", slog.String("id", w.place.id), slog.String("server", w.server), slog.String("work_dir", w.place.workDir))
	err := w.serve(ctx)
	w.cleanUp(context.WithoutCancel(ctx), err)
	return w.explain(err)
}

func logger(p program.Process, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level}))
}

// setUp finds the server, the login, the place, the configuration and what runs the bundles.
func (w *standalone) setUp(ctx context.Context) (err error) {
	if w.server, err = account.Server(w.Process, w.server); err != nil {
		return program.Usage(err)
	}
	if err := w.connect(ctx); err != nil {
		return program.Usage(err)
	}
	if w.until, err = w.end(); err != nil {
		return program.Usage(err)
	}
	if err := w.tryLogin(ctx); err != nil {
		return err
	}
	if w.host, err = os.Hostname(); err != nil {
		return fmt.Errorf("find the name of this host: %w", err)
	}
	of := owner{Server: w.server, User: w.login.User, WorkDir: w.workDir}
	if w.place, err = findPlace(ctx, w.Process, of, w.id); err != nil {
		return w.explain(err)
	}
	if err := w.findEngine(ctx); err != nil {
		return program.Usage(err)
	}
	if w.config, err = w.configuration(); err != nil {
		return program.Usage(err)
	}
	if err := w.tryHost(ctx); err != nil {
		return err
	}
	if w.runtime == runtimeSlurm {
		return w.findSlurm(ctx)
	}
	return w.findMachine()
}

// connect finds the login, and makes the client. It sends nothing yet.
func (w *standalone) connect(ctx context.Context) (err error) {
	o := client.Options{ClientID: client.WorkerClient, Log: w.log}
	if w.tokenFile != "" {
		o.Token = func(context.Context) (string, error) { return account.ReadToken(w.tokenFile) }
		_, err = account.ReadToken(w.tokenFile)
	} else {
		w.login, err = account.Find(ctx, w.Process, w.passwordFile)
		o.Credentials = w.login.Credentials
	}
	if err != nil {
		return err
	}
	if w.client, err = client.New(w.server, o); err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	return nil
}

const (
	// retryLogin is the pause between two tries to reach a server that has to say whose a token is.
	retryLogin = 5 * time.Second
	// loginWithin is how long a worker waits for that that ends when it is idle: it may hold a Slurm job.
	loginWithin = 5 * time.Minute
)

// tryLogin signs in once, so that a wrong password, and an address of something else than a CodaLab server,
// are said at once. A server that does not answer is waited for later; but with a token at once, since only
// the server knows whose the token is.
func (w *standalone) tryLogin(ctx context.Context) error {
	deadline := w.until
	if latest := w.Now().Add(loginWithin); w.exitWhenIdle && (deadline.IsZero() || latest.Before(deadline)) {
		deadline = latest
	}
	for said := false; ; said = true {
		user, err := w.client.User(ctx)
		var refused *codalab.Error
		answered := errors.As(err, &refused)
		switch {
		case err == nil:
			w.login.User = cmp.Or(w.login.User, user.UserName)
			return nil
		case ctx.Err() != nil:
			return err
		case errors.Is(err, client.ErrCredentials), answered && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
			return w.explain(err)
		case !answered || !refused.Transient():
			return program.Usage(fmt.Errorf("--server: %s does not answer as a CodaLab server: %w", w.server, err))
		}
		if !said {
			w.log.WarnContext(ctx, "the server does not answer; the worker tries again", slog.String("error", err.Error()))
		}
		switch {
		case w.login.User != "":
			return nil
		case !deadline.IsZero() && w.Now().Add(retryLogin).After(deadline):
			return &program.Error{Code: program.ExitTransient, Err: err}
		}
		if err := pause.For(ctx, retryLogin); err != nil {
			return err
		}
	}
}

// explain gives an error its exit code, and says what may be done about it.
func (w *standalone) explain(err error) error {
	var refused *codalab.Error
	var held *lease.HeldError
	switch {
	case errors.Is(err, ledger.ErrLocked):
		state, failure := lease.Read(spool.Layout(w.place.own()).BridgeDir())
		if failure != nil {
			return err
		}
		return w.taken(state.Holder)
	case errors.As(err, &held):
		return w.taken(held.Holder)
	case errors.Is(err, client.ErrCredentials):
		return &program.Error{Code: program.ExitDenied, Err: fmt.Errorf("%s refuses the user %s: %w", w.server, w.login.User, client.ErrCredentials)}
	case errors.Is(err, bridge.ErrLost):
		return &program.Error{Code: program.ExitTransient, Err: err}
	case errors.As(err, &refused) && w.group != "" && refused.Status != http.StatusConflict && strings.HasSuffix(refused.Path, "/checkin"):
		return program.Usage(fmt.Errorf("--group %s: %s", w.group, refused.Message))
	case errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
		who := "the user " + w.login.User
		if w.tokenFile != "" {
			who = "the token in " + w.tokenFile
		}
		return &program.Error{Code: program.ExitDenied, Err: fmt.Errorf("%s refuses %s: %w", w.server, who, err)}
	}
	return err
}

// taken says who works under the worker's name.
func (w *standalone) taken(by lease.Holder) error {
	return fmt.Errorf("a worker of the name %q works in %s already: process %d on %s; give this one another --id or --work-dir",
		w.place.id, w.place.workDir, by.Process, by.Host)
}

// end returns when the worker has to have ended; zero for never.
func (w *standalone) end() (time.Time, error) {
	after := w.stopAfter
	if text := w.Getenv("CL_WORKER_STOP_AFTER"); after == 0 && text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return time.Time{}, fmt.Errorf("CL_WORKER_STOP_AFTER=%q: want a number of seconds", text)
		}
		after = n
	}
	if after > 0 {
		return w.Now().Add(seconds(after)), nil
	}
	if w.runtime == runtimeSlurm {
		return time.Time{}, nil
	}
	// Slurm tells the end of the job around the worker (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
	if n, err := strconv.ParseInt(w.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && n > 0 {
		return time.Unix(n, 0), nil
	}
	return time.Time{}, nil
}

// configuration is that of a bridge with one queue, which the flags describe.
func (w *standalone) configuration() (config.Config, error) {
	text := fmt.Sprintf("server = %q\nuser = %q\npassword_file = \"-\"\nshared = %q\nledger = %q\n"+
		"keep_after_ack = \"15m\"\nmax_attempts = 3\n[queue.%s]\n", w.server, w.login.User, w.place.own(), w.place.ledger(), queueName)
	c, err := config.Parse(strings.NewReader(text))
	if err != nil {
		return config.Config{}, err
	}
	c.Name = w.place.id
	c.Cache.Dir, c.Cache.Size.Bytes = w.place.cache(), w.maxWorkDir.bytes
	if w.sharedFileSystem {
		c.ServerStore = "/" // the server names each place
	}
	q := c.Queue[queueName]
	q.Group, q.Default, q.MaxInFlight = w.group, !w.tagExclusive || w.tag == "", w.slots
	switch w.runtime {
	case runtimeApptainer:
		q.Runtime = runtimes.Apptainer
	case runtimeBuiltin:
		q.Runtime = runtimes.Builtin
	case runtimeDocker:
		q.Runtime = runtimes.Docker
	case runtimeSlurm:
		for _, dir := range filepath.SplitList(w.Getenv("PATH")) { // the jobs find the programs that this user does
			if filepath.IsAbs(dir) {
				q.Path = append(q.Path, dir)
			}
		}
	}
	if w.runtime != runtimeSlurm {
		q.MemoryOverhead.Bytes = 0 // the processes around a command are not in its memory
		c.Slurm.ObserveEvery.Duration = 300 * time.Millisecond
		c.DiskSettle.Duration = time.Second // a run writes on the host on which the worker reads
	}
	return c, nil
}

// findSlurm finds Slurm's commands.
func (w *standalone) findSlurm(ctx context.Context) error {
	w.slurm = &sbatch.Client{Conf: w.Getenv("SLURM_CONF")}
	version, err := w.slurm.Version(ctx)
	if err != nil {
		return program.Usage(fmt.Errorf("--bundle-runtime slurm: %w", err))
	}
	w.log.InfoContext(ctx, "found Slurm", slog.String("version", version))
	return nil
}

// allCPUs is the value of --cpuset for all CPUs.
const allCPUs = "ALL"

// findMachine finds what runs may have of this host.
func (w *standalone) findMachine() error {
	host, err := local.FindMachine()
	if err != nil {
		return err
	}
	found, err := inAllocation(host, w.Getenv, w.gpuset)
	if err != nil {
		return err
	}
	w.machine = found
	if w.cpuset != allCPUs {
		w.machine.Unbound = false
		if w.machine.CPUs, err = local.ParseCPUSet(w.cpuset, host.CPUs); err != nil {
			return program.Usage(fmt.Errorf("--cpuset: %w", err))
		}
	}
	if w.machine.GPUs, err = local.ParseGPUSet(w.gpuset, found.GPUs); err != nil {
		return program.Usage(fmt.Errorf("--gpuset: %w", err))
	}
	if most := w.maxMemory.bytes; most > 0 {
		w.machine.Memory = min(w.machine.Memory, most)
	}
	return nil
}

// serve runs the bundles until a signal ends it, or until the worker has to end.
func (w *standalone) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	a := assembly.Assembly{
		Process: w.Process, Config: w.config, Log: w.log, Client: w.client, LedgerLocked: true,
		ImageCache: w.place.images(), ImageCacheSize: w.maxImages.bytes, Neighbours: workersDir(w.place.workDir),
		Adjust: func(made assembly.Parts) { w.adjust(made, stop) },
	}
	if w.engine != nil {
		a.Beside = append(a.Beside, func(ctx context.Context) { w.keepTrimmed(ctx) })
	}
	if w.passDown {
		signalled := ctx
		detached, end := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		var signals sync.WaitGroup
		signals.Go(func() { passSignalsOn(signalled, stop, done, end) })
		defer func() {
			close(done)
			signals.Wait()
			end()
		}()
		ctx = detached
	}
	if w.slurm != nil {
		a.Scheduler = func(context.Context) (sbatch.Scheduler, error) { return w.slurm, nil }
		a.SubmitBound, a.Settings, a.TryHost = w.slurm.SubmitBound(), w.slurm.Settings, doctor.LogHost(w.log)
		return a.Serve(ctx)
	}
	return w.serveHere(ctx, a)
}

// serveHere runs bundles as processes of this host.
func (w *standalone) serveHere(ctx context.Context, a assembly.Assembly) (err error) {
	if a.Worker, err = os.Executable(); err != nil {
		return fmt.Errorf("find cl-worker: %w", err)
	}
	var jobs *local.Scheduler
	a.Scheduler = func(context.Context) (sbatch.Scheduler, error) {
		opened, err := local.Open(w.place.jobs(), local.Config{ //nolint:contextcheck // it waits for nothing
			Node: w.host, Machine: w.machine, Env: engineEnv(w.Process), Now: w.Now, Log: w.log, KillWait: 10 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		jobs = opened
		return jobs, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.Beside = append(a.Beside, func(working context.Context) {
		if err := jobs.Run(working); err != nil && working.Err() == nil {
			cancel(err) // no job would start any more
		}
	})
	err = a.Serve(ctx)
	if jobs != nil {
		err = errors.Join(err, jobs.Close())
	}
	if broken := context.Cause(ctx); broken != nil && !errors.Is(broken, context.Canceled) {
		err = errors.Join(err, broken)
	}
	return err
}

// passSignalsOn closes stop at the first signal, which ends ctx: the runs go back to the server. It ends the
// work at the second one, and the program is left to the third one. It returns when done is closed.
func passSignalsOn(ctx context.Context, stop chan<- struct{}, done <-chan struct{}, end func()) {
	select {
	case <-ctx.Done():
	case <-done:
		return
	}
	close(stop)
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(again)
	select {
	case <-again:
		end()
	case <-done:
	}
}

// adjust makes a stand-alone worker of a bridge.
func (w *standalone) adjust(made assembly.Parts, stop <-chan struct{}) {
	b := made.Bridge
	q := b.Policy.Queues[queueName]
	q.Identity, q.Tag, q.ShmBytes = w.place.id, w.tag, w.shmGB<<30
	b.Policy.Queues[queueName] = q
	b.Policy.StageTries = w.downloadRetries + 1
	made.Images.MaxImageBytes = w.maxImage.bytes
	if w.engine != nil {
		images := w.engineImages(made)
		made.Stager.Images = images
		w.keepTrimmed = func(ctx context.Context) { images.KeepTrimmed(ctx, made.Bridge.Observed, w.log) }
	}
	if w.slurm == nil {
		b.Policy.Accounting, b.Policy.RecordAge = false, time.Hour
		b.Policy.SubmitGrace = 15 * time.Second
		b.Pace = bridge.Pace{PerSecond: 1000, Burst: 1000}
		b.DoorbellEvery = 100 * time.Millisecond
		b.ReadEvery = time.Second
		b.Ports = ports{runner.Runner{Env: engineEnv(w.Process)}}
	}
	b.Standalone = &bridge.Standalone{
		Local: w.slurm == nil, Patience: w.patience(), Remote: w.remote(), Preemptible: w.preemptible, CheckInPause: seconds(w.checkInSeconds),
		ExitWhenIdle: w.exitWhenIdle, IdleFor: seconds(w.idleSeconds), Until: w.until, Stop: stop,
	}
	if w.exitAfterRuns < codalab.UnlimitedRuns {
		b.Standalone.MostRuns = w.exitAfterRuns
	}
}

// A worker that stops has to end before it is killed: in a Slurm job 30 s after Slurm has told it to stop
// (slurm.conf(5): KillWait), elsewhere after a minute and a half (systemd-system.conf(5):
// DefaultTimeoutStopSec).
const (
	patienceInJob = 24 * time.Second
	patience      = 80 * time.Second
)

func (w *standalone) patience() time.Duration {
	if w.Getenv("SLURM_JOB_ID") != "" {
		return patienceInJob
	}
	return patience
}

// remote is what the server shows as the place of a run: the worker's id and the host.
func (w *standalone) remote() string {
	switch {
	case w.slurm != nil:
		return "" // the node's name
	case strings.Contains(w.place.id, w.host):
		return w.place.id
	}
	return w.host + "-" + w.place.id
}

// cleanUp removes what the worker does not need any more: nothing while it has runs, which a worker of the
// same name takes up.
func (w *standalone) cleanUp(ctx context.Context, err error) {
	if err != nil {
		return
	}
	left, err := w.place.remove(ctx)
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "the worker's files were not removed", slog.String("error", err.Error()))
		return
	case left > 0:
		w.log.InfoContext(ctx, "runs go on, or wait to be delivered; a worker of the same --id takes them up", slog.Int("runs", left))
		return
	case !w.deleteWorkDir:
		return
	}
	if err := w.place.removeWorkDir(); err != nil {
		w.log.WarnContext(ctx, "the work directory was not removed", slog.String("error", err.Error()))
	}
}
