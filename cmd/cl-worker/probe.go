package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/worker"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

const probeHelp = `Tries what this node has for running containers, and says which runtime
cl-worker would use here, and why. It changes nothing.

A compute node may allow less than a login node, so run it in a job:

  srun cl-worker probe

--runtime is the queue's setting of that name. cl-bridge doctor runs this in a job
with --meet, and waits for the report in that directory. Exit codes:
  0  containers can be run
  1  they cannot; the last line says what the site has to allow`

func probeCommand(p program.Process) *cobra.Command {
	var runtime, scratch, meet string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Say which runtime runs containers on this node",
		Long:  probeHelp,
		Args:  program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(runtimes.All(), runtimes.Name(runtime)) {
				return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--runtime %q: want one of %q", runtime, runtimes.All())}
			}
			return tryNode(cmd.Context(), p, runtimes.Name(runtime), scratch, probe.Meeting{Dir: meet}, asJSON)
		},
	}
	cmd.Flags().StringVar(&runtime, "runtime", string(runtimes.Auto), "what the queue asks for")
	cmd.Flags().StringVar(&scratch, "scratch", "/tmp", "the queue's scratch directory")
	cmd.Flags().StringVar(&meet, "meet", "", "leave the report in this `directory`, for cl-bridge doctor")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// meetWithin bounds a job's wait for a login node.
const meetWithin = 2 * time.Minute

func tryNode(ctx context.Context, p program.Process, want runtimes.Name, scratch string, meet probe.Meeting, asJSON bool) error {
	r, err := probe.Look(ctx, runner.Runner{Env: engineEnv(p)}, want, scratch)
	if err != nil {
		return err
	}
	r.Cgroup, r.MemoryLimit = worker.MemoryCgroup(p.Getenv("SLURM_JOB_ID"))
	if meet.Dir != "" {
		ctx, cancel := context.WithTimeout(ctx, meetWithin)
		defer cancel()
		return meet.Attend(ctx, r)
	}
	if asJSON {
		out := json.NewEncoder(p.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(r)
	} else {
		err = writeReport(p.Stdout, r)
	}
	switch {
	case err != nil:
		return fmt.Errorf("print: %w", err)
	case r.Scratch != "":
		return errors.New(r.Scratch)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// writeReport prints the findings, and how the node would run containers.
func writeReport(out io.Writer, r probe.Report) error {
	if err := writeHost(out, r.Host); err != nil || r.Choice == nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s: %s\n", r.Choice.Runtime, r.Choice.Reason)
	return err //nolint:wrapcheck // the caller words it
}

// writeHost prints the findings, one per line.
func writeHost(out io.Writer, host container.Host) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, line := range []struct {
		name string
		container.Finding
	}{
		{"user namespaces", host.Namespaces},
		{"/dev/fuse", host.Fuse},
		{"overlay", host.Overlay},
		{"squashfuse", host.Squashfuse},
		{"bubblewrap", host.Bubblewrap},
		{"unsquashfs", host.Unsquashfs},
		{"apptainer", host.Apptainer},
		{"singularity", host.Singularity},
		{"docker", host.Docker},
		{"podman", host.Podman},
	} {
		said := "yes"
		for _, more := range []string{line.Version, line.Path} {
			if more != "" {
				said += "  " + more
			}
		}
		if line.Setuid {
			said += "  with privileges"
		}
		if line.Lack != "" {
			said = "no   " + line.Lack
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\n", line.name, said); err != nil {
			return err //nolint:wrapcheck // the caller knows what is printed
		}
	}
	return table.Flush() //nolint:wrapcheck // as above
}
