package apptainerexec

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// containerInit is one call of runContainer.
type containerInit struct {
	spec

	process *initproc.Process
	root    *initproc.Root
	program int // Apptainer's process id
}

// prepare prepares the image and all binds for Apptainer, and returns Apptainer's argument vector.
// An init with namespaces gives Apptainer the container's root, which it mounts as package builtin
// does. A plain init, or one that cannot mount, gives Apptainer the SIF.
//
// The init mounts for Apptainer, because SingularityCE itself cannot read a SIF that is compressed
// with zstd, and Apptainer can only from 1.4 on (pkg/image/squashfs.go: CheckSquashfsHeader). In a
// user namespace, Apptainer uses an overlay by FUSE. SingularityCE uses one of the kernel that
// cannot remove the image's directories (without userxattr), and retries the mount for ever if the
// kernel refuses it.
func (c *containerInit) prepare(report string) ([]string, error) {
	if c.Plain {
		err := c.root.SecureSIF()
		if err == nil {
			err = c.root.EnterNetwork()
		}
		if err != nil {
			return nil, err
		}
		writable := []string{"--writable-tmpfs"} // the command's files outside of binds stay in memory
		if c.Fakeroot {
			writable = append(writable, "--fakeroot")
		}
		binds, err := c.binds(report, true)
		return c.args(c.root.SIF, writable, binds), err
	}
	if err := c.process.MakeDirs(); err != nil {
		return nil, err
	}
	sif := c.root.SIF
	mounted, err := c.root.Mount()
	if err == nil && c.root.Labelled && c.root.Bubblewrap != "" {
		// Apptainer's own overlay would not be writable either.
		err, mounted = c.root.UnpackInstead(), true
	}
	if err != nil {
		return nil, err
	}
	if !c.Opened {
		// A site may have restricted Apptainer to images in some directories (apptainer.conf: limit
		// container paths).
		c.root.SIF = sif
	}
	if !mounted && c.Singularity {
		return nil, container.HostErrorf("SingularityCE cannot make the image writable here: %s", c.root.Unpack)
	}
	if err = c.root.EnterNetwork(); err != nil {
		return nil, err
	}
	binds, err := c.binds(report, !mounted)
	if err != nil || !mounted {
		return c.args(c.root.SIF, []string{"--overlay", filepath.Join(c.process.PrivateDir, initproc.UpperDir)}, binds), err
	}
	if err := c.root.WriteNetworkFiles(); err != nil {
		return nil, err
	}
	// Apptainer makes no mount points in a writable root.
	binds, err = initproc.MakeTargets(binds, len(c.root.Binds))
	return c.args(filepath.Join(c.process.PrivateDir, initproc.RootDir), []string{"--writable"}, binds), err
}

// args returns Apptainer's argument vector for a root, a SIF or a directory, and the options that
// make it writable. Singularity 3.9 and Apptainer 1.0 support all options in it.
func (c *containerInit) args(root string, writable []string, binds []container.Bind) []string {
	args := []string{
		c.Program, "--silent", "--nocolor", "exec",
		"--containall", "--no-home", "--no-init", "--no-mount", "bind-paths,cwd,sys", "--pwd", "/",
	}
	if !c.Plain {
		args = append(args, "--no-mount", "tmp")
	}
	args = append(args, writable...)
	if c.root.Network == container.NoNetwork { // Apptainer itself is in a private network already
		args = append(args, "--net", "--network", "none")
	}
	for _, b := range binds {
		args = append(args, enter.MountOptions(b, "ro")...)
	}
	return append(args, root, enter.ProgramPath, enter.Command)
}

// scriptsDir, in a container's private directory, is empty.
const scriptsDir = "scripts"

// binds returns the caller's binds and those of this package. bindHosts adds the files of name resolution. In a
// private network, /etc/resolv.conf is bound in any case, because Apptainer may show the host's
// (internal/pkg/runtime/engine/apptainer/container_linux.go: addResolvConfMount; 1.5 does not without bind-paths).
func (c *containerInit) binds(report string, bindHosts bool) (binds []container.Bind, err error) {
	if binds, err = c.root.SecureBinds(); err != nil {
		return nil, err
	}
	own := map[string]func() ([]byte, error){}
	if bindHosts {
		own["/etc/hosts"] = c.root.Hosts
	}
	if bindHosts && c.root.Network != container.NoNetwork || c.root.Network == container.PrivateNetwork {
		own["/etc/resolv.conf"] = c.root.Resolv
	}
	for _, target := range slices.Sorted(maps.Keys(own)) {
		if slices.ContainsFunc(binds, func(b container.Bind) bool { return subpath.Within(target, b.Target) }) {
			continue
		}
		file, err := c.makeFile(path.Base(target), own[target])
		if err != nil {
			return nil, err
		}
		if file != "" {
			binds = append(binds, container.Bind{Source: file, Target: target})
		}
	}
	// Apptainer sources the image's scripts with more capabilities than the command has
	// (action_script.sh). An empty directory hides them.
	if err := os.Mkdir(scriptsDir, 0o755); err != nil {
		return nil, fmt.Errorf("make its private directory: %w", err)
	}
	binds = append(binds, container.Bind{Source: filepath.Join(c.process.PrivateDir, scriptsDir), Target: "/.singularity.d/env", ReadOnly: true})
	if !c.Plain {
		if err := c.root.MountShm(initproc.ShmDir); err != nil {
			return nil, err
		}
		binds = append(binds, container.Bind{Source: filepath.Join(c.process.PrivateDir, initproc.ShmDir), Target: "/dev/shm"})
	}
	binds = append(binds, c.Driver...)
	// The minimal /dev of --containall does not have these.
	for _, device := range append([]string{"/dev/full"}, c.Devices...) {
		binds = append(binds, container.Bind{Source: device, Target: device})
	}
	binds = append(binds, container.Bind{Source: "/sys", Target: "/sys", ReadOnly: true})
	hiding, err := c.hideKernel()
	if err != nil {
		return nil, err
	}
	binds = append(binds, hiding...)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	binds = addMountsBelow(binds, string(mounts))
	return append(binds, enter.Binds(c.Helper, report)...), nil
}

// hideKernel returns binds that make the kernel's settings read-only, and hide its files about the whole
// machine.
func (c *containerInit) hideKernel() ([]container.Bind, error) {
	empty := filepath.Join(c.process.PrivateDir, "empty")
	if err := os.WriteFile(empty, nil, 0o444); err != nil {
		return nil, fmt.Errorf("make its private directory: %w", err)
	}
	binds := []container.Bind{{Source: initproc.Settings, Target: initproc.Settings, ReadOnly: true}}
	files, dirs := initproc.Hidden()
	for _, name := range files {
		binds = append(binds, container.Bind{Source: empty, Target: name, ReadOnly: true})
	}
	for _, name := range dirs {
		binds = append(binds, container.Bind{Source: filepath.Join(c.process.PrivateDir, scriptsDir), Target: name, ReadOnly: true})
	}
	return binds, nil
}

// makeFile makes a file of the container's in the private directory. Without content it returns "".
func (c *containerInit) makeFile(name string, content func() ([]byte, error)) (string, error) {
	text, err := content()
	if err != nil || text == nil {
		return "", err
	}
	file := filepath.Join(c.process.PrivateDir, name)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("make the container's file %s: %w", name, err)
	}
	return file, nil
}
