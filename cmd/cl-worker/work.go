package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/admin/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/bridge/workdir"
	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
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
	dirs   workdir.Dirs
	client *client.Client
	login  account.Login
	config config.Config
	host   string
	// slurm is Slurm if it runs the bundles, of slurmVersion; else machine is the part of this host that runs may use.
	slurm        *sbatch.Client
	slurmVersion string
	machine      local.Machine
	// engine is Docker, if that runs the containers. engineRecords is the file about its images.
	engine        *engineimages.Engine
	engineRecords string
	// pods are the settings of pods, if these are the containers.
	pods *pods.Settings
	// keepTrimmed removes images from Docker's store until ctx ends; adjust sets it.
	keepTrimmed func(ctx context.Context)
	until       time.Time
	// renews is set if the worker signs in with a worker token, which it has to renew.
	renews  bool
	renewal renewal
}

// work is cl-worker, stand-alone.
func work(ctx context.Context, p program.Process, f flags) error {
	// A terminal that is closed counts as a signal to stop (codalab/worker/main.py: main).
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	if err := f.check(); err != nil {
		return program.Usage(err)
	}
	w := standalone{Process: p, flags: f, log: p.LogAs(f.format, f.verbose)}
	defer func() { w.dirs.Release() }()
	if err := w.setUp(ctx); err != nil {
		w.dirs.RemoveEmpty()
		return err
	}
	w.log.InfoContext(ctx, "Worker started!", slog.String("worker", w.dirs.ID), slog.String("server", w.server), slog.String("directory", w.dirs.WorkDir))
	ctx, forget := w.heedSpotNotice(ctx)
	err := w.serve(ctx)
	forget()
	w.cleanUp(context.WithoutCancel(ctx), err)
	return w.explain(err)
}

// setUp finds the server, the login, the directories, the configuration, and Slurm or the machine that runs the
// bundles.
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
	of := workdir.Owner{Server: w.server, User: w.login.User, WorkDir: w.workDir}
	search := workdir.Search{Host: w.host, Getenv: w.Getenv, Now: w.Now, CheckJobs: local.CheckNamespace}
	if w.dirs, err = search.Find(ctx, of, w.id); err != nil {
		return w.explain(err)
	}
	if err := w.findEngine(ctx); err != nil {
		return program.Usage(err)
	}
	if err := w.findKubernetes(ctx); err != nil {
		return program.Usage(err)
	}
	if w.config, err = w.configuration(); err != nil {
		return program.Usage(err)
	}
	if err := w.tryHost(ctx); err != nil {
		return err
	}
	if w.runtime == runtimeSlurm {
		err = w.findSlurm(ctx)
	} else {
		err = w.findMachine()
	}
	if w.renews && err == nil {
		return w.beginToken(ctx) // the last step: it ends an earlier start of the worker
	}
	return err
}

// connect finds the login, and makes the client. It sends nothing yet.
func (w *standalone) connect(ctx context.Context) (err error) {
	o := client.Options{ClientID: client.WorkerClient, Log: w.log}
	if o.Token, _ = w.tokenSource(); o.Token != nil {
		var token string
		token, err = o.Token(ctx)
		w.renews = !codalab.IsProgramToken(token)
	} else {
		w.login, err = account.Find(ctx, w.Process, w.passwordFile)
		o.Credentials, o.Tokens = w.login.Credentials, account.DeviceOf(w.Process, "cl-worker", w.server)
	}
	if err != nil {
		return err
	}
	if w.client, err = client.New(w.server, o); err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	return nil
}

// loginWithin bounds the time for which a worker that ends when it is idle waits for a server that has to say
// whose a token is: it may hold a Slurm job.
const loginWithin = 5 * time.Minute

// giveUp returns the time at which a worker that has just begun stops waiting for the server; zero for never.
func (w *standalone) giveUp(now time.Time) time.Time {
	if latest := now.Add(loginWithin); w.exitWhenIdle && (w.until.IsZero() || latest.Before(w.until)) {
		return latest
	}
	return w.until
}

// tryLogin signs in once.
func (w *standalone) tryLogin(ctx context.Context) error {
	s := account.SignIn{Client: w.client, Server: w.server, User: w.login.User, GiveUp: w.giveUp(w.Now()), Now: w.Now, Log: w.log}
	user, err := s.Try(ctx)
	if err != nil {
		return w.explain(err)
	}
	w.login.User = user
	return nil
}

