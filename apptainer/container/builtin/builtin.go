package builtin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// Runtime is the built-in runtime. Its zero value is usable.
type Runtime struct {
	// Helper is the path of a program that begins with runner.Main; empty means this program.
	Helper string
	// Kept, if not nil, keeps the init of containers that have a KeptDir for the next one of the same image.
	Kept *initproc.Kept
}

var _ container.Runtime = Runtime{}

// runWork names runContainer in Works.
const runWork = "builtin"

// Works returns the works of this package's inits.
func Works() map[string]initproc.Work {
	return map[string]initproc.Work{runWork: runContainer}
}

// spec is the order for runContainer.
type spec struct {
	Root         initproc.RootSpec
	Args         []string
	ShellCommand string
	Env          []string
	Devices      []string
	Driver       gpudriver.Driver
	Dir          string
}

// Run is [container.Runtime]'s.
func (r Runtime) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	return initproc.WithSIF(ctx, c, r.Kept, func(sif *initproc.SIFConfig) (i initproc.Init, err error) {
		s := &spec{
			Root:         sif.RootSpec(c),
			Args:         c.Args,
			ShellCommand: c.ShellCommand,
			Env:          c.Environment(sif.Env),
			Devices:      c.Devices,
			Dir:          c.WorkingDir(),
		}
		if s.Driver, err = (gpudriver.Host{}).Find(c.GPUVendor); err != nil {
			return i, err
		}
		if s.Root.Bubblewrap, err = initproc.FindBubblewrap(); err != nil {
			return i, err
		}
		var base *initproc.Base
		if r.Kept != nil && c.KeptDir != "" && s.Root.Unpack == "" {
			root := s.Root
			root.Binds, root.ShmBytes = nil, 0
			base = &initproc.Base{Kept: r.Kept, Root: root, Dir: c.KeptDir}
		}
		if i, err = initproc.For(c, r.Helper, runWork, s, base); err != nil {
			return i, err
		}
		if i.IDs, err = r.Kept.FindIDs(); err == nil { // otherwise the choice's reason tells it
			i.Spec.Written = initproc.WrittenBy(c)
		}
		return i, nil
	})
}

// containerInit is one call of runContainer.
type containerInit struct {
	spec

	process    *initproc.Process
	root       *initproc.Root
	bubblewrap int // its process id
}

func runContainer(p *initproc.Process) (code int, err error) {
	c := &containerInit{process: p}
	if err := p.ReadDetails(&c.spec); err != nil {
		return 0, err
	}
	if code, err := p.CheckOwners(); err != nil {
		return code, err
	}
	c.root = &initproc.Root{RootSpec: c.Root, Process: p}
	// MountProc: bubblewrap and terminate look processes up in /proc.
	for _, step := range []func() error{p.EnterPrivateDir, p.MakeDirs, p.MountProc, c.root.Make, c.showDriver, c.root.EnterNetwork, c.root.WriteFiles, c.root.MakeFrame} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	if p.Frame() != nil {
		code, err = c.runDirect()
	} else {
		code, err = c.runByBubblewrap()
	}
	if err == nil && code != 0 && initproc.IsMountLost() {
		return 0, c.root.AwaitLoss()
	}
	return code, err
}

// runByBubblewrap runs the container.
func (c *containerInit) runByBubblewrap() (code int, err error) {
	if err := c.root.MountShm(initproc.ShmDir); err != nil {
		return 0, err
	}
	args, err := c.bubblewrapArgs()
	if err != nil {
		return 0, err
	}
	c.process.Begin() // bubblewrap does not report the command's begin
	b, err := c.startBubblewrap(args)
	if err != nil {
		return 0, container.NotBegun(err)
	}
	return c.supervise(b)
}

// command returns the arguments of the command, with its program.
func (c *containerInit) command() ([]string, error) {
	if len(c.Args) > 0 {
		return c.Args, nil
	}
	sh, err := findShell()
	if err != nil {
		return nil, err
	}
	return []string{sh, "-c", c.ShellCommand}, nil
}

// prepareBinds makes the mount points and the working directory, and returns the binds with resolved targets: a link in the image must
// lead no mount to the host's files.
func (c *containerInit) prepareBinds() ([]container.Bind, error) {
	binds, err := c.root.SecureBinds()
	if err == nil {
		binds, err = initproc.MakeTargets(binds, len(binds))
	}
	if err == nil {
		err = c.makeWorkingDir()
	}
	return binds, err
}

// bubblewrapArgs returns the options that set the container up, and its command.
func (c *containerInit) bubblewrapArgs() (args bubblewrapArgs, err error) {
	if args.command, err = c.command(); err != nil {
		return args, err
	}
	binds, err := c.prepareBinds()
	if err != nil {
		return args, err
	}
	args.add("--bind", filepath.Join(c.process.Dir(), initproc.RootDir), "/")
	args.add("--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys")
	if err := args.hideKernel(); err != nil {
		return args, err
	}
	args.add("--bind", filepath.Join(c.process.Dir(), initproc.ShmDir), "/dev/shm")
	for _, device := range c.Devices {
		args.add("--dev-bind", device, device)
	}
	for _, b := range binds {
		option := "--bind"
		if b.ReadOnly {
			option = "--ro-bind"
		}
		args.add(option, b.Source, b.Target)
	}
	args.add("--chdir", c.Dir)
	args.addIsolation(c.root.Network)
	if len(args.options)+3*len(c.Env) > maxOptions {
		return args, args.passByFile(c.Env, c.Dir)
	}
	for _, assignment := range c.Env {
		name, value, _ := strings.Cut(assignment, "=")
		args.add("--setenv", name, value)
	}
	return args, nil
}

func findShell() (string, error) {
	for _, name := range container.Shells() {
		resolved, err := initproc.ResolveInRoot(name)
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(initproc.RootDir, resolved))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name, nil
		}
	}
	return "", container.ErrNoShell
}

// makeWorkingDir makes the working directory in the image, as Docker does, unless it is below a
// mount.
func (c *containerInit) makeWorkingDir() error {
	mounts := initproc.OwnMounts()
	for _, b := range c.root.Binds {
		mounts = append(mounts, b.Target)
	}
	for _, m := range mounts {
		if subpath.Within(c.Dir, m) {
			return nil
		}
	}
	if _, err := initproc.MakeInRoot(c.Dir, true); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}
