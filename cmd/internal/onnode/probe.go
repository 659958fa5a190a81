package onnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/worker"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

const probeHelp = `Tests this node's features for running containers, and prints the runtime
that cl-worker would use here, with the reason. It changes nothing.

Then it prints a line for each check, ok, warning or failed, with what it means for
runs and what to do: user namespaces, fuse, overlay, a whole container, links, renames
and locks of the disks, rules that remove old files, tickets, and in a job with GPUs
their way from the driver to a container.

A compute node may allow less than a login node, so run it in a job:

  srun cl-worker probe
  srun --gres=gpu:1 cl-worker probe --shared /shared/ann/cl-slurm

--runtime is the queue's setting of that name. cl-bridge doctor runs this in a job
with --meet, and waits for the report in that directory. Exit codes:
  0  containers can be run
  1  they cannot, or a check failed; the last line names what the site must allow`

// ProbeCommand returns the command probe.
func ProbeCommand(p program.Process) *cobra.Command {
	var x probing
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Show the runtime that runs containers on this node",
		Long:  probeHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if x.inside {
				return nil // the devices of a container
			}
			return program.WrongUsage(cobra.NoArgs)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if x.inside {
				return p.Print(true, probe.LookInside(args), "")
			}
			if !slices.Contains(runtimes.All(), runtimes.Name(x.runtime)) {
				return program.Usage(fmt.Errorf("--runtime %q: want one of %q", x.runtime, runtimes.All()))
			}
			return x.tryNode(cmd.Context(), p)
		},
	}
	cmd.Flags().StringVar(&x.runtime, "runtime", string(runtimes.Auto), "the queue's `runtime`")
	cmd.Flags().StringVar(&x.scratch, "scratch", "/tmp", "the queue's scratch directory")
	cmd.Flags().StringVar(&x.shared, "shared", "", "also try the disk of this `directory`, as the bridge's shared directory")
	cmd.Flags().StringVar(&x.meet, "meet", "", "leave the report in this `directory`, for cl-bridge doctor")
	cmd.Flags().BoolVar(&x.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&x.inside, "inside", false, "print what a container has of these devices")
	if err := cmd.Flags().MarkHidden("inside"); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

// probing is what the flags select.
type probing struct {
	runtime, scratch, shared, meet string
	asJSON                         bool
	// inside is set in the container that a probe tries.
	inside bool
}

// meetWithin bounds a job's wait for a login node.
const meetWithin = 2 * time.Minute

func (x probing) tryNode(ctx context.Context, p program.Process) error {
	meeting := probe.Meeting{Dir: x.meet}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r, err := probe.Examiner{
		Containers: runner.Runner{Env: EngineEnv(p)}, Want: runtimes.Name(x.runtime), Scratch: x.scratch, Shared: cmp.Or(x.meet, x.shared),
		Program: self, Getenv: p.Getenv, Now: time.Now,
	}.Examine(ctx)
	if err == nil {
		r.Node, err = nodeName(p)
	}
	if err != nil {
		return err
	}
	r.Cgroup, r.MemoryLimit = worker.MemoryCgroup(p.Getenv("SLURM_JOB_ID"), p.Getenv("SLURM_JOB_SLUID"))
	if x.meet != "" {
		ctx, cancel := context.WithTimeout(ctx, meetWithin)
		defer cancel()
		err := meeting.Attend(ctx, r, time.Now)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("cl-bridge doctor did not answer this node's report within %s", meetWithin)
		}
		return err
	}
	checks := r.Checks(0)
	if err := p.Print(x.asJSON, struct {
		probe.Report
		Checks []probe.Check `json:"checks"`
	}{r, checks}, reportText(r, checks)); err != nil {
		return err
	}
	return unfit(r, checks)
}

// unfit returns the reason why a node cannot run bundles, or some of them, or nil.
func unfit(r probe.Report, checks []probe.Check) error {
	switch {
	case r.Scratch != "":
		return errors.New(r.Scratch)
	case r.Error != "":
		return errors.New(r.Error)
	}
	for _, c := range checks {
		if c.Verdict == probe.Failed {
			return fmt.Errorf("%s: %s", c.Name, c.Text())
		}
	}
	return nil
}

// memoryText describes the part of the node that keeps the memory limit of a run without an engine.
func memoryText(r probe.Report) string {
	if r.MemoryLimit == 0 {
		return "no   no cgroup limits the memory here: the worker measures once a second, and ends a command above its limit"
	}
	return "yes  " + r.Cgroup
}

// reportText returns a line for each finding and each check, and the runtime that the node would use.
func reportText(r probe.Report, checks []probe.Check) string {
	var rows [][]string
	for _, part := range r.Host.Parts() {
		said := "yes"
		for _, more := range []string{part.Version, part.Path} {
			if more != "" {
				said += "  " + more
			}
		}
		if part.Setuid {
			said += "  with privileges"
		}
		switch {
		case part.Lack != "":
			said = "no   " + part.Lack
		case part.Name == string(runtimes.Podman) && part.Version == "":
			said = "not tried without --runtime podman  " + part.Path
		}
		rows = append(rows, []string{part.Name, said})
	}
	text := termtext.Table(append(rows, []string{"memory limit", memoryText(r)}))
	if len(checks) > 0 {
		text += "\n"
	}
	for _, c := range checks {
		text += c.Line() + "\n"
	}
	if r.Choice != nil {
		text += fmt.Sprintf("\n%s: %s\n", r.Choice.Runtime, r.Choice.Reason)
	}
	if weaker := r.WeakerSentence(); weaker != "" {
		text += weaker + "\n"
	}
	return text
}
