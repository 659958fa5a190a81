package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// run is one attempt that is ours.
type run struct {
	Worker

	spec    spool.Spec
	attempt spool.Attempt
	bell    spool.Bell
	account *account
	gpus    allocation
	scratch *scratch // nil until it is made
	dir     string   // the working directory; empty until it is made
}

// run runs the bundle and records its end. What people and the bridge wait for
// comes first, and cleaning up last.
func (r *run) run(ctx context.Context) (spool.Exit, error) {
	aside, stopAside := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAside()
	var group errgroup.Group
	group.Go(r.guarded(aside, r.report))

	exit := r.execute(ctx, aside, &group)
	stopAside()
	err := r.record(ctx, exit)
	r.ring(ctx)
	r.Log.InfoContext(ctx, "ended", slog.String("cause", string(exit.Cause)), slog.String("failure", exit.Failure), slog.String("note", exit.Note))

	if panicked := group.Wait(); panicked != nil {
		r.Log.ErrorContext(ctx, "the worker failed", slog.Any("error", panicked))
	}
	if err := r.scratch.remove(); err != nil {
		r.Log.WarnContext(ctx, "clean up", slog.Any("error", err))
	}
	sweepScratch(r.spec.Scratch, time.Now()) //nolint:forbidigo // how old a directory is
	return exit, err
}

// execute runs the command in its container and says how that went, also when
// it fails itself.
func (r *run) execute(ctx, aside context.Context, group *errgroup.Group) (exit spool.Exit) {
	defer func() {
		if v := recover(); v != nil {
			r.Log.ErrorContext(ctx, "the worker failed", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			exit = r.account.exit(ending{err: fmt.Errorf("the worker failed: %v", v)}.verdict(r.spec))
		}
	}()
	c, err := r.prepare()
	if err != nil {
		return r.account.exit(ending{err: err, told: ctx.Err() != nil}.verdict(r.spec))
	}
	defer closeFiles(c)

	meter := r.meter()
	before := meter.read(0)
	limited, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	started := make(chan int, 1)
	c.OnStart = func(pid int) {
		r.account.start(time.Now()) //nolint:forbidigo // the command's time is the clock's
		select {
		case <-started: // nobody has looked at the process of a way that was refused
		default:
		}
		started <- pid
	}
	c.OnChoice = func(choice container.Choice) {
		r.account.choose(spool.Ran{Runtime: choice.Runtime, Reason: choice.Reason})
		r.Log.InfoContext(ctx, "container", slog.String("runtime", string(choice.Runtime)), slog.String("reason", choice.Reason))
	}
	asideOfCommand, done := context.WithCancel(aside)
	defer done()
	group.Go(r.guarded(asideOfCommand, func(ctx context.Context) { r.watch(ctx, meter, started, stop) }))
	group.Go(r.guarded(asideOfCommand, func(ctx context.Context) { r.watchDisk(ctx, stop) }))
	group.Go(r.guarded(asideOfCommand, r.watchGPUs))

	cpu := childrenCPU()
	got, err := r.runContainer(limited, c)
	told := ctx.Err() != nil
	if err != nil {
		r.Log.ErrorContext(ctx, "run the container", slog.Any("error", err), slog.String("image", r.spec.Image))
	}
	r.account.end(time.Now()) //nolint:forbidigo // as above
	done()

	after := meter.read(0)
	r.account.use(after)
	r.account.spend(childrenCPU().minus(cpu))
	r.finalDisk(aside)
	e := ending{
		exit: got, err: err, told: told, stopped: context.Cause(limited),
		oomKills:   after.oomKills - before.oomKills,
		memoryPeak: r.account.snapshot(time.Time{}).Usage.MemoryPeak,
		diskFull:   diskFull(r.dir),
	}
	e.uncopied = r.bringHome(ctx)
	return r.account.exit(e.verdict(r.spec))
}

// guarded makes a task for the side: it may fail, and the run goes on.
func (r *run) guarded(ctx context.Context, task func(context.Context)) func() error {
	return func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		task(ctx)
		return nil
	}
}

