package probe

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/internal/purgers"
	"github.com/cl-slurm/cl-slurm/internal/tickets"
)

// Facts are a node's abilities beyond the start of containers.
type Facts struct {
	UserNamespaces Namespaces `json:"user_namespaces"`
	// ScratchDir and SharedDir are the directories that were tried. SharedDir is empty if none was named.
	ScratchDir  string              `json:"scratch_dir"`
	SharedDir   string              `json:"shared_dir,omitempty"`
	ScratchDisk *disktrial.Features `json:"scratch_disk,omitempty"`
	SharedDisk  *disktrial.Features `json:"shared_disk,omitempty"`
	// DiskClock is the shared disk's clock against the node's; nil if it could not be read.
	DiskClock *clocks.Offset `json:"disk_clock,omitempty"`
	// SharedOverlay is the reason why an overlay cannot be on the shared disk; "" if it can, or was not tried.
	SharedOverlay string `json:"shared_overlay,omitempty"`
	// Container is the trial of a whole container; nil where the built-in runtime cannot be used.
	Container *Trial           `json:"container,omitempty"`
	GPUs      GPUs             `json:"gpus,omitzero"`
	Tickets   []tickets.Ticket `json:"tickets,omitempty"`
	// Purges are the node's rules that remove files of the scratch, and SharedPurges those of the shared directory.
	Purges       []purgers.Rule `json:"purges,omitempty"`
	SharedPurges []purgers.Rule `json:"shared_purges,omitempty"`
	// JobStart is the start of the job by the controller's clock, and Now the node's time when it was read; zero where
	// Slurm does not tell the job (before 23.02).
	JobStart time.Time `json:"job_start,omitzero"`
	Now      time.Time `json:"now"`
}

// Examiner examines a node.
type Examiner struct {
	Containers runner.Runner
	Want       runtimes.Name
	// Scratch is the queue's, and Shared a directory on the shared disk; it may be empty.
	Scratch, Shared string
	// Program is the path of cl-worker, for the trial of a container; empty leaves that out.
	Program string
	Getenv  func(name string) string
	// Root is the host's; empty means "/".
	Root string
	Now  func() time.Time
}

// Examine tests the node that it runs on. It takes about a second, and longer where nvidia-smi has to load a driver. It
// leaves no files. It fails if the shared disk does not answer.
func (e Examiner) Examine(ctx context.Context) (Report, error) {
	if e.Shared != "" {
		if err := diskspace.Answers(ctx, e.Shared); err != nil {
			return Report{}, err
		}
	}
	r, err := Look(ctx, e.Containers, e.Want, e.Scratch)
	if err != nil {
		return r, err
	}
	f := &Facts{
		UserNamespaces: LookAtNamespaces(e.Root), ScratchDir: e.Scratch, SharedDir: e.Shared,
		Purges: purgers.Find(e.Root, e.Scratch), JobStart: jobStart(e.Getenv("SLURM_JOB_START_TIME")), Now: e.Now(),
	}
	var group errgroup.Group
	disk := func(dir string, found **disktrial.Features) {
		group.Go(func() error {
			if features, err := disktrial.Try(ctx, dir); err == nil {
				*found = &features
			}
			return nil // the checks of the directory itself have the reason
		})
	}
	disk(e.Scratch, &f.ScratchDisk)
	if e.Shared != "" {
		f.SharedPurges = purgers.Find(e.Root, e.Shared)
		disk(e.Shared, &f.SharedDisk)
		group.Go(func() error {
			if o, err := background.Call(ctx, func() (clocks.Offset, error) { return clocks.OfDisk(e.Shared, e.Now) }); err == nil {
				f.DiskClock = &o
			}
			return nil
		})
		if r.Host.Namespaces.Lack == "" {
			group.Go(func() error {
				f.SharedOverlay = e.Containers.TryOverlay(ctx, e.Shared)
				return nil
			})
		}
	}
	group.Go(func() error {
		f.Tickets = tickets.Look(ctx, TicketEnv(e.Getenv), e.Now())
		return nil
	})
	group.Go(func() error {
		f.GPUs = LookAtGPUs(ctx, e.Root, e.Getenv)
		if e.Program != "" && r.Scratch == "" && r.Choice != nil && r.Choice.Runtime == runtimes.Builtin {
			t := e.TryContainer(ctx, f.GPUs.devices())
			f.Container = &t
		}
		return nil
	})
	_ = group.Wait() // no function returns an error
	r.Facts = f
	return r, ctx.Err()
}

// TicketEnv returns the variables of a process by which klist finds its tickets.
func TicketEnv(getenv func(string) string) []string {
	var env []string
	for _, name := range []string{"KRB5CCNAME", "KRB5_CONFIG", "HOME"} {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// jobStart reads SLURM_JOB_START_TIME (sbatch(1), OUTPUT ENVIRONMENT VARIABLES).
func jobStart(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
