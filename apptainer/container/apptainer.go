package container

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// Apptainer is the way by a site's own Apptainer or SingularityCE. Where user
// namespaces are allowed it runs inside one, in which the calling user is
// root, and in a pid namespace whose end is the end of everything in it. Where
// they are not (Apptainer may have been installed with privileges instead) it
// runs as the calling user, and its processes are found by their session.
type Apptainer struct {
	// Program is the path of apptainer or singularity.
	Program string
	// Plain has it run without namespaces of our own.
	Plain bool
	// Init is the argument vector that calls the function Init; nil means this
	// program with InitCommand.
	Init []string
	// Enter is the path of a program that calls the function Enter when its
	// first argument is EnterCommand; empty means this program.
	Enter string
}

// Run does what [Builtin.Run] does, as the table in docs/containers.md says.
func (a Apptainer) Run(ctx context.Context, c Container) (Exit, error) {
	exit, err := a.run(ctx, c)
	if err != nil {
		return Exit{}, fmt.Errorf("run container of %s: %w", c.SIF, err)
	}
	return exit, nil
}

func (a Apptainer) run(ctx context.Context, c Container) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, ctx.Err()
	}
	image, err := c.openImage()
	if err != nil {
		return Exit{}, err
	}
	defer func() { _ = image.close() }() // it was only read
	spec := initSpec{
		SIF: c.SIF, Image: image.id, Opened: c.Opened != nil, Offset: image.config.Offset,
		Binds: c.Binds, Network: c.Network, ShmBytes: c.ShmBytes, Grace: c.grace(),
	}
	if err := c.check(image.config.Architecture); err != nil {
		return Exit{}, err
	}
	enter, err := enterPath(a.Enter)
	if err != nil {
		return Exit{}, err
	}
	command := c.enterSpec(image.config.Env)
	driver, err := driverBinds(c.GPUs, &command)
	if err != nil {
		return Exit{}, err
	}
	spec.Apptainer = &apptainerSpec{
		Program:  a.Program,
		Devices:  c.Devices,
		Network:  c.Network,
		Plain:    a.Plain,
		Fakeroot: a.Plain && a.fakesRoot(),
		Helped:   a.isSingularity(),
		Enter:    enter,
		Driver:   driver,
		Command:  command,
	}
	spec.chooseMount()
	spec.Bubblewrap, _ = findProgram("bubblewrap", "bwrap") // for want of which Apptainer does what it can
	if spec.Scratch, err = os.MkdirTemp(c.Scratch, "container-"); err != nil {
		return Exit{}, fmt.Errorf("make its scratch directory: %w", err)
	}
	// The kernel kills init when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := startInit(c, Builtin{Init: a.Init}.initArgs(), a.attributes())
	if err != nil {
		return Exit{}, err
	}
	exit, err := child.wait(ctx, spec, c.OnStart)
	if err != nil && a.Plain { // init may have been killed
		killSession(child.cmd.Process.Pid)
	}
	return exit, err
}

// attributes are those of the process that init is.
func (a Apptainer) attributes() *syscall.SysProcAttr {
	if a.Plain {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return namespaces()
}

// enterSpec is what Enter is told to do in an image with this environment.
func (c Container) enterSpec(image []string) enterSpec {
	return enterSpec{
		Args:         c.Args,
		ShellCommand: c.ShellCommand,
		Env:          mergeEnv(image, c.Env),
		Dir:          cmp.Or(c.Dir, "/"),
		Grace:        c.grace(),
	}
}

// driverBinds show the driver of the host's GPUs where Apptainer's own options
// --nv and --rocm have it, and have the command look there.
func driverBinds(maker gpudriver.Vendor, command *enterSpec) (binds []Bind, err error) {
	if maker == "" {
		return nil, nil
	}
	driver, err := (gpudriver.Host{}).Find(maker)
	if err != nil || len(driver.Libraries)+len(driver.Programs) == 0 {
		return nil, err
	}
	for _, lib := range driver.Libraries {
		binds = append(binds, Bind{Source: lib.Path, Target: path.Join(driverDir, lib.Name), ReadOnly: true})
	}
	for _, program := range driver.Programs {
		binds = append(binds, Bind{Source: program, Target: path.Join(programDir(command.Env), path.Base(program)), ReadOnly: true})
	}
	for _, file := range driver.Files {
		binds = append(binds, Bind{Source: file.Path, Target: file.Name, ReadOnly: true})
	}
	command.Env = appendPath(command.Env, "LD_LIBRARY_PATH", driverDir)
	return binds, nil
}

// enterPath is the path of the program that is shown in the container.
func enterPath(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return self, nil
}

// isSingularity says whether it is SingularityCE, or an old Singularity.
func (a Apptainer) isSingularity() bool {
	program, err := filepath.EvalSymlinks(a.Program)
	return err == nil && filepath.Base(program) == "singularity"
}

// fakesRoot says whether the option --fakeroot makes the user root, in a root
// that can be written to. That takes a user namespace and fuse-overlayfs, which
// SingularityCE does not use.
func (a Apptainer) fakesRoot() bool {
	return !a.isSingularity() && checkFuse() == nil && !isZero(maxNamespaces) && mayFakeRoot()
}

// mayFakeRoot says whether the user has ids to be root with (subuid(5)).
func mayFakeRoot() bool {
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

// apptainerSpec is what init is told where it does not set the container up
// itself.
type apptainerSpec struct {
	Program  string
	Devices  []string
	Network  bool
	Plain    bool
	Fakeroot bool
	Helped   bool // it has to be handed a root that init has mounted
	Enter    string
	Driver   []Bind
	Command  enterSpec
}

// memoryOptions have what the command writes outside of binds kept in memory.
func (s apptainerSpec) memoryOptions() []string {
	if s.Fakeroot {
		return []string{"--fakeroot", "--writable-tmpfs"}
	}
	return []string{"--writable-tmpfs"}
}

// args is the argument vector of Apptainer for an image, a SIF or a directory,
// and how it is made writable. What Singularity 3.9 or Apptainer 1.0 did not
// know yet is not in it.
func (s apptainerSpec) args(image string, writable []string, binds []Bind) []string {
	args := []string{
		s.Program, "--silent", "--nocolor", "exec",
		"--containall", "--no-home", "--no-init", "--no-mount", "bind-paths,cwd,sys", "--pwd", "/",
	}
	if !s.Plain {
		args = append(args, "--no-mount", "tmp")
	}
	args = append(args, writable...)
	if !s.Network {
		args = append(args, "--net", "--network", "none")
	}
	for _, b := range binds {
		option := mountOption("source", b.Source, "destination", b.Target)
		if b.ReadOnly {
			option += ",ro"
		}
		args = append(args, "--mount", option)
	}
	return append(args, image, enterProgram, EnterCommand)
}

// mountOption is a bind as the options --mount of Apptainer, Docker and Podman
// read it: a line of comma separated values.
func mountOption(pairs ...string) string {
	fields := []string{"type=bind"}
	for pair := range slices.Chunk(pairs, 2) {
		field := pair[0] + "=" + pair[1]
		if strings.ContainsAny(field, ",\"\n\r") {
			field = `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
		}
		fields = append(fields, field)
	}
	return strings.Join(fields, ",")
}
