package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// Report describes a node's abilities to run bundles, from trials.
type Report struct {
	Node    string         `json:"node"` // set by the caller of Look
	Kernel  string         `json:"kernel"`
	Machine string         `json:"machine"` // output of uname -m
	Host    container.Host `json:"host"`
	// Choice is the runtime that the node would use. If it can use none, Error is a sentence about
	// the permissions that the site has to give.
	Choice *container.Choice `json:"choice,omitempty"`
	Error  string            `json:"error,omitempty"`
	// Weaker lists the weaknesses of this runtime's walls
	// (package walls). Each clause completes the sentence "A command …".
	Weaker []string `json:"weaker,omitempty"`
	// Scratch is the reason why the scratch directory cannot be used, if it cannot. Noexec is set
	// if no program in it can be executed.
	Scratch string `json:"scratch,omitempty"`
	Noexec  bool   `json:"noexec,omitempty"`
	// Cgroup is the directory of the job's memory cgroup, and MemoryLimit its limit in bytes.
	// Without a limit, they are empty and 0.
	Cgroup      string `json:"cgroup,omitempty"`
	MemoryLimit int64  `json:"memory_limit,omitempty"`
	// Asked is the content of the file asked, as the node read it. Owner is set if the node's own
	// record of a start stands. Meeting is the reason why no record could be settled, if none
	// could.
	Asked   string `json:"asked,omitempty"`
	Owner   bool   `json:"owner,omitempty"`
	Meeting string `json:"meeting,omitempty"`
	// Locks tells of locks that the login node holds; nil if it holds none.
	Locks *Locks `json:"locks,omitempty"`
	// Lost is the reason why the node lost a file that the login node replaced, or "".
	Lost string `json:"lost,omitempty"`
	// Facts are those of Examine; nil for a cl-worker of an older release.
	Facts *Facts `json:"facts,omitempty"`
}

// WeakerSentence returns a sentence about the weaker walls of the node's runtime, or "" if there are none.
func (r Report) WeakerSentence() string {
	if len(r.Weaker) == 0 {
		return ""
	}
	if way := walls.Of(*r.Choice); way == walls.Builtin || way == walls.Apptainer { // their walls are the kernel's
		return "a wall is weaker on this node than on others: a command " + strings.Join(r.Weaker, ", and it ")
	}
	return fmt.Sprintf("%s is a weaker wall than the built-in runtime: a command %s", r.Choice.Runtime, strings.Join(r.Weaker, ", and it "))
}

// Look tests the node that it runs on, for a queue with this runtime and scratch directory. It
// takes a third of a second and leaves no files.
func Look(ctx context.Context, containers runner.Runner, want runtimes.Name, scratch string) (Report, error) {
	var r Report
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return r, fmt.Errorf("find the kernel's version: %w", err)
	}
	r.Kernel, r.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	host, failed := containers.Probe(ctx, scratch, want)
	r.Host, r.Noexec = host, container.IsNoexec(scratch)
	if failed = errors.Join(container.CheckScratch(scratch), failed); failed != nil {
		r.Scratch = failed.Error()
		return r, ctx.Err()
	}
	if choice, refused := container.Choose(want, r.Host); refused == nil {
		r.Choice, r.Weaker = &choice, walls.Weaker(choice, r.Host)
	} else {
		r.Error = refused.Error()
	}
	return r, nil
}