func (r *run) runContainer(ctx context.Context, c container.Container) (container.Exit, error) {
	exit, err := r.Containers.Run(ctx, c)
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without the path of the SIF, which tells a researcher nothing
	}
	return exit, err
}

// prepare makes ready what the command needs, in no more than a few calls of
// the file system: links to its dependencies, its output, its devices, its
// scratch.
func (r *run) prepare() (c container.Container, err error) {
	root, err := os.OpenRoot(r.spec.RunDir)
	if err != nil {
		return c, fmt.Errorf("open the run directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	links, binds, err := planDependencies(r.spec.Bundle, r.spec.Dependencies)
	if err != nil {
		return c, err
	}
	if r.gpus, err = r.allot(); err != nil {
		return c, err
	}
	if r.scratch, err = makeScratch(r.spec.Scratch, r.Job); err != nil {
		return c, fmt.Errorf("node %s: %w (the queue's scratch in the bridge's configuration)", r.Node, err)
	}
	own, err := r.makeDirs()
	if err != nil {
		return c, fmt.Errorf("node %s: %w", r.Node, err)
	}
	if err := r.makeLinks(links); err != nil {
		return c, err
	}
	home := "/" + r.spec.Bundle
	c = container.Container{
		SIF:          r.spec.Image,
		Image:        r.spec.ImageDigest,
		Runtime:      r.spec.Runtime,
		ShellCommand: r.spec.Command,
		Env:          append([]string{"CODALAB=true", "HOME=" + home, "TMPDIR=" + tempDir(r.spec.Bundle)}, r.gpus.env()...),
		Binds:        append(own, binds...),
		Devices:      r.gpus.devices,
		GPUs:         r.gpus.maker,
		Dir:          home,
		Network:      r.spec.Network,
		Scratch:      r.scratch.dir,
		Grace:        r.Grace,
	}
	err = openFiles(root, r.spec.Inputs, &c)
	return c, err
}

// openFiles opens what a container is handed open: its image and its output.
func openFiles(root *os.Root, in spool.Inputs, c *container.Container) (err error) {
	defer func() {
		if err != nil {
			closeFiles(*c)
		}
	}()
	if c.Opened, err = openImage(in); err != nil {
		return err
	}
	if c.Stdout, err = openOutput(root, "stdout"); err != nil {
		return err
	}
	c.Stderr, err = openOutput(root, "stderr")
	return err
}

func closeFiles(c container.Container) {
	for _, f := range []*os.File{c.Opened, c.Stdout, c.Stderr} {
		_ = f.Close() // also where there is none
	}
}

// openOutput opens a file for what the command prints. What an earlier writer
// left there stays.
func openOutput(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open %s in the run directory: %w", name, err)
	}
	return f, nil
}

// recordPause is the time between two tries of writing the exit record.
const recordPause = time.Second

// record writes the exit record. A full disk may have room a moment later.
func (r *run) record(ctx context.Context, exit spool.Exit) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.recordWait())
	defer cancel()
	for {
		err := r.attempt.WriteExit(exit)
		if err == nil {
			return nil
		}
		r.Log.ErrorContext(ctx, "record the end", slog.Any("error", err), slog.String("cause", string(exit.Cause)))
		if !pause(ctx, recordPause) {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
	}
}

func (r *run) recordWait() time.Duration { return cmp.Or(r.RecordWait, 2*time.Minute) }

// ring tells the bridge to look. It finds out by itself too, only later.
func (r *run) ring(ctx context.Context) {
	if err := r.bell.Ring(r.spec.Bundle, r.spec.Attempt); err != nil {
		r.Log.WarnContext(ctx, "the bridge will notice later", slog.Any("error", err))
	}
}
