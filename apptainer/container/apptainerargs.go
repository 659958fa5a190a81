package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// apptainerArgs has the image and all binds where Apptainer is to find them, and
// returns its argument vector. Where init has mounts of its own, Apptainer is
// handed the container's root, which init mounts as in the built-in way. Else,
// and where the node does not let it, Apptainer is handed the SIF.
//
// Left alone, SingularityCE reads no SIF that is compressed with zstd, and no
// Apptainer before 1.4 does (pkg/image/squashfs.go: CheckSquashfsHeader); in a
// user namespace Apptainer has an overlay by FUSE, and SingularityCE one of the
// kernel's that cannot remove the image's directories (without userxattr), and
// that it tries to mount for ever where the kernel refuses.
func (c *container) apptainerArgs(report string) ([]string, error) {
	if c.Apptainer.Plain {
		if err := c.holdImage(); err != nil {
			return nil, err
		}
		binds, err := c.apptainerBinds(report, true)
		return c.Apptainer.args(c.SIF, c.Apptainer.memoryOptions(), binds), err
	}
	for _, dir := range []string{lowerDir, upperDir, workDir, rootDir, shmDir} {
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // upper/ becomes the container's root, and its parent is 0700
			return nil, fmt.Errorf("make its scratch directory: %w", err)
		}
	}
	path := c.SIF
	mounted, err := c.mountRoot()
	if err != nil {
		return nil, err
	}
	if c.unpacksForApptainer() {
		if err := c.unpackImage(); err != nil {
			return nil, lacking("%s; and the image cannot be unpacked instead: %w", c.Unpack, err)
		}
		mounted = true
	}
	if !c.Opened {
		// A site may have told Apptainer which directories it may take images
		// from (apptainer.conf: limit container paths).
		c.SIF = path
	}
	if !mounted && c.Apptainer.Helped {
		return nil, lacking("SingularityCE cannot make the image writable here: %s", c.Unpack)
	}
	binds, err := c.apptainerBinds(report, !mounted)
	if err != nil || !mounted {
		return c.Apptainer.args(c.SIF, []string{"--overlay", filepath.Join(c.Scratch, upperDir)}, binds), err
	}
	if err := c.writeNetworkFiles(); err != nil {
		return nil, err
	}
	err = c.makeTargets(binds)
	return c.Apptainer.args(filepath.Join(c.Scratch, rootDir), []string{"--writable"}, binds), err
}

// unpacksForApptainer says whether Apptainer is handed a root that the image was
// unpacked to, since its own overlay could not be written to either.
func (c *container) unpacksForApptainer() bool { return c.labelled && c.Bubblewrap != "" }

// makeTargets makes the mount points, none of which Apptainer makes in a writable
// root, and has the binds lead there. The first binds are the caller's own.
func (c *container) makeTargets(binds []Bind) (err error) {
	taken := ownMounts()
	for _, dir := range taken {
		if err := ensureRealDir(dir); err != nil {
			return err
		}
	}
	for i, b := range binds {
		if binds[i].Target, err = bindTarget(b); err != nil {
			return err
		}
		if i >= len(c.Binds) {
			continue
		}
		if taken, err = addTarget(taken, b.Target, binds[i].Target); err != nil {
			return err
		}
	}
	return nil
}

// apptainerBinds are the binds as Apptainer is to be told of them, among them
// that of a file /etc/hosts, where it is to be one.
func (c *container) apptainerBinds(report string, hosts bool) (binds []Bind, err error) {
	for i, b := range c.Binds {
		if b.Exact {
			if b.Source, err = c.pinned(i, b.Source); err != nil {
				return nil, err
			}
		}
		binds = append(binds, b)
	}
	if hosts && !slices.ContainsFunc(binds, func(b Bind) bool { return isBelow("/etc/hosts", b.Target) }) {
		file, err := c.makeHosts()
		if err != nil {
			return nil, err
		}
		binds = append(binds, Bind{Source: file, Target: "/etc/hosts"})
	}
	// Apptainer sources the image's scripts before the command, with more
	// capabilities than that has (action_script.sh): it finds none.
	if err := os.Mkdir(scriptsDir, 0o755); err != nil { //nolint:gosec // it is empty, and its parent is 0700
		return nil, fmt.Errorf("make its scratch directory: %w", err)
	}
	binds = append(binds, Bind{Source: filepath.Join(c.Scratch, scriptsDir), Target: "/.singularity.d/env", ReadOnly: true})
	if !c.Apptainer.Plain {
		if err := c.mountShm(); err != nil {
			return nil, err
		}
		binds = append(binds, Bind{Source: filepath.Join(c.Scratch, shmDir), Target: "/dev/shm"})
	}
	binds = append(binds, c.Apptainer.Driver...)
	// What the minimal /dev of --containall has not.
	for _, device := range append([]string{"/dev/full"}, c.Apptainer.Devices...) {
		binds = append(binds, Bind{Source: device, Target: device})
	}
	return append(binds, Bind{Source: "/sys", Target: "/sys", ReadOnly: true}, Bind{Source: c.Apptainer.Enter, Target: enterProgram, ReadOnly: true}, Bind{Source: report, Target: enterReport}), nil
}

// scriptsDir, in a container's scratch directory, is empty.
const scriptsDir = "scripts"

// hosts is an /etc/hosts for a container: the host's own where it has the
// host's network.
func hosts(network bool) ([]byte, error) {
	if !network {
		return loopbackHosts()
	}
	text, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("copy /etc/hosts: %w", err)
	}
	return text, nil
}

// makeHosts makes the file that becomes the container's /etc/hosts.
func (c *container) makeHosts() (string, error) {
	text, err := hosts(c.Apptainer.Network)
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.Scratch, "hosts")
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // everybody inside reads it
		return "", fmt.Errorf("make the container's hosts file: %w", err)
	}
	return file, nil
}

// pinned is pin where this process has mounts of its own. Where it has none the
// source is looked at now, and Apptainer follows its path a moment later.
func (c *container) pinned(i int, source string) (string, error) {
	if !c.Apptainer.Plain {
		return c.pin(i, source)
	}
	f, err := openExact(source)
	if err != nil {
		return "", err
	}
	return source, f.Close()
}
