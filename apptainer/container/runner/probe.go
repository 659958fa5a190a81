package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
	"github.com/cl-slurm/cl-slurm/apptainer/container/engine"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// Look returns the facts about the host that need no start of a program, in less than a
// millisecond. The host may still refuse a runtime for which Look finds no lack.
func Look() container.Host {
	h := lookForBuiltin()
	h.Unsquashfs = finding(initproc.FindUnsquashfs())
	h.Forwarder = finding(initproc.FindForwarder())
	h.Processes = container.Finding{Lack: textOf(initproc.CheckProcesses())}
	h.Apptainer = findApptainer("apptainer", "apptainer")
	h.Singularity = findApptainer("singularity-ce", "singularity")
	h.Docker = finding(initproc.FindProgram("docker.io", "docker"))
	h.Podman = finding(initproc.FindProgram("podman", "podman"))
	return h
}

// lookForBuiltin is Look for the parts of the built-in runtime, except for unpacking.
func lookForBuiltin() container.Host {
	return container.Host{
		Pod:        initproc.InPod(),
		Namespaces: container.Finding{Lack: textOf(initproc.CheckNamespaces())},
		Fuse:       container.Finding{Lack: textOf(initproc.CheckFuse())},
		Squashfuse: finding(initproc.FindSquashfuse()),
		Bubblewrap: finding(initproc.FindBubblewrap()),
		IDs:        findIDs(),
	}
}

// findIDs finds the user's subordinate ids. They count as the version of newuidmap, for want of another.
func findIDs() container.Finding {
	ids, err := subids.Find()
	if err != nil {
		return container.Finding{Lack: err.Error()}
	}
	return container.Finding{Path: ids.Program(), Version: ids.String()}
}

