package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const probeHelp = `Says what this node has for running containers, tried and not only looked up,
and by which way cl-worker would run them here, and why. Nothing is changed.

What a login node allows says nothing of a compute node, so run it in a job:

  srun cl-worker probe

--runtime is the queue's setting of that name. Exit codes:
  0  containers can be run
  1  they cannot: the last line says what the site has to allow`

// probed is what `cl-worker probe --json` prints.
type probed struct {
	Host   container.Host    `json:"host"`
	Choice *container.Choice `json:"choice,omitempty"`
	Error  string            `json:"error,omitempty"`
}

func probeCommand(p program.Process) *cobra.Command {
	var runtime, scratch string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Say by which way containers are run on this node",
		Long:  probeHelp,
		Args:  program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(container.AllWays(), container.Way(runtime)) {
				return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--runtime %q: want one of %q", runtime, container.AllWays())}
			}
			return probe(cmd.Context(), p, container.Way(runtime), scratch, asJSON)
		},
	}
	cmd.Flags().StringVar(&runtime, "runtime", string(container.WayAuto), "what the queue asks for")
	cmd.Flags().StringVar(&scratch, "scratch", "/tmp", "the queue's scratch directory")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func probe(ctx context.Context, p program.Process, want container.Way, scratch string, asJSON bool) error {
	host, err := container.Ways{Env: engineEnv(p)}.Probe(ctx, scratch)
	if err != nil {
		return err
	}
	choice, refused := container.Choose(want, host)
	if asJSON {
		said := probed{Host: host, Choice: &choice}
		if refused != nil {
			said.Choice, said.Error = nil, refused.Error()
		}
		out := json.NewEncoder(p.Stdout)
		out.SetIndent("", "  ")
		if err := out.Encode(said); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return refused
	}
	if err := writeHost(p.Stdout, host); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if refused == nil {
		_, err = fmt.Fprintf(p.Stdout, "\n%s: %s\n", choice.Way, choice.Reason)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return refused
}

// writeHost prints what was found, a line each.
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
