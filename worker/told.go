package worker

import (
	"context"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// ownTermPatience is how long a worker waits for its own TERM when TERM has ended its command.
const ownTermPatience = 2 * time.Second

// toldToStop reports whether the job was told to stop before the command's end. Usually TERM reaches
// the worker alone, which sends it on. But Slurm may send it to one process of the job after the other
// (26.05, proctrack/linuxproc): the command may get it, and end, before its worker gets it. Limited is
// the context that ends, too, when the worker itself stops the command.
func toldToStop(ctx, limited context.Context, exit container.Exit) bool {
	if exit.Signal == int(syscall.SIGTERM) && limited.Err() == nil {
		_ = pause.For(ctx, ownTermPatience) // how it ended is seen below
	}
	return ctx.Err() != nil
}
