package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// Container describes one run of a command in an image, whichever way it is
// run: see [Builtin]. It is a value and may be used again, by several
// goroutines at once.
//
// Inside, the command is root over the image's files; outside it is the
// calling user. It sees the image, its binds and devices, a fresh /proc, /dev
// and /dev/shm, the host's /sys, and no process but its own. What it
// writes outside of its binds is not kept; see Scratch.
type Container struct {
	// SIF is the image's path.
	SIF string
	// Opened, when not nil, is the SIF, open for reading, which stays the
	// caller's to close: what the caller has looked at is what is run. Run fails
	// when another file has its place at SIF by then.
	Opened *os.File `json:"-"`
	// Image is the image's name with its digest, for an engine, which has a
	// store of its own and runs no SIF.
	Image string
	// Runtime is the one that is asked for, and OnChoice, when not nil, is called
	// with the one that is chosen. Only [Runtimes] reads them.
	Runtime  runtimes.Name
	OnChoice func(Choice) `json:"-"`
	// Args is the argument vector inside; its first is a path in the image or
	// a name looked up in the PATH there.
	Args []string
	// ShellCommand is a command line for the image's /bin/bash, or /bin/sh
	// where it has none; used when Args is empty.
	ShellCommand string
	// Env is added to the image's own environment, "NAME=value", and wins over
	// it. Nothing of the host's environment is passed on.
	Env []string
	// Binds are host files and directories to show inside.
	Binds []Bind
	// Devices are host device files, below /dev, to show inside at the same
	// path.
	Devices []string
	// GPUs says whose GPUs are among Devices. What their driver has on the host
	// is then shown too: libraries, which the image's programs find, and programs
	// in the PATH.
	GPUs gpudriver.Vendor
	// Dir is the working directory inside; empty means "/".
	Dir string
	// Network gives the container the host's network; else it has a loopback
	// interface only.
	Network bool
	// Scratch is a directory on a node-local disk or tmpfs (not NFS, Lustre or
	// GPFS) that is private to the caller. What the command wrote to the root
	// file system stays in a new directory in it, for the caller to remove when
	// nobody waits any more: directories in it may lack their owner's
	// permissions.
	Scratch string
	// Stdout and Stderr are the command's; nil discards. What the host's
	// programs say when they cannot set the container up goes to Stderr too.
	Stdout, Stderr *os.File `json:"-"`
	// ShmBytes is the size of /dev/shm; zero means half of the memory.
	ShmBytes int64
	// MemoryBytes and CPUs are limits for an engine to enforce; zero means
	// none. The other ways leave limits to their caller, in whose cgroup they
	// run.
	MemoryBytes int64
	CPUs        float64
	// Grace is how long the processes of the container have between the TERM
	// that the end of Run's context sends them and the KILL that follows; zero
	// means two seconds.
	Grace time.Duration
	// OnStart, when not nil, is called when the container is set up and its
	// command begins, with the process id, as this process sees it, of a process
	// that every process of the container descends from; 0 where an engine does
	// not say. It is called once, and by Ways again when the first way was refused
	// by the host.
	OnStart func(pid int) `json:"-"`
}

// Bind shows the host's Source inside the container at Target. Target is an
// absolute path, made when the image lacks it, and no bind's target may lie
// inside another's.
type Bind struct {
	Source, Target string
	ReadOnly       bool
	// Exact refuses a Source with a symbolic link anywhere in its path at the
	// moment when it is mounted, and one that may not be read then: what others
	// can change may not lead elsewhere than where it was looked at.
	Exact bool
}

// Exit is how a container's command ended.
type Exit struct {
	// Code is the exit status as a shell reports it: 128 + n after signal n.
	Code int
	// Signal is the signal that ended the command, 0 when it exited. A command
	// that itself exits with 128 + n, as a shell does whose last command was
	// killed, is not told from a killed one.
	Signal int
	// Note says in a sentence what was unlike in other runs, and why; empty as a
	// rule.
	Note string `json:",omitempty"`
}

// ErrNoShell is the cause when ShellCommand is set and the image has neither
// /bin/bash nor /bin/sh.
var ErrNoShell = errors.New("the image has no shell: neither /bin/bash nor /bin/sh")

func (c Container) grace() time.Duration { return cmp.Or(c.Grace, 2*time.Second) }

// check refuses what no way could run. An engine knows its images'
// architecture itself: then it is empty.
func (c Container) check(architecture string) error {
	if architecture != "" && architecture != "unknown" && architecture != runtime.GOARCH {
		return fmt.Errorf("the image is made for linux/%s, and this node is linux/%s", architecture, runtime.GOARCH)
	}
	if len(c.Args) == 0 && c.ShellCommand == "" {
		return errors.New("no command")
	}
	if c.Scratch == "" {
		return errors.New("no scratch directory")
	}
	return errors.Join(checkBinds(c.Binds, cmp.Or(c.Dir, "/")), checkDevices(c.Devices))
}

// mergeEnv lays over the image's environment what the caller adds. Like
// Docker, it gives a PATH and a HOME to images that set none. What holds a zero
// byte, which an image's configuration can and no environment, is left out.
func mergeEnv(image, added []string) []string {
	env := []string{"PATH=" + sifconfig.DefaultPath, "HOME=/root"}
	at := map[string]int{"PATH": 0, "HOME": 1}
	for _, assignment := range slices.Concat(image, added) {
		name, _, ok := strings.Cut(assignment, "=")
		if !ok || name == "" || hasZero(assignment) {
			continue
		}
		if i, again := at[name]; again {
			env[i] = assignment
			continue
		}
		at[name] = len(env)
		env = append(env, assignment)
	}
	return env
}

// checkBinds refuses what cannot be mounted as asked.
func checkBinds(binds []Bind, dir string) error {
	if !path.IsAbs(dir) {
		return fmt.Errorf("the working directory %q is not an absolute path", dir)
	}
	for i, b := range binds {
		if !path.IsAbs(b.Target) || path.Clean(b.Target) == "/" {
			return fmt.Errorf("bind target %q is not an absolute path below the root", b.Target)
		}
		if _, err := os.Stat(b.Source); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		for j, other := range binds {
			if i != j && isBelow(b.Target, other.Target) {
				return fmt.Errorf("bind target %q lies inside %q", b.Target, other.Target)
			}
		}
	}
	return nil
}

func checkDevices(devices []string) error {
	for _, device := range devices {
		info, err := os.Stat(device)
		if err != nil {
			return fmt.Errorf("device: %w", err)
		}
		if info.Mode()&os.ModeDevice == 0 || !isBelow(device, "/dev") {
			return fmt.Errorf("device %q is not a device file below /dev", device)
		}
	}
	return nil
}

// isBelow says whether name is dir or inside it.
func isBelow(name, dir string) bool {
	return strings.HasPrefix(path.Clean(name)+"/", path.Clean(dir)+"/")
}
