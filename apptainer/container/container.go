package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
)

// Runtime runs containers.
type Runtime interface {
	// Run runs the command and waits for its end. Processes that the command left behind end with
	// it. If ctx ends first, every process of the container gets TERM, and after KillGrace the
	// remaining ones get KILL; Run still returns the command's Exit. If the image does not have the
	// program, or it cannot be executed, the exit status is 127 or 126, as in a shell.
	//
	// An error means that the command did not run, or not to its end, for a reason outside of it. A
	// *HostError or a *RequestError means that the command did not begin; after any other error it
	// may have begun. Several goroutines may call Run at the same time.
	Run(ctx context.Context, c Container) (Exit, error)
}

// Container describes one run of a command in an image. It is a value: a caller may use it again,
// and in several goroutines at the same time.
//
// In the container, the command is root over the image's files; outside it is the calling user, and other
// users of the built-in runtime are the calling user's subordinate ids, if there are any. It
// sees the image, its binds and devices, a new /proc, /dev and /dev/shm, the host's /sys, and only
// its own processes. Files that it writes outside of its binds are not kept; see PrivateDir.
type Container struct {
	// SIF is the path of the image's SIF.
	SIF string
	// OpenedSIF, if not nil, is the SIF, open for reading. A caller that has checked this file can be
	// sure that it is run: Run fails if SIF means another file at the start. The caller closes it
	// after Run.
	OpenedSIF *os.File `json:"-"`
	// PinnedReference is the image's reference with its digest. An engine runs this image from its
	// own store, instead of SIF.
	PinnedReference string
	// Runtime is the runtime that the caller requests. OnChoice, if not nil, is called with the
	// runtime that runs the container. Only package runner uses these two.
	Runtime  runtimes.Name
	OnChoice func(Choice) `json:"-"`
	// Args is the argument vector of the command. Its first element is a path in the image, or a
	// name to look up in the PATH there.
	Args []string
	// ShellCommand is used if Args is empty: a command line for the image's /bin/bash, or for
	// /bin/sh if there is no bash.
	ShellCommand string
	// Env is added to the image's own environment, "NAME=value", and overrides it. The host's
	// environment is not passed on.
	Env []string
	// Masked are texts that Stdout and Stderr must not have, such as secrets in Env. Where the command writes one as it is,
	// the file gets *** in its place.
	Masked []string
	// Binds are host files and directories to show in the container.
	Binds []Bind
	// Devices are host device files, below /dev, to show at the same path.
	Devices []string
	// GPUVendor is the vendor of the GPUs among Devices. The container then also gets the host's driver
	// for them: libraries that the image's programs find, and programs in the PATH.
	GPUVendor gpudriver.Vendor
	// Dir is the working directory in the container; empty means "/".
	Dir string
	// Network is the container's network; empty means NoNetwork.
	Network Network
	// PrivateDir is a directory of the caller alone on a node-local disk or tmpfs (not NFS, Lustre
	// or GPFS). Run makes a directory in it for the command's files in the root file system. The
	// caller removes that directory later; subdirectories may be closed to their owner.
	PrivateDir string
	// KeptDir is a directory like PrivateDir, on the same disk, which outlives the container. A runtime for several containers
	// may keep the mounted image there for the next one of the same image, and the command's files in the root file system
	// until Run returns. No other container writes to the Binds meanwhile. Empty means that nothing is kept.
	KeptDir string
	// Stdout and Stderr get the command's output; nil discards. A regular file must be open for
	// appending, and the command gets a pipe in its place. If the host's programs cannot set the
	// container up, their messages go to Stderr, too, except for an engine's.
	Stdout, Stderr *os.File `json:"-"`
	// ShmBytes is the size of /dev/shm; zero means half of the memory.
	ShmBytes int64
	// MemoryBytes limits the memory of an engine's container; zero means no limit. The containers
	// of other runtimes are in the caller's cgroup, which limits them.
	MemoryBytes int64
	// MaxProcesses limits the processes and threads of the container; zero means no limit. It has no
	// effect where the kernel cannot count them apart from the user's others (docs/security.md).
	MaxProcesses int64
	// KilledFirst makes the kernel kill the container's processes rather than this one when the memory that they share
	// runs out. An engine's container does not share it.
	KilledFirst bool
	// KillGrace is the time between TERM and KILL after the end of Run's context; zero means two
	// seconds.
	KillGrace time.Duration
	// OnUnpack, if not nil, is called before the image is unpacked, which may take minutes, because it cannot be
	// mounted.
	OnUnpack func() `json:"-"`
	// OnWait, if not nil, is called with a phrase when something of a cluster is in the way of the container's start, such as
	// the lack of a node, and with "" when nothing is. Only package pods calls it.
	OnWait func(reason string) `json:"-"`
	// OnUsage, if not nil, is called with the container's use so far, every few seconds. Only package pods calls it: others'
	// containers are on this host, where their caller can measure them.
	OnUsage func(Usage) `json:"-"`
	// OnStart, if not nil, is called when the container is set up and its command begins. It is
	// called once, or twice if package runner tries a second runtime.
	OnStart func(Running) `json:"-"`
}

