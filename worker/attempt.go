package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
	"github.com/cl-slurm/cl-slurm/spool"
)

// attemptRun is one attempt that this worker owns.
type attemptRun struct {
	Worker

	spec       spool.Spec
	attempt    spool.Attempt
	bell       spool.Bell
	usage      *usage
	time       *changingLimit
	gpus       gpuAllocation
	private    *privateDir // nil until it exists
	workingDir string      // the working directory; empty until it exists
	secrets    secrets
}

// runBundle runs the bundle and records its end. It cleans up after that, because people and the
// bridge wait for the record.
func (r *attemptRun) runBundle(ctx context.Context) (spool.Exit, error) {
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var group errgroup.Group
	group.Go(r.guarded(background, r.reportStatus))
	if r.place != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		group.Go(r.guarded(background, func(background context.Context) { r.followStop(background, stop) }))
	}

	exit := r.runCommand(ctx, background, &group)
	stopBackground()
	err := r.recordExit(ctx, exit)
	if err != nil && exit.Cause == spool.CauseSucceeded {
		exit = r.withoutRecord(ctx, exit)
	}
	r.ringBell(ctx)
	r.Log.InfoContext(ctx, "ended", slog.String("cause", string(exit.Cause)), slog.String("reason", exit.Failure), slog.String("note", exit.Note))

	if panicked := group.Wait(); panicked != nil {
		r.Log.ErrorContext(ctx, "the worker failed", slog.Any("error", panicked))
	}
	if err := r.place.leavePrivateDir(r.private); err != nil {
		r.Log.WarnContext(ctx, "cannot remove the private directory", slog.Any("error", err))
	}
	if r.place == nil { // a pack does so at its end
		removeAbandoned(r.spec.Scratch, time.Now())
	}
	return exit, err
}