// choose chooses a runtime by Look. Usually that is the built-in one, and choose does not look for
// others.
func choose(want runtimes.Name) (container.Choice, error) {
	if want == "" || want == runtimes.Auto || want == runtimes.Builtin {
		h := lookForBuiltin()
		if !slices.ContainsFunc(h.BuiltinParts(), func(p container.Part) bool { return p.Lack != "" }) {
			return container.Choose(want, h)
		}
	}
	return container.Choose(want, Look())
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func finding(path string, err error) container.Finding {
	return container.Finding{Path: path, Lack: textOf(err)}
}

// findApptainer finds an Apptainer, and reports whether it is installed with privileges.
func findApptainer(pkg, name string) container.Finding {
	f := finding(initproc.FindProgram(pkg, name))
	if f.Path != "" {
		f.Setuid = hasSetuidStarter(f.Path)
	}
	return f
}

// hasSetuidStarter reports whether an Apptainer or SingularityCE has a starter with privileges
// (internal/pkg/util/starter). It is in the directory libexec of the program's installation; in packages of
// Debian and Ubuntu that is /usr/lib/x86_64-linux-gnu, named for the processor.
func hasSetuidStarter(program string) bool {
	at, err := filepath.EvalSymlinks(program)
	if err != nil {
		return false
	}
	for _, dir := range []string{"libexec", "lib", "lib/*-linux-gnu*"} {
		for _, kind := range []string{"apptainer", "singularity"} {
			starters, _ := filepath.Glob(filepath.Join(filepath.Dir(at), "..", dir, kind, "bin/starter-suid")) // its one error is a wrong pattern
			for _, starter := range starters {
				if info, err := os.Stat(starter); err == nil && info.Mode()&os.ModeSetuid != 0 {
					return true
				}
			}
		}
	}
	return false
}

// Probe is Look, followed by trials: user namespaces, an overlay in them over a new directory below
// parent, and a start of each program. It takes as long as the slowest trial, a third of a second,
// and leaves no files. It starts Podman only if want is Podman, because every call of Podman without root makes
// a store in the user's home, and leaves a process running.
func (r Runner) Probe(ctx context.Context, parent string, want runtimes.Name) (container.Host, error) {
	h := Look()
	dir, err := os.MkdirTemp(parent, "probe-")
	if err != nil {
		return h, fmt.Errorf("probe this host: %w", err)
	}
	var group errgroup.Group
	try := func(f *container.Finding, trial func(*container.Finding) error) {
		if f.Lack == "" {
			group.Go(func() error {
				f.Lack = textOf(trial(f))
				return nil
			})
		}
	}
	try(&h.Namespaces, func(*container.Finding) error {
		exit, err := r.tryNamespaces(ctx, dir)
		if refusal, refused := strings.CutPrefix(exit.Note, container.OneID("")); refused {
			h.IDs.Lack = refusal
		}
		if exit.Code == codeNoOverlay {
			h.Overlay.Lack = err.Error()
			return nil
		}
		return err
	})
	try(&h.Forwarder, func(f *container.Finding) error { return r.tryNetwork(ctx, f.Path, dir) })
	for _, f := range []*container.Finding{&h.Apptainer, &h.Singularity} {
		try(f, func(f *container.Finding) error { return r.tryApptainer(ctx, f, dir) })
	}
	try(&h.Docker, func(f *container.Finding) error {
		return r.tryEngine(ctx, f, "version", "--format", "{{.Server.Version}}")
	})
	if want == runtimes.Podman {
		try(&h.Podman, func(f *container.Finding) error {
			return r.tryEngine(ctx, f, "info", "--format", "{{.Version.Version}}")
		})
	}
	_ = group.Wait()                             // its functions return nil
	if err := filetree.Remove(dir); err != nil { // overlayfs leaves a directory without permissions
		return h, fmt.Errorf("probe this host: %w", err)
	}
	return h, ctx.Err()
}

// trialWork is the name of tryOverlay among the works of an init.
const trialWork = "trial"

// codeNoOverlay is the code of tryOverlay if only the overlay failed.
const codeNoOverlay = 2

// tryNamespaces starts an init with namespaces, which mounts in them, and with the user's subordinate ids
// if there are any. If the host refuses these, the Exit's Note has the reason.
func (r Runner) tryNamespaces(ctx context.Context, dir string) (container.Exit, error) {
	ids, _ := subids.Find() // Look has the reason if there are none
	return initproc.Init{Program: r.Helper, Spec: initproc.Spec{Work: trialWork, PrivateDir: dir}, IDs: ids}.Run(ctx)
}

func tryOverlay(p *initproc.Process) (code int, err error) {
	if code, err := p.CheckOwners(); err != nil {
		return code, err
	}
	for _, step := range []func() error{p.MountProc, p.EnterPrivateDir, p.MakeDirs} {
		if err := step(); err != nil {
			return 1, err
		}
	}
	if err := (&initproc.Root{Process: p}).MountOverlay(); err != nil {
		return codeNoOverlay, err
	}
	return 0, nil
}

// networkWork is the name of enterNetwork among the works of an init.
const networkWork = "network"

// networkTrial is the order for enterNetwork.
type networkTrial struct {
	Forwarder string
	Host      string // an address of this host with a port that listens; empty if it has none
}

// tryNetwork starts an init with a private network, which reaches this host by it.
func (r Runner) tryNetwork(ctx context.Context, forwarder, parent string) error {
	dir, err := os.MkdirTemp(parent, "network-")
	if err != nil {
		return fmt.Errorf("try a network: %w", err)
	}
	trial := networkTrial{Forwarder: forwarder}
	at, err := listenForTrial(ctx)
	if err != nil {
		return err
	}
	if at != nil {
		defer at.Close()
		trial.Host = at.Addr().String()
	}
	_, err = initproc.Init{Program: r.Helper, Spec: initproc.Spec{Work: networkWork, PrivateDir: dir}, Details: trial}.Run(ctx)
	return err
}

// listenForTrial listens on an address of this host that a private network reaches. It returns nil if there is none.
func listenForTrial(ctx context.Context) (net.Listener, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find this host's addresses: %w", err)
	}
	for _, a := range all {
		if at, ok := a.(*net.IPNet); ok && at.IP.To4() != nil && at.IP.IsGlobalUnicast() {
			return new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(at.IP.String(), "0"))
		}
	}
	return nil, nil
}

