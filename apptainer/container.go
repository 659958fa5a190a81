package apptainer

import (
	"context"
	"errors"
	"os"
	"time"
)

// InitCommand is the hidden argument by which the caller's program becomes
// the first process of a container: a program that uses Container calls
// [Init] when its first argument is this one.
const InitCommand = "container-init"

// Container describes one run of a command in a SIF. It is a value and may be
// used again, by several goroutines at once.
//
// Inside, the command is root over the image's files; outside it is the
// calling user. It sees the image, its binds and devices, a fresh /proc, /dev
// and /dev/shm, the host's /sys read-only, and no process but its own. What it
// writes outside of its binds is gone when it ends.
type Container struct {
	// SIF is the image's path.
	SIF string
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
	// Devices are host device files to show inside at the same path.
	Devices []string
	// Dir is the working directory inside; empty means "/".
	Dir string
	// Network gives the container the host's network; else it has a loopback
	// interface only.
	Network bool
	// Scratch is a directory on a node-local disk or tmpfs (not NFS, Lustre or
	// GPFS) where a private directory holds what the command writes to the
	// root file system; it is removed at the end.
	Scratch string
	// Stdout and Stderr are the command's; nil discards. What bubblewrap says
	// when it cannot set the container up goes to Stderr too.
	Stdout, Stderr *os.File
	// ShmBytes is the size of /dev/shm; zero means half of the memory.
	ShmBytes int64
	// Grace is how long the processes of the container have between the TERM
	// that the end of Run's context sends them and the KILL that follows; zero
	// means two seconds.
	Grace time.Duration
	// OnStart, when not nil, is called once with the process id of the
	// container's init as this process sees it: every process of the container
	// is a descendant of it.
	OnStart func(pid int)
	// Init is the argument vector that calls the function Init; nil means this
	// program with InitCommand.
	Init []string
}

// Bind shows the host's Source inside the container at Target. Target is an
// absolute path, made when the image lacks it, and no bind's target may lie
// inside another's.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// Exit is how a container's command ended.
type Exit struct {
	// Code is the exit status as a shell reports it: 128 + n after signal n.
	Code int
	// Signal is the signal that ended the command, 0 when it exited. A command
	// that itself exits with 128 + n, as a shell does whose last command was
	// killed, is not told from a killed one.
	Signal int
	// CPU is the processor time, user and system, of the whole container with
	// what its set-up took.
	CPU time.Duration
}

// ErrNoShell is the cause when ShellCommand is set and the image has neither
// /bin/bash nor /bin/sh.
var ErrNoShell = errors.New("the image has no shell: neither /bin/bash nor /bin/sh")

// Run runs the command and waits for its end; processes that it left behind
// end with it. When ctx ends first, every process of the container gets TERM,
// and after Grace what is left gets KILL; the Exit is the command's all the
// same. An error says that the command was not run, or not to its end, by no
// doing of its own; it never speaks of the command's exit status.
func (c Container) Run(ctx context.Context) (Exit, error) {
	return Exit{}, errors.New("not implemented")
}

// Init is the first process of a container: it reads what to do from the
// descriptor that Container.Run gave it, does it, and returns the exit status
// for the program to end with. Programs call it before anything else, when
// their first argument is InitCommand.
func Init() int { return 1 }
