package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/treewalk"
)

// Runtime runs containers by one engine. It runs [container.Container].PinnedReference, which must be in the
// engine's own store.
type Runtime struct {
	// Program is the path of docker or podman.
	Program string
	// Options precede the verb of every call, and RunOptions follow the verb run, such as "--host",
	// "unix:///run/…" and "--runtime", "runc".
	Options, RunOptions []string
	// Env is the whole environment of the program, which finds the engine and its own files by it:
	// PATH, HOME, DOCKER_HOST, XDG_RUNTIME_DIR and so on.
	Env []string
	// Helper is the path of a statically linked program that begins with runner.Main; empty means
	// this program. The engine must be able to read it.
	Helper string
}

var _ container.Runtime = Runtime{}

// callTimeout limits every call of the engine except run and pull.
const callTimeout = 30 * time.Second

// Run is [container.Runtime]'s, with the differences in docs/containers.md. If root in the
// container is not the calling user outside, Run gives the command's files in the binds to the
// binds' owners at the end.
func (e Runtime) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	exit, err := e.runImage(ctx, c)
	if err != nil {
		return container.Exit{}, fmt.Errorf("run container of %s: %w", c.PinnedReference, err)
	}
	return exit, nil
}

func (e Runtime) runImage(ctx context.Context, c container.Container) (container.Exit, error) {
	if ctx.Err() != nil {
		return container.Exit{}, ctx.Err()
	}
	spec, options, err := e.plan(ctx, c)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return container.Exit{}, err
	}
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	var sweeping sync.WaitGroup
	sweeping.Go(func() { e.removeAbandoned(ctx) })
	defer sweeping.Wait()
	exit, err := e.runEntered(ctx, c, options, spec)
	if giveErr := e.giveBack(ctx, c); err == nil {
		err = giveErr
	}
	return exit, err
}

// plan returns the order for package enter, and the engine's options.
func (e Runtime) plan(ctx context.Context, c container.Container) (spec enter.Spec, options []string, err error) {
	if c.PinnedReference == "" {
		return spec, nil, container.RequestErrorf("%s runs no SIF, and the image has no name", e.name())
	}
	if err := errors.Join(c.Validate(""), initproc.CheckExact(c.Binds)); err != nil {
		return spec, nil, err
	}
	env, f, err := e.imageEnvAndFacts(ctx, c)
	if err != nil {
		return spec, nil, err
	}
	spec = enter.SpecFor(c, env)
	devices, err := gpuHost{}.show(c, spec.Env, f.gpus)
	if err != nil {
		return spec, nil, err
	}
	if devices.driver {
		spec.Env = gpudriver.WithLibraryDir(spec.Env)
	}
	return spec, append(f.limitOptions(c.MemoryBytes, c.MaxProcesses, ownCPUs()), devices.options...), nil
}

func (e Runtime) name() string { return filepath.Base(e.Program) }

func (e Runtime) isPodman() bool { return strings.HasPrefix(e.name(), "podman") }

// imageEnvAndFacts asks for the image's environment, and for the engine's features if the container needs
// them.
func (e Runtime) imageEnvAndFacts(ctx context.Context, c container.Container) (env []string, f facts, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		env, err = e.imageEnv(ctx, c.PinnedReference)
		return err
	})
	if c.MemoryBytes > 0 || c.MaxProcesses > 0 || len(c.Devices) > 0 || ownCPUs() != "" || e.isPodman() {
		group.Go(func() (err error) {
			f, err = e.readFacts(ctx)
			return err
		})
	}
	return env, f, group.Wait()
}

func (e Runtime) args(args ...string) []string {
	return slices.Concat([]string{e.Program}, e.Options, args)
}

func (e Runtime) call(ctx context.Context, args ...string) (string, error) {
	output, err := initproc.Call(ctx, e.args(args...), e.Env)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", e.name(), args[0], err)
	}
	return output, nil
}

// unusable returns a *container.HostError for a failure before the command, unless ctx has ended.
func (e Runtime) unusable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return container.HostErrorf("%s cannot be used: %w", e.name(), err)
}