// Network is the network of a container.
type Network string

// The networks.
const (
	// NoNetwork is a loopback interface of the container's own.
	NoNetwork Network = ""
	// PrivateNetwork is a network of the container's own, from which the container reaches other machines, but no
	// loopback interface and no abstract socket of the host. An engine gives its default network. If the
	// host does not allow such a network, the container has none, and the Exit has the reason.
	PrivateNetwork Network = "private"
	// HostNetwork is the host's network, with its loopback interface and its abstract sockets.
	HostNetwork Network = "host"
)

// Bind shows the host's Source in the container at Target. Target is an absolute path, which is
// created if the image does not have it. A bind's target must not be inside another's.
type Bind struct {
	Source, Target string
	ReadOnly       bool
	// Exact refuses a Source that has a symbolic link anywhere in its path, or is not readable, at
	// the time of mounting. So other users who can change the path cannot redirect it after the
	// caller has checked it.
	Exact bool
	// OfOthers is set if other processes of the host may have files in Source, such as sockets.
	OfOthers bool
}

// ReachesOthers reports whether a command in this network, with these binds, can reach a socket of another process of the host. It can give
// that an open directory (unix(7): SCM_RIGHTS), which then outlives the container: through an abstract socket in the host's network, or one
// in a bind, which may be read-only. The daemons of a GPU's driver receive no files.
func ReachesOthers(network Network, binds []Bind) bool {
	return network == HostNetwork || slices.ContainsFunc(binds, func(b Bind) bool { return b.OfOthers })
}

// Exit is the end of a container's command.
type Exit struct {
	// Code is the exit status as a shell reports it: 128 + n after signal n.
	Code int
	// Signal is the signal that ended the command, or 0 if it exited. A command that itself exits
	// with 128 + n, as a shell does when its last command was killed, counts as killed.
	Signal int
	// Note is a sentence about a difference from a usual run, with its reason. It is usually empty.
	Note string `json:",omitempty"`
	// NoNetwork is the reason why a container that requested a PrivateNetwork had none, or lost it; usually empty.
	NoNetwork string `json:",omitempty"`
	// OutputError is the reason why a part of the command's output could not be written, such as a
	// full disk; 0 if there is none. The command does not notice it.
	OutputError syscall.Errno `json:",omitempty"`
	// Usage is the use of the container. Only an engine's has counts of OOMKills and RefusedProcesses: other containers
	// are in this process's cgroup. It is also set if the command did not run to its end.
	Usage Usage `json:",omitzero"`
}

// Usage is the use of a container from its start to its end.
type Usage struct {
	// User and System are the processor time of the container's processes: of an engine's, those of the command and of
	// the processes that it waited for.
	User, System time.Duration
	// MemoryPeak is the largest use of memory in bytes, with cached files. If no engine limits the
	// container, it is the use of its largest process.
	MemoryPeak int64
	// Memory is the present use without files that the kernel may drop; zero at the end.
	Memory int64 `json:",omitempty"`
	// OOMKills counts the processes that the kernel killed because memory ran out.
	OOMKills int64
	// RefusedProcesses counts the processes and threads that the kernel refused because of MaxProcesses.
	RefusedProcesses int64
}

