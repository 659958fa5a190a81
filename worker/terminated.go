package worker

import (
	"context"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// ownTermPatience limits the time that a worker waits for its own TERM after TERM has ended its
// command.
const ownTermPatience = 2 * time.Second

// wasTerminated reports whether the job got TERM before the command's end. Usually only the
// worker gets TERM, and sends it on. But Slurm may send it to one process of the job after the
// other (26.05, proctrack/linuxproc), so the command may end before its worker gets TERM. limited
// ends with ctx, or when the worker itself stops the command.
func wasTerminated(ctx, limited context.Context, exit container.Exit) bool {
	if exit.Signal == int(syscall.SIGTERM) && limited.Err() == nil {
		_ = pause.For(ctx, ownTermPatience) // ctx tells below whether it ended
	}
	return ctx.Err() != nil
}