func (e Runtime) imageEnv(ctx context.Context, pinnedReference string) (env []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	output, err := e.call(ctx, "image", "inspect", "--format", "{{json .Config}}", pinnedReference)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "no such image") {
		return nil, fmt.Errorf("the engine does not have the image: `%s pull %s` brings it", e.name(), pinnedReference)
	}
	if err != nil {
		return nil, e.unusable(ctx, err)
	}
	var config struct{ Env []string } // stays empty for null, the configuration of some builders' images
	if err := json.Unmarshal([]byte(output), &config); err != nil {
		return nil, container.RequestErrorf("the image's configuration cannot be read: %w", err)
	}
	return config.Env, nil
}

// runEntered runs package enter in a new container, which is gone when it returns.
func (e Runtime) runEntered(ctx context.Context, c container.Container, options []string, spec enter.Spec) (container.Exit, error) {
	dir, err := os.MkdirTemp(c.PrivateDir, "container-")
	if err != nil {
		return container.Exit{}, container.NotBegun(fmt.Errorf("make its private directory: %w", err))
	}
	report, err := enter.MakeReport(dir)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	helper, err := enter.HelperPath(e.Helper)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	r, err := e.start(c, options, report, helper)
	if err != nil {
		return container.Exit{}, container.NotBegun(err)
	}
	return r.wait(ctx, spec)
}

// namePrefix returns the prefix of the names of this user's containers.
func namePrefix() string { return fmt.Sprintf("cl-slurm-%d-", os.Getuid()) }

// containerName returns a name for a container of this process, with the process's id and start.
func containerName() string {
	pid := os.Getpid()
	return fmt.Sprintf("%s%d-%d-%s", namePrefix(), pid, container.ProcessStart(pid), strings.ToLower(rand.Text()[:8]))
}

// removeAbandoned removes this user's containers that outlived the process that started them, for
// example because both that process and the engine were killed. It ignores failures: the next run
// tries again.
func (e Runtime) removeAbandoned(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	output, err := e.call(ctx, "ps", "--all", "--filter", "name="+namePrefix(), "--format", "{{.Names}}")
	if err != nil {
		return
	}
	for name := range strings.Lines(output) {
		name = strings.TrimSpace(name)
		rest, ours := strings.CutPrefix(name, namePrefix())
		parts := strings.Split(rest, "-")
		if !ours || len(parts) != 3 {
			continue
		}
		if pid, err := strconv.Atoi(parts[0]); err == nil && strconv.FormatUint(container.ProcessStart(pid), 10) != parts[1] {
			_, _ = e.call(ctx, "rm", "--force", "--volumes", name)
		}
	}
}

// giveBack gives files in the writable binds that do not belong to the calling user to the owner of
// the bind. If the engine runs as root, root in the container is root outside.
func (e Runtime) giveBack(ctx context.Context, c container.Container) error {
	if os.Getuid() == 0 {
		return nil
	}
	var give []string
	for _, b := range c.Binds {
		if !b.ReadOnly && hasForeign(b.Source, uint32(os.Getuid())) { //nolint:gosec // a user id
			give = append(give, b.Target)
		}
	}
	if len(give) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	defer cancel()
	c.Network, c.OnStart = container.NoNetwork, nil
	exit, err := e.runEntered(ctx, c, nil, enter.Spec{Give: give, Dir: "/", KillGrace: c.KillGraceOrDefault()})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("exit status %d", exit.Code)
	}
	if err != nil {
		return fmt.Errorf("give the command's files to their owner: %v", err) //nolint:errorlint // whose fault it is concerns another container
	}
	return nil
}

// hasForeign reports whether a file in a tree belongs to another user than uid, or cannot be read.
func hasForeign(dir string, uid uint32) bool {
	foreign := errors.New("foreign")
	var top unix.Stat_t
	if unix.Stat(dir, &top) != nil || top.Uid != uid {
		return true
	}
	return nil != treewalk.Walk(unix.AT_FDCWD, dir, treewalk.Visitor{Entry: func(dir int, name string) (isDir bool, err error) {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return false, err
		}
		if st.Uid != uid {
			return false, foreign
		}
		return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
	}})
}