// ExitOf returns the Exit of a command with this exit status, as a shell reports it.
func ExitOf(code int) Exit {
	exit := Exit{Code: code}
	if signal := code - 128; signal > 0 && signal < 65 {
		exit.Signal = signal
	}
	return exit
}

// Shells lists the shells for a ShellCommand, in the order of preference.
func Shells() []string { return []string{"/bin/bash", "/bin/sh"} }

// KillGraceOrDefault returns KillGrace, or its default.
func (c Container) KillGraceOrDefault() time.Duration { return cmp.Or(c.KillGrace, 2*time.Second) }

// WorkingDir returns Dir, or its default.
func (c Container) WorkingDir() string { return cmp.Or(c.Dir, "/") }

// Validate returns an error for a container that no runtime can run on this host. architecture is
// the image's; empty means that an engine checks it.
func (c Container) Validate(architecture string) error {
	if architecture != "" && architecture != "unknown" && architecture != runtime.GOARCH {
		return RequestErrorf("the image is made for linux/%s, and this node is linux/%s", architecture, runtime.GOARCH)
	}
	if len(c.Args) == 0 && c.ShellCommand == "" {
		return RequestErrorf("no command")
	}
	if c.PrivateDir == "" {
		return RequestErrorf("no private directory")
	}
	if err := validateStrings(slices.Concat(c.Args, []string{c.ShellCommand}), "the command"); err != nil {
		return err
	}
	return errors.Join(validateBinds(c.Binds, c.WorkingDir()), validateDevices(c.Devices))
}

// maxString is the largest argument or variable that Linux takes (execve(2): MAX_ARG_STRLEN, which counts
// the final zero).
const maxString = 128<<10 - 1

// validateStrings refuses arguments that no kernel takes.
func validateStrings(all []string, what string) error {
	for _, s := range all {
		switch {
		case strings.ContainsRune(s, 0):
			return RequestErrorf("%s has a zero byte", what)
		case len(s) > maxString:
			return RequestErrorf("%s has %d bytes, and Linux takes at most %d in one argument: a longer one has to be in a file", what, len(s), maxString)
		}
	}
	return nil
}

// Environment returns the command's environment: the image's, with Env added. Like Docker, it adds
// a PATH and a HOME if the image sets none. It omits values with a zero byte, which an image's
// configuration may contain and an environment cannot.
func (c Container) Environment(imageEnv []string) []string {
	env := []string{"PATH=" + sifconfig.DefaultPath, "HOME=/root"}
	at := map[string]int{"PATH": 0, "HOME": 1}
	for _, assignment := range slices.Concat(imageEnv, c.Env) {
		name, _, ok := strings.Cut(assignment, "=")
		if !ok || name == "" || strings.ContainsRune(assignment, 0) {
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

func validateBinds(binds []Bind, dir string) error {
	if !path.IsAbs(dir) {
		return RequestErrorf("the working directory %q is not an absolute path", dir)
	}
	for i, b := range binds {
		if !path.IsAbs(b.Target) || path.Clean(b.Target) == "/" {
			return RequestErrorf("bind target %q is not an absolute path below the root", b.Target)
		}
		if _, err := os.Stat(b.Source); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		for j, other := range binds {
			if i != j && subpath.Within(b.Target, other.Target) {
				return RequestErrorf("bind target %q lies inside %q", b.Target, other.Target)
			}
		}
	}
	return nil
}

func validateDevices(devices []string) error {
	for _, device := range devices {
		info, err := os.Stat(device)
		if err != nil {
			return fmt.Errorf("device: %w", err)
		}
		if info.Mode()&os.ModeDevice == 0 || !subpath.Within(device, "/dev") {
			return fmt.Errorf("device %q is not a device file below /dev", device)
		}
	}
	return nil
}
