package probe

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// Report is what a node has for running bundles, as trials found it.
type Report struct {
	Node    string         `json:"node"` // the caller of Look names it
	Kernel  string         `json:"kernel"`
	Machine string         `json:"machine"` // as uname -m prints it
	Host    container.Host `json:"host"`
	// Choice is how the node would run containers. If it cannot, Error is a sentence
	// that says what the site has to allow.
	Choice *container.Choice `json:"choice,omitempty"`
	Error  string            `json:"error,omitempty"`
	// Scratch says why the scratch directory cannot be used. Noexec is set where nothing in it can be
	// executed.
	Scratch string `json:"scratch,omitempty"`
	Noexec  bool   `json:"noexec,omitempty"`
	// Cgroup is the directory of the job's memory cgroup, MemoryLimit the bytes
	// that it allows; empty and 0 where there is none.
	Cgroup      string `json:"cgroup,omitempty"`
	MemoryLimit int64  `json:"memory_limit,omitempty"`
	// Asked is what the node read in the meeting's directory. Owner is set where the
	// node's own record of a start is there. Meeting says why no record could be
	// settled.
	Asked   string `json:"asked,omitempty"`
	Owner   bool   `json:"owner,omitempty"`
	Meeting string `json:"meeting,omitempty"`
}

// Look tries the node that it runs on, for a queue with this runtime and scratch
// directory. It takes a third of a second and leaves nothing behind.
func Look(ctx context.Context, containers runner.Runner, want runtimes.Name, scratch string) (Report, error) {
	var r Report
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return r, fmt.Errorf("find the kernel's version: %w", err)
	}
	r.Kernel, r.Machine = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	host, failed := containers.Probe(ctx, scratch)
	r.Host, r.Noexec = host, container.IsNoexec(scratch)
	if failed = errors.Join(container.CheckScratch(scratch), failed); failed != nil {
		r.Scratch = failed.Error()
		return r, ctx.Err()
	}
	if choice, refused := container.Choose(want, r.Host); refused == nil {
		r.Choice = &choice
	} else {
		r.Error = refused.Error()
	}
	return r, nil
}
