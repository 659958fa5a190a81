package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

// Finding is what was found of one thing that a way may need.
type Finding struct {
	// Path and Version are a program's; empty when it is none, or was not asked.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Lack is a sentence that says why it cannot be used, and what the site has
	// to do; empty when it can, as far as was tried.
	Lack string `json:"lack,omitempty"`
	// Setuid is set for an Apptainer that was installed with privileges: it
	// needs neither user namespaces nor FUSE.
	Setuid bool `json:"setuid,omitempty"`
}

// Host is what a machine has for running containers, for the user and in the
// place (a job) of the process that looked.
type Host struct {
	Namespaces  Finding `json:"namespaces"` // user namespaces, with mounts in them
	Fuse        Finding `json:"fuse"`       // /dev/fuse
	Overlay     Finding `json:"overlay"`    // in a user namespace, over the scratch directory
	Squashfuse  Finding `json:"squashfuse"`
	Bubblewrap  Finding `json:"bubblewrap"`
	Unsquashfs  Finding `json:"unsquashfs"`
	Apptainer   Finding `json:"apptainer"`
	Singularity Finding `json:"singularity"`
	Docker      Finding `json:"docker"`
	Podman      Finding `json:"podman"`
}

// Look looks at what can be seen without starting anything, in less than a
// millisecond. What it finds nothing against may still be refused.
func Look() Host {
	fuse := ""
	if err := checkFuse(); err != nil {
		fuse = err.Error()
	}
	return Host{
		Namespaces:  Finding{Lack: namespacesForbidden()},
		Fuse:        Finding{Lack: fuse},
		Squashfuse:  find("squashfuse", "squashfuse_ll", "squashfuse"),
		Bubblewrap:  find("bubblewrap", "bwrap"),
		Unsquashfs:  find("squashfs-tools", "unsquashfs"),
		Apptainer:   findApptainer("apptainer", "apptainer"),
		Singularity: findApptainer("singularity-ce", "singularity"),
		Docker:      find("docker.io", "docker"),
		Podman:      find("podman", "podman"),
	}
}

func find(pkg string, names ...string) Finding {
	path, err := findProgram(pkg, names...)
	if err != nil {
		return Finding{Lack: err.Error()}
	}
	return Finding{Path: path}
}

// findApptainer finds it, and the program that an installation with privileges
// has (internal/pkg/util/starter: the setuid starter).
func findApptainer(pkg, name string) Finding {
	f := find(pkg, name)
	at, err := filepath.EvalSymlinks(f.Path)
	if f.Path == "" || err != nil {
		return f
	}
	for _, kind := range []string{"apptainer", "singularity"} {
		info, err := os.Stat(filepath.Join(at, "../../libexec", kind, "bin/starter-suid"))
		f.Setuid = f.Setuid || (err == nil && info.Mode()&os.ModeSetuid != 0)
	}
	return f
}

// namespacesForbidden says whether the kernel's settings rule user namespaces
// out. That they do not proves nothing.
func namespacesForbidden() string {
	if isZero(maxNamespaces) || isZero("/proc/sys/kernel/unprivileged_userns_clone") {
		return namespaceError(syscall.EPERM).Error()
	}
	return ""
}

// maxNamespaces holds how many user namespaces there may be, also such as a
// program with privileges makes.
const maxNamespaces = "/proc/sys/user/max_user_namespaces"