// runCommand runs the command in its container and returns the exit record, even if the worker
// itself panics. group runs the background tasks, which end with background.
func (r *attemptRun) runCommand(ctx, background context.Context, group *errgroup.Group) (exit spool.Exit) {
	defer func() {
		if v := recover(); v != nil {
			r.Log.ErrorContext(ctx, "the worker failed", slog.String("error", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			exit = r.usage.complete(time.Now(), ending{node: r.Node, err: fmt.Errorf("the worker failed: %v", v)}.verdict(r.spec))
		}
	}()
	c, err := r.prepare()
	if err != nil {
		r.Log.ErrorContext(ctx, "cannot prepare the container", slog.Any("error", err))
		return r.usage.complete(time.Now(), ending{node: r.Node, err: err, unprepared: true, terminated: ctx.Err() != nil}.verdict(r.spec))
	}
	defer closeFiles(c)

	meter := r.meter()
	before := meter.read(0)
	limited, stopCommand := context.WithCancelCause(ctx)
	defer stopCommand(nil)
	started := r.follow(ctx, &c, func(task func(context.Context)) { group.Go(r.guarded(background, task)) })
	duringCommand, done := context.WithCancel(background)
	defer done()
	group.Go(r.guarded(duringCommand, func(ctx context.Context) { r.watchUsage(ctx, meter, started, stopCommand) }))
	group.Go(r.guarded(duringCommand, func(ctx context.Context) { r.watchDisk(ctx, stopCommand) }))
	group.Go(r.guarded(duringCommand, r.followTimeLimit))
	group.Go(r.guarded(duringCommand, r.watchGPUs))

	kills := r.place.oomKills()
	free := r.freeBefore()
	got, err := r.runContainer(limited, c)
	overLimit := context.Cause(limited) // a limit that a watcher sees from now on is none of the command's
	if err != nil {
		r.Log.ErrorContext(ctx, "cannot run the container", slog.Any("error", err), slog.String("sif", r.spec.SIF), slog.String("reference", r.spec.PinnedReference))
	}
	r.usage.containerEnded(time.Now())
	terminated := wasTerminated(ctx, limited, got)
	done()

	kills = r.place.killsSince(kills, got)
	after := meter.read(0)
	r.usage.addSample(after)
	r.usage.addSample(sampleOf(got.Usage))
	if limit := (*limitError)(nil); !errors.As(overLimit, &limit) { // else its files may be gone with its processes
		over, unmeasured := r.finalDisk(background, terminated)
		overLimit = cmp.Or(over, overLimit)
		if unmeasured != nil {
			got.Note = joinPhrases(got.Note, unmeasured.Error())
		}
	}
	e := ending{
		node: r.Node, exit: got, err: err, terminated: terminated, overLimit: overLimit,
		oomKills:   after.oomKills - before.oomKills + got.Usage.OOMKills,
		memoryPeak: r.usage.snapshot(time.Time{}).Usage.MemoryPeak,
		refused:    got.Usage.RefusedProcesses,
		freeBefore: free,
		diskUsed:   r.usage.snapshot(time.Time{}).Usage.DiskBytes,
	}
	if got.Code != 0 { // no other verdict depends on these
		e.diskFull, e.noexec, e.stderrEnd = diskFull(r.workingDir), container.IsNoexec(r.private.dir), readTail(c.Stderr)
	}
	e.judgeKills(kills, r.place.memoryOf(r.spec), limited.Err() != nil)
	e.uncopied = r.copyResults(ctx)
	return r.usage.complete(time.Now(), e.verdict(r.spec))
}

// follow lets a container note its runtime, the unpacking of its image, and its start. The channel gets the process of each start, and
// holds only the last one. start starts a background task.
func (r *attemptRun) follow(ctx context.Context, c *container.Container, start func(task func(context.Context))) <-chan int {
	started := make(chan int, 1)
	c.OnStart = func(running container.Running) {
		r.private.commandBegan()
		r.usage.commandBegan(time.Now(), running)
		select {
		case <-started: // of a runtime that the host refused
		default:
		}
		started <- running.PID
	}
	c.OnUnpack = r.usage.unpackingBegan
	c.OnWait = r.usage.waits
	c.OnUsage = func(used container.Usage) {
		r.usage.addSample(sampleOf(used))
	}
	c.OnChoice = func(choice container.Choice) {
		r.usage.setRuntime(r.ran(choice))
		start(func(ctx context.Context) { r.askVersion(ctx, choice) })
		r.Log.InfoContext(ctx, "container", slog.String("runtime", string(choice.Runtime)), slog.String("reason", choice.Reason))
	}
	return started
}

// guarded makes a background task. If the task panics, the attempt continues.
func (r *attemptRun) guarded(ctx context.Context, task func(context.Context)) func() error {
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

func (r *attemptRun) runContainer(ctx context.Context, c container.Container) (container.Exit, error) {
	exit, err := r.Containers.Run(ctx, c)
	r.private.vacated = err == nil && leavesNoProcess(r.usage.snapshot(time.Time{}).Ran.Runtime, c)
	var host *container.HostError
	var request *container.RequestError
	switch {
	case errors.As(err, &host):
		return exit, host
	case errors.As(err, &request):
		return exit, request
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without the path of the SIF, which means nothing to a researcher
	}
	return exit, err
}

// leavesNoProcess reports whether a container of this runtime that has ended as it should leaves no process that could use its
// directories. An init of the built-in runtime waits for the end of all processes.
func leavesNoProcess(runtime runtimes.Name, c container.Container) bool {
	return runtime == runtimes.Builtin && !container.ReachesOthers(c.Network, c.Binds)
}

// prepare prepares the container with few file system calls: links to dependencies, output files,
// devices and the private directory. The caller closes the container's files.
func (r *attemptRun) prepare() (c container.Container, err error) {
	root, err := os.OpenRoot(r.spec.RunDir)
	if err != nil {
		return c, onShared(fmt.Errorf("open the run directory: %w", err))
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if r.secrets.err != nil {
		return c, r.secrets.err
	}
	links, binds, err := planDependencies(r.spec.Bundle, r.spec.Dependencies)
	if err != nil {
		return c, err
	}
	ofSite, err := planBinds(r.spec)
	if err != nil {
		return c, err
	}
	if r.gpus, err = r.allocateGPUs(); err != nil {
		return c, &container.HostError{Err: err, AnyRuntime: true}
	}
	if r.private, err = r.place.takePrivateDir(r.spec.Scratch, r.Job); err != nil {
		return c, &container.HostError{Err: fmt.Errorf("%w (the queue's scratch in the bridge's configuration)", err), AnyRuntime: true}
	}
	own, err := r.makeDirs()
	if err != nil {
		return c, &container.HostError{Err: err, AnyRuntime: true}
	}
	if err := r.makeLinks(links); err != nil {
		if r.workingDir == r.spec.RunDir {
			err = onShared(err)
		}
		return c, err
	}
	home := "/" + r.spec.Bundle
	c = container.Container{
		SIF:             r.spec.SIF,
		PinnedReference: r.spec.PinnedReference,
		Runtime:         r.spec.Runtime,
		ShellCommand:    r.spec.Command,
		Env:             slices.Concat(siteVariables(r.spec), r.secrets.env(), []string{"CODALAB=true", "CODALAB_ATTEMPT=" + strconv.Itoa(r.spec.Attempt), "HOME=" + home, "TMPDIR=" + tempDir(r.spec.Bundle)}, r.gpus.env()),
		Masked:          r.secrets.masked(),
		Binds:           slices.Concat(own, ofSite, binds),
		Devices:         r.gpus.devices,
		GPUVendor:       r.gpus.vendor,
		Dir:             home,
		Network:         network(r.spec),
		MemoryBytes:     r.spec.MemoryBytes,
		ShmBytes:        r.spec.ShmBytes,
		MaxProcesses:    r.spec.MaxProcesses,
		PrivateDir:      r.private.dir,
		KeptDir:         r.place.keptDir(r.spec.Scratch, r.Job),
		KillGrace:       killGrace(r.spec),
		KilledFirst:     r.place != nil,
	}
	if r.spec.Resumed {
		if err := reopenOutputs(root); err != nil {
			return c, err
		}
	}
	err = openFiles(r.spec.RunDir, r.spec.Inputs, &c)
	return c, err
}

// reopenOutputs lets the output of a command that goes on be appended to the files of an earlier attempt. It removes what
// that has put in their place, and opens files that it has closed.
func reopenOutputs(root *os.Root) error {
	for _, name := range outputs() {
		info, err := root.Lstat(name)
		switch {
		case err != nil: // openOutput makes it
		case !info.Mode().IsRegular():
			err = filetree.RemoveIn(root, name)
		default:
			err = root.Chmod(name, info.Mode().Perm()|0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return onShared(fmt.Errorf("reopen %s in the run directory: %w", name, err))
		}
	}
	return nil
}

// killGrace returns the time from TERM to KILL; 0 means package container's default.
func killGrace(spec spool.Spec) time.Duration {
	return time.Duration(max(spec.KillGraceSeconds, 0) * float64(time.Second))
}

// joinPhrases makes one text of two phrases that may be empty.
func joinPhrases(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

// network returns the network of a command.
func network(spec spool.Spec) container.Network {
	switch {
	case !spec.Network:
		return container.NoNetwork
	case spec.HostNetwork:
		return container.HostNetwork
	}
	return container.PrivateNetwork
}

// openFiles opens the SIF, if it is used in place, and the output files.
func openFiles(runDir string, in spool.Inputs, c *container.Container) (err error) {
	defer func() {
		if err != nil {
			closeFiles(*c)
		}
	}()
	if c.OpenedSIF, err = openSIF(in); err != nil {
		return err
	}
	if c.Stdout, err = openOutput(runDir, "stdout"); err != nil {
		return err
	}
	c.Stderr, err = openOutput(runDir, "stderr")
	return err
}

func closeFiles(c container.Container) {
	for _, f := range []*os.File{c.OpenedSIF, c.Stdout, c.Stderr} {
		_ = f.Close() // Close of a nil file only returns an error
	}
}

// openSIF opens a SIF that is used in place, and checks by path, size and time that it has not
// changed since the bundle was staged. It returns nil for a SIF that belongs to the bridge.
func openSIF(in spool.Inputs) (*os.File, error) {
	if in.SIFFile == nil {
		return nil, nil
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, in.SIF, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &userError{fmt.Sprintf("The image %s has a new symbolic link in its path: run the bundle again.", in.SIF)}
	case err != nil:
		return nil, fmt.Errorf("open the SIF %s: %w", in.SIF, err)
	}
	f := os.NewFile(uintptr(fd), in.SIF)
	info, err := f.Stat()
	if err == nil && (info.Size() != in.SIFFile.Size || info.ModTime().UnixNano() != in.SIFFile.Modified) {
		err = &userError{fmt.Sprintf("The image %s has changed since the bundle was staged: run it again.", in.SIF)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openOutput opens a file for the command's output, and appends to it. It follows no link. The worker reads the end of stderr by the
// same descriptor, because the command may have put another file at the path.
func openOutput(runDir, name string) (*os.File, error) {
	f, err := smallfile.Open(filepath.Join(runDir, name), os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, onShared(fmt.Errorf("open %s in the run directory: %w", name, err))
	}
	return f, nil
}

const (
	// recordTimeout limits the tries to write the exit record, and before that the tries to copy
	// the results while the disk fails.
	recordTimeout = 2 * time.Minute
	// recordPause is the time between two tries to write the exit record.
	recordPause = time.Second
)

// recordExit writes the exit record. It tries again, because a full disk may have room soon.
func (r *attemptRun) recordExit(ctx context.Context, exit spool.Exit) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		err := r.attempt.WriteExit(exit)
		if err == nil {
			return nil
		}
		r.Log.ErrorContext(ctx, "cannot write the exit record", slog.Any("error", err), slog.String("cause", string(exit.Cause)))
		if pause.For(ctx, recordPause) != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
	}
}

// withoutRecord changes the end of a successful command whose exit record cannot be written: if the
// results cannot be flushed either, the platform has failed.
func (r *attemptRun) withoutRecord(ctx context.Context, exit spool.Exit) spool.Exit {
	flush := r.sync
	if flush == nil {
		flush = func(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
	}
	dir, err := os.Open(r.spec.RunDir)
	if err == nil {
		err = errors.Join(flush(dir), dir.Close())
	}
	if err != nil {
		r.Log.ErrorContext(ctx, "cannot flush the results", slog.Any("error", err))
		exit.Cause = spool.CausePlatform
	}
	return exit
}

// ringBell tells the bridge that records have changed. Otherwise the bridge would notice later.
func (r *attemptRun) ringBell(ctx context.Context) {
	if err := r.bell.Ring(r.spec.Bundle, r.attempt.Name()); err != nil {
		r.Log.WarnContext(ctx, "cannot ring the doorbell", slog.Any("error", err))
	}
}
