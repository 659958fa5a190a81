package apptainerexec

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// Runtime runs containers by one Apptainer or SingularityCE.
type Runtime struct {
	// Program is the path of apptainer or singularity.
	Program string
	// Plain runs it without namespaces made by this program.
	Plain bool
	// Helper is the path of a statically linked program that begins with runner.Main; empty means
	// this program.
	Helper string
}

var _ container.Runtime = Runtime{}

// runWork is the name of runContainer among the works of an init.
const runWork = "apptainer"

// Works returns the works of this package's inits.
func Works() map[string]initproc.Work {
	return map[string]initproc.Work{runWork: runContainer}
}

// spec is the order for runContainer.
type spec struct {
	Root        initproc.RootSpec
	Opened      bool // the caller has opened the SIF
	Program     string
	Singularity bool // the program is SingularityCE
	Plain       bool
	Fakeroot    bool
	Devices     []string
	Driver      []container.Bind
	Helper      string
	Command     enter.Spec
}

// Run is [container.Runtime]'s, with the differences in docs/containers.md.
func (r Runtime) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	return initproc.WithSIF(ctx, c, nil, func(sif *initproc.SIFConfig) (i initproc.Init, err error) {
		helper, err := enter.HelperPath(r.Helper)
		if err != nil {
			return i, err
		}
		s := &spec{
			Root:        sif.RootSpec(c),
			Opened:      c.OpenedSIF != nil,
			Program:     r.Program,
			Singularity: container.IsSingularity(r.Program),
			Plain:       r.Plain,
			Devices:     c.Devices,
			Helper:      helper,
			Command:     enter.SpecFor(c, sif.Env),
		}
		if !r.Plain {
			s.Command.MaxProcesses = c.MaxProcesses
		}
		s.Fakeroot = r.Plain && !s.Singularity && canFakeRoot()
		s.Root.Bubblewrap, _ = initproc.FindBubblewrap() // without it the image is never unpacked
		if s.Driver, err = driverBinds(c.GPUVendor, &s.Command); err != nil {
			return i, err
		}
		if i, err = initproc.For(c, r.Helper, runWork, s, nil); err != nil {
			return i, err
		}
		i.Spec.Plain = r.Plain
		i.Began = func() bool { return enter.ReadReport(enter.ReportFile(i.Spec.PrivateDir)).Began }
		return i, nil
	})
}

// driverBinds returns the binds for the driver of the host's GPUs, at the paths of Apptainer's own
// options --nv and --rocm. It makes the command search there.
func driverBinds(vendor gpudriver.Vendor, command *enter.Spec) (binds []container.Bind, err error) {
	driver, err := (gpudriver.Host{}).Find(vendor)
	if err != nil || driver.IsEmpty() {
		return nil, err
	}
	for _, file := range driver.All(command.Env) {
		binds = append(binds, container.Bind{Source: file.Path, Target: file.Name, ReadOnly: true})
	}
	command.Env = gpudriver.WithLibraryDir(command.Env)
	return binds, nil
}

// canFakeRoot reports whether Apptainer's option --fakeroot makes the user root, with a writable
// root. That needs a user namespace, ids for root (subuid(5)), and fuse-overlayfs, which
// SingularityCE does not use.
func canFakeRoot() bool {
	if initproc.CheckFuse() != nil || initproc.NamespacesForbidden() {
		return false
	}
	uid := strconv.Itoa(os.Getuid())
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.HasPrefix(line, name+":") || strings.HasPrefix(line, uid+":")
		}) {
			return false
		}
	}
	return true
}
