package main

import (
	"context"
	"errors"
	"fmt"
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

A compute node may allow less than a login node, so run it in a job:

  srun cl-worker probe

--runtime is the queue's setting of that name. cl-bridge doctor runs this in a job
with --meet, and waits for the report in that directory. Exit codes:
  0  containers can be run
  1  they cannot; the last line names the feature that the site must allow`

func probeCommand(p program.Process) *cobra.Command {
	var runtime, scratch, meet string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Show the runtime that runs containers on this node",
		Long:  probeHelp,
		Args:  program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(runtimes.All(), runtimes.Name(runtime)) {
				return program.Usage(fmt.Errorf("--runtime %q: want one of %q", runtime, runtimes.All()))
			}
			return tryNode(cmd.Context(), p, runtimes.Name(runtime), scratch, probe.Meeting{Dir: meet}, asJSON)
		},
	}
	cmd.Flags().StringVar(&runtime, "runtime", string(runtimes.Auto), "the queue's `runtime`")
	cmd.Flags().StringVar(&scratch, "scratch", "/tmp", "the queue's scratch directory")
	cmd.Flags().StringVar(&meet, "meet", "", "leave the report in this `directory`, for cl-bridge doctor")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// meetWithin bounds a job's wait for a login node.
const meetWithin = 2 * time.Minute

func tryNode(ctx context.Context, p program.Process, want runtimes.Name, scratch string, meet probe.Meeting, asJSON bool) error {
	r, err := probe.Look(ctx, runner.Runner{Env: engineEnv(p)}, want, scratch)
	if err == nil {
		r.Node, err = nodeName(p)
	}
	if err != nil {
		return err
	}
	r.Cgroup, r.MemoryLimit = worker.MemoryCgroup(p.Getenv("SLURM_JOB_ID"), p.Getenv("SLURM_JOB_SLUID"))
	if meet.Dir != "" {
		ctx, cancel := context.WithTimeout(ctx, meetWithin)
		defer cancel()
		err := meet.Attend(ctx, r)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("cl-bridge doctor did not answer this node's report within %s", meetWithin)
		}
		return err
	}
	if err := p.Print(asJSON, r, reportText(r)); err != nil {
		return err
	}
	switch {
	case r.Scratch != "":
		return errors.New(r.Scratch)
	case r.Error != "":
		return errors.New(r.Error)
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

// reportText returns a line for each finding and the runtimes that the node would use.
func reportText(r probe.Report) string {
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
	if r.Choice != nil {
		text += fmt.Sprintf("\n%s: %s\n", r.Choice.Runtime, r.Choice.Reason)
	}
	if weaker := r.WeakerSentence(); weaker != "" {
		text += weaker + "\n"
	}
	return text
}