// explain gives an error its exit code, and advice where there is some.
func (w *standalone) explain(err error) error {
	var refused *codalab.Error
	var held *lease.HeldError
	var left *workdir.LeftRunsError
	var open *sharedfiles.OpenError
	switch {
	case errors.As(err, &open):
		return program.Usage(fmt.Errorf("--work-dir: %s: %s", open.Found(), open.Cure()))
	case errors.As(err, &left):
		return program.Usage(err)
	case errors.Is(err, ledger.ErrLocked):
		state, failure := lease.Read(spool.Layout(w.dirs.Own()).BridgeDir())
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
	case errors.Is(err, bridge.ErrReplaced):
		return err
	case errors.As(err, &refused) && w.group != "" && refused.Status != http.StatusConflict && strings.HasSuffix(refused.Path, "/checkin"):
		return program.Usage(fmt.Errorf("--group %s: %s", w.group, refused.Message))
	case codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden):
		return &program.Error{Code: program.ExitDenied, Err: fmt.Errorf("%s refuses %s: %w", w.server, w.whose(), err)}
	}
	return err
}

// taken returns an error that names the process that works under the worker's id.
func (w *standalone) taken(by lease.Holder) error {
	return fmt.Errorf("a worker of the name %q works in %s already: process %d on %s; give this one another --id or --work-dir",
		w.dirs.ID, w.dirs.WorkDir, by.Process, by.Host)
}

// serve runs the bundles until a signal ends it, or until the worker has to end.
func (w *standalone) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	giveBack := make(chan struct{})
	a := assembly.Assembly{
		Process: w.Process, Config: w.config, Log: w.log, Client: w.client, LedgerLocked: true,
		ImageCache: w.dirs.Images(), ImageCacheSize: w.maxImages.bytes, Neighbours: workdir.Workers(w.dirs.WorkDir),
		Alone:  w.Alone(),
		Adjust: func(made assembly.Parts) { w.adjust(made, giveBack) },
	}
	if w.engine != nil {
		a.Beside = append(a.Beside, func(ctx context.Context) { w.keepTrimmed(ctx) })
	}
	if w.renewal.renew != nil {
		a.Beside = append(a.Beside, w.renewal.Run)
	}
	if w.passDown {
		signalled := ctx
		detached, end := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		var signals sync.WaitGroup
		signals.Go(func() { passSignalsOn(signalled, giveBack, done, end) })
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
		a.Describe, a.Limits = w.slurm.Describe, assembly.SlurmLimits{Slurm: w.slurm, User: doctor.LocalUser()}
		return a.Serve(ctx)
	}
	return w.serveHere(ctx, a)
}

// serveHere runs bundles as processes of this host.
func (w *standalone) serveHere(ctx context.Context, a assembly.Assembly) (err error) {
	killWait := 10 * time.Second
	if w.pods != nil {
		killWait = podKillWait
	} else if a.Worker, err = os.Executable(); err != nil {
		return fmt.Errorf("find cl-worker: %w", err)
	}
	var jobs *local.Scheduler
	a.Scheduler = func(context.Context) (sbatch.Scheduler, error) {
		opened, err := local.Open(w.dirs.Jobs(), local.Config{ //nolint:contextcheck // it waits for nothing
			Node: w.host, Machine: w.machine, Env: w.jobEnv(), Now: w.Now, Log: w.log, KillWait: killWait,
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

// passSignalsOn closes giveBack at the first signal, which ends ctx: the worker gives its runs back. It ends the
// work at the second one, and the program is left to the third one. It returns when done is closed.
func passSignalsOn(ctx context.Context, giveBack chan<- struct{}, done <-chan struct{}, end func()) {
	select {
	case <-ctx.Done():
	case <-done:
		return
	}
	close(giveBack)
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(again)
	select {
	case <-again:
		end()
	case <-done:
	}
}

// cleanUp removes what the worker does not need any more: nothing while it has runs, which a worker of the
// same name takes up.
func (w *standalone) cleanUp(ctx context.Context, err error) {
	if err != nil {
		return
	}
	left, err := w.dirs.Remove(ctx)
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "the worker's files were not removed", slog.String("error", err.Error()))
		return
	case left > 0:
		w.log.InfoContext(ctx, "runs go on, or have results to collect; a worker of the same --id takes them up", slog.Int("runs", left))
		return
	case !w.deleteWorkDir:
		return
	}
	if err := w.dirs.RemoveWorkDir(); err != nil {
		w.log.WarnContext(ctx, "the work directory was not removed", slog.String("error", err.Error()))
	}
}
