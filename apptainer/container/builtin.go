package container

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// InitCommand is the hidden argument by which the caller's program becomes
// the first process of a container: a program that runs containers calls
// [Init] when its first argument is this one.
const InitCommand = "container-init"

// Builtin is the way that needs neither a container engine nor any privilege:
// squashfuse, an overlay and bubblewrap in one user namespace. Its zero value
// is usable.
type Builtin struct {
	// Init is the argument vector that calls the function Init; nil means this
	// program with InitCommand.
	Init []string
	// Images, when not nil, has containers of the same image share its mount.
	Images *Images
}

// Run runs the command and waits for its end; processes that it left behind
// end with it. When ctx ends first, every process of the container gets TERM,
// and after Grace what is left gets KILL; the Exit is the command's all the
// same. A program that the image does not have, or that cannot be executed, is
// the command's doing as in a shell: exit status 127 or 126.
//
// An error says that the command was not run, or not to its end, by no doing
// of its own.
func (b Builtin) Run(ctx context.Context, c Container) (Exit, error) {
	exit, err := b.run(ctx, c)
	if err != nil {
		return Exit{}, fmt.Errorf("run container of %s: %w", c.SIF, err)
	}
	return exit, nil
}

func (b Builtin) run(ctx context.Context, c Container) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, ctx.Err()
	}
	image, err := c.openImage()
	if err != nil {
		return Exit{}, err
	}
	defer func() { _ = image.close() }() // it was only read
	spec, err := c.spec(image)
	if err != nil {
		return Exit{}, err
	}
	if spec.Scratch, err = os.MkdirTemp(c.Scratch, "container-"); err != nil {
		return Exit{}, fmt.Errorf("make its scratch directory: %w", err)
	}
	share := b.Images.lease(ctx, b.initArgs(), spec)
	defer share.close()
	spec.Shared = share != nil
	// The kernel kills init when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := startInit(c, b.initArgs(), namespaces(), share.files()...)
	if err != nil {
		return Exit{}, err
	}
	return child.wait(ctx, spec, c.OnStart)
}

// spec checks what can be checked here and tells init the rest.
func (c Container) spec(image *image) (s initSpec, err error) {
	if err := c.check(image.config.Architecture); err != nil {
		return initSpec{}, err
	}
	s = initSpec{
		SIF:          c.SIF,
		Image:        image.id,
		Offset:       image.config.Offset,
		Args:         c.Args,
		ShellCommand: c.ShellCommand,
		Env:          mergeEnv(image.config.Env, c.Env),
		Binds:        c.Binds,
		Devices:      c.Devices,
		Dir:          cmp.Or(c.Dir, "/"),
		Network:      c.Network,
		ShmBytes:     c.ShmBytes,
		Grace:        c.grace(),
	}
	if c.GPUs != "" {
		if s.Driver, err = (gpudriver.Host{}).Find(c.GPUs); err != nil {
			return initSpec{}, err
		}
	}
	s.chooseMount()
	if s.Bubblewrap, err = findProgram("bubblewrap", "bwrap"); err != nil {
		return initSpec{}, err
	}
	return s, nil
}

// initArgs is the argument vector of init.
func (b Builtin) initArgs() []string {
	if len(b.Init) > 0 {
		return b.Init
	}
	return []string{"/proc/self/exe", InitCommand}
}
