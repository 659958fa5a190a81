package container

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Engine is the way by Docker or Podman, for a machine that nobody shares by
// Slurm: an engine's containers are in no cgroup of their caller's. It runs
// [Container].Image, which has to be in the engine's own store: see Pull.
type Engine struct {
	// Program is the path of docker or podman.
	Program string
	// Options stand before the verb of every call, and RunOptions behind that
	// of run: "--host", "unix:///run/…"; "--runtime", "runc".
	Options, RunOptions []string
	// Env is the whole environment of the program, which finds the engine and
	// its own files by it: PATH, HOME, DOCKER_HOST, XDG_RUNTIME_DIR and such.
	Env []string
	// Network is what a container that asked for the network gets, as the
	// option --network has it; empty means the engine's default.
	Network string
	// Enter is the path of a program that calls the function Enter when its
	// first argument is EnterCommand; empty means this program. The engine has
	// to be able to read it.
	Enter string
}

// ErrNoImage is the cause when an engine's store lacks the image.
var ErrNoImage = errors.New("the engine does not have the image")

// engineWait bounds every call of the engine but running and pulling.
const engineWait = 30 * time.Second

// Run does what [Builtin.Run] does, as the table in docs/containers.md says.
// Where root inside is not the calling user outside, what the command made in
// the binds is given to their owner at the end.
func (e Engine) Run(ctx context.Context, c Container) (Exit, error) {
	exit, err := e.run(ctx, c)
	if err != nil {
		return Exit{}, fmt.Errorf("run container of %s: %w", c.Image, err)
	}
	return exit, nil
}

// Pull brings an image into the engine's store, from its registry, by the
// engine's own credentials.
func (e Engine) Pull(ctx context.Context, image string) error {
	if _, err := e.call(ctx, "pull", "--quiet", image); err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	return nil
}

func (e Engine) run(ctx context.Context, c Container) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, ctx.Err()
	}
	if c.Image == "" {
		return Exit{}, fmt.Errorf("%s runs no SIF, and the image has no name", e.name())
	}
	if err := errors.Join(c.check(""), exactBinds(c.Binds)); err != nil {
		return Exit{}, err
	}
	env, err := e.imageEnv(ctx, c.Image)
	if err != nil {
		return Exit{}, err
	}
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		e.sweep(ctx)
	}()
	defer func() { <-swept }()
	exit, err := e.enter(ctx, c, c.enterSpec(env), c.OnStart)
	if giveErr := e.giveBack(ctx, c); err == nil {
		err = giveErr
	}
	return exit, err
}

func (e Engine) name() string { return filepath.Base(e.Program) }

// exactBinds looks at the sources of exact binds, which the engine opens by
// their path a moment later.
func exactBinds(binds []Bind) error {
	for _, b := range binds {
		if !b.Exact {
			continue
		}
		f, err := openExact(b.Source)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

// command is a call of the engine.
func (e Engine) command(args ...string) *exec.Cmd {
	return program(slices.Concat([]string{e.Program}, e.Options, args), e.Env)
}

// call calls the engine and returns what it printed.
func (e Engine) call(ctx context.Context, args ...string) (string, error) {
	said, err := call(ctx, slices.Concat([]string{e.Program}, e.Options, args), e.Env)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", e.name(), args[0], err)
	}
	return said, nil
}

// imageEnv is the environment of an image in the engine's store.
func (e Engine) imageEnv(ctx context.Context, image string) (env []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	said, err := e.call(ctx, "image", "inspect", "--format", "{{json .Config.Env}}", image)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "no such image") {
		return nil, fmt.Errorf("%w: `%s pull %s` brings it", ErrNoImage, e.name(), image)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(said), &env); err != nil {
		return nil, fmt.Errorf("%s image inspect: %w", e.name(), err)
	}
	return env, nil
}

// enter runs what Enter is told in a new container. In whatever way it ends,
// the container is gone when it returns.
func (e Engine) enter(ctx context.Context, c Container, spec enterSpec, onStart func(int)) (_ Exit, err error) {
	dir, err := os.MkdirTemp(c.Scratch, "container-")
	if err != nil {
		return Exit{}, fmt.Errorf("make its scratch directory: %w", err)
	}
	report, err := makeReport(dir)
	if err != nil {
		return Exit{}, err
	}
	program, err := enterPath(e.Enter)
	if err != nil {
		return Exit{}, err
	}
	r, err := e.start(c, containerName(), report, program)
	if err != nil {
		return Exit{}, err
	}
	r.onStart = onStart
	code, err := r.wait(ctx, spec)
	if err != nil {
		return Exit{}, err
	}
	return exitOf(code), nil
}

// containerPrefix begins the names of this user's containers.
func containerPrefix() string { return fmt.Sprintf("cl-slurm-%d-", os.Getuid()) }

// containerName is that of a container of this process: its id, when it began,
// and chance.
func containerName() string {
	pid := os.Getpid()
	return fmt.Sprintf("%s%d-%s-%s", containerPrefix(), pid, processStart(pid), strings.ToLower(rand.Text()[:8]))
}

// processStart says when a process began, in ticks since the host did; empty
// when there is no such process.
func processStart(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19] // proc_pid_stat(5): starttime
}

// sweep removes containers of this user's whose processes are gone: such as
// were killed together with the engine. It does what it can.
func (e Engine) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineWait)
	defer cancel()
	said, err := e.call(ctx, "ps", "--all", "--filter", "name="+containerPrefix(), "--format", "{{.Names}}")
	if err != nil {
		return
	}
	for name := range strings.Lines(said) {
		name = strings.TrimSpace(name)
		rest, ours := strings.CutPrefix(name, containerPrefix())
		parts := strings.Split(rest, "-")
		if !ours || len(parts) != 3 {
			continue
		}
		if pid, err := strconv.Atoi(parts[0]); err == nil && processStart(pid) != parts[1] {
			_, _ = e.call(ctx, "rm", "--force", "--volumes", name)
		}
	}
}

// giveBack gives what is not the calling user's in the writable binds to the
// owner of each: root inside is root outside, where the engine is root's.
func (e Engine) giveBack(ctx context.Context, c Container) error {
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
	spec := enterSpec{Give: give, Dir: "/", Grace: c.grace()}
	c.Devices, c.Network = nil, false
	exit, err := e.enter(ctx, c, spec, nil)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("exit status %d", exit.Code)
	}
	if err != nil {
		return fmt.Errorf("give what the command made to its owner: %w", err)
	}
	return nil
}

// hasForeign says whether something in a tree belongs to another than uid, or
// cannot be looked at.
func hasForeign(dir string, uid uint32) bool {
	foreign := errors.New("foreign")
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != uid {
			return foreign
		}
		return nil
	})
	return err != nil
}