// isZero says whether a setting of the kernel is 0.
func isZero(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// Probe looks, and then tries: user namespaces and an overlay in them over a
// new directory in scratch, and whether the programs of the other ways really
// start. It takes about as long as the slowest of them, a third of a second,
// and leaves nothing behind. Which engine docker and podman speak to, and where
// Podman has its store, w.Env says.
func (w Runtimes) Probe(ctx context.Context, scratch string) (Host, error) {
	h := Look()
	dir, err := os.MkdirTemp(scratch, "probe-")
	if err != nil {
		return h, fmt.Errorf("probe this host: %w", err)
	}
	var group errgroup.Group
	try := func(f *Finding, trial func(*Finding) error) {
		if f.Lack != "" {
			return
		}
		group.Go(func() error {
			if err := trial(f); err != nil {
				f.Lack = err.Error()
			}
			return nil
		})
	}
	if h.Namespaces.Lack == "" {
		group.Go(func() error {
			h.Namespaces.Lack, h.Overlay.Lack = w.tryNamespaces(ctx, dir)
			return nil
		})
	}
	for _, f := range []*Finding{&h.Apptainer, &h.Singularity} {
		try(f, func(f *Finding) error { return w.tryApptainer(ctx, f, dir) })
	}
	try(&h.Docker, func(f *Finding) error {
		return w.tryEngine(ctx, f, "version", "--format", "{{.Server.Version}}")
	})
	try(&h.Podman, func(f *Finding) error {
		return w.tryEngine(ctx, f, "info", "--format", "{{.Version.Version}}")
	})
	_ = group.Wait()                             // nothing in it fails
	if err := filetree.Remove(dir); err != nil { // overlayfs leaves a directory that even its owner may not look into
		return h, fmt.Errorf("probe this host: %w", err)
	}
	return h, ctx.Err()
}

// tryNamespaces has init make namespaces of its own and mount in them.
func (w Runtimes) tryNamespaces(ctx context.Context, dir string) (namespacesLack, overlayLack string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := startInit(Container{}, Builtin{Init: w.Init}.initArgs(), namespaces())
	if err != nil {
		return err.Error(), ""
	}
	exit, err := child.wait(ctx, initSpec{Trial: true, Scratch: dir}, nil)
	switch {
	case err == nil:
		return "", ""
	case exit.Code == trialOverlay:
		return "", err.Error()
	}
	return err.Error(), ""
}

// trialOverlay is init's code when a trial failed at the overlay.
const trialOverlay = 2

// try is run for a trial.
func (c *container) try() (code int, err error) {
	if err := mountProc(); err != nil {
		return 1, err
	}
	if err := os.Chdir(c.Scratch); err != nil {
		return 1, fmt.Errorf("enter its scratch directory: %w", err)
	}
	for _, dir := range []string{lowerDir, upperDir, workDir, rootDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return 1, fmt.Errorf("make its scratch directory: %w", err)
		}
	}
	if err := c.mountOverlay(); err != nil {
		return trialOverlay, err
	}
	return 0, nil
}

// tryApptainer starts it with a root that holds nothing but this program.
func (w Runtimes) tryApptainer(ctx context.Context, f *Finding, dir string) error {
	said, err := call(ctx, []string{f.Path, "--version"}, apptainerEnv(dir))
	if err != nil {
		return err
	}
	f.Version = lastWord(said)
	self, err := enterPath(w.Enter)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, filepath.Base(f.Path)+"-root")
	for _, name := range []string{"dev", "proc", "sys", "tmp", "var/tmp", "root", "etc", "home", ".container", ".singularity.d/libs"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil { //nolint:gosec // a root
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, enterProgram), nil, 0o755); err != nil { //nolint:gosec // a mount point
		return err
	}
	_, err = call(ctx, []string{
		f.Path, "--silent", "--nocolor", "exec", "--containall", "--no-home", "--no-init", "--no-mount", "cwd,bind-paths", "--pwd", "/",
		"--mount", mountOption("source", self, "destination", enterProgram) + ",ro", root, enterProgram, EnterCommand,
	}, apptainerEnv(dir))
	var failed *callError
	if errors.As(err, &failed) && failed.status == enterMisused {
		return nil // it came as far as this program
	}
	if err == nil {
		err = errors.New("it started something else than it was told")
	}
	return fmt.Errorf("%s cannot start a container for this user: %w", f.Path, err)
}

// tryEngine asks for the version of an engine, which it has to be reached for.
func (w Runtimes) tryEngine(ctx context.Context, f *Finding, args ...string) error {
	said, err := call(ctx, append([]string{f.Path}, args...), w.Env)
	if err != nil {
		return err
	}
	f.Version = lastWord(said)
	return nil
}

// lastWord is that of what a program printed: "apptainer version 1.5.3".
func lastWord(said string) string {
	words := strings.Fields(said)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