// enterNetwork enters a private network, and connects to this host.
func enterNetwork(p *initproc.Process) (code int, err error) {
	var trial networkTrial
	for _, step := range []func() error{p.MountProc, p.EnterPrivateDir, func() error { return p.ReadDetails(&trial) }} {
		if err := step(); err != nil {
			return 1, err
		}
	}
	root := initproc.Root{RootSpec: initproc.RootSpec{Network: container.PrivateNetwork, Forwarder: trial.Forwarder}, Process: p}
	if err := root.EnterNetwork(); err != nil {
		return 1, err
	}
	if p.NoNetwork != "" {
		return 1, errors.New(p.NoNetwork)
	}
	if trial.Host == "" {
		return 0, nil
	}
	const within = 30 * time.Second
	conn, err := (&net.Dialer{Timeout: within}).Dial("tcp4", trial.Host)
	if err != nil {
		return 1, fmt.Errorf("%s forwards nothing: %w", filepath.Base(trial.Forwarder), err)
	}
	return 0, conn.Close()
}

// tryApptainer starts Apptainer with a root that has only the helper.
func (r Runner) tryApptainer(ctx context.Context, f *container.Finding, dir string) error {
	env := apptainerexec.Environment(dir)
	output, err := initproc.Call(ctx, []string{f.Path, "--version"}, env)
	if err != nil {
		return err
	}
	f.Version = lastWord(output)
	helper, err := enter.HelperPath(r.Helper)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, filepath.Base(f.Path)+"-root")
	for _, name := range []string{"dev", "proc", "sys", "tmp", "var/tmp", "root", "etc", "home", ".container", ".singularity.d/libs"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, enter.ProgramPath), nil, 0o755); err != nil {
		return err
	}
	args := []string{f.Path, "--silent", "--nocolor", "exec", "--containall", "--no-home", "--no-init", "--no-mount", "cwd,bind-paths", "--pwd", "/"}
	args = append(args, enter.MountOptions(container.Bind{Source: helper, Target: enter.ProgramPath, ReadOnly: true}, "ro")...)
	_, err = initproc.Call(ctx, append(args, root, enter.ProgramPath, enter.Command), env)
	if failed, ok := errors.AsType[*initproc.CallError](err); ok && failed.ExitCode == enter.ExitMisused {
		return nil // the helper ran, without an order
	}
	if err == nil {
		err = errors.New("it started another program")
	}
	return fmt.Errorf("%s cannot start a container for this user: %w", f.Path, err)
}

// tryEngine asks for the version of an engine, which only the running engine can answer, and for its features.
func (r Runner) tryEngine(ctx context.Context, f *container.Finding, args ...string) error {
	output, err := initproc.Call(ctx, append([]string{f.Path}, args...), r.Env)
	if err != nil {
		return err
	}
	f.Version = lastWord(output)
	info, err := initproc.Call(ctx, []string{f.Path, "info", "--format", "{{json .}}"}, r.Env)
	if err != nil {
		return err
	}
	features, err := engine.Runtime{Program: f.Path}.Features(info)
	f.Engine = &features
	return err
}

// lastWord returns the last word of a program's output, such as "apptainer version 1.5.3".
func lastWord(output string) string {
	words := strings.Fields(output)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// TryOverlay tries an overlay in a user namespace over a new directory below parent. It returns the reason why there
// can be none, or "". It leaves no files.
func (r Runner) TryOverlay(ctx context.Context, parent string) (lack string) {
	dir, err := os.MkdirTemp(parent, "probe-")
	if err != nil {
		return err.Error()
	}
	_, err = r.tryNamespaces(ctx, dir)
	return textOf(errors.Join(err, filetree.Remove(dir))) // overlayfs leaves a directory without permissions
}
