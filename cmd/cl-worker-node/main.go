// Command cl-worker-node is the part of cl-worker that runs on the nodes of jobs: `exec` and `probe`. The bridge puts it on the shared
// disk, as cl-worker.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func main() {
	if code, ran := runner.Main(os.Args); ran {
		os.Exit(code)
	}
	program.Main(run)
}

const about = `cl-worker-node is the part of cl-worker that a node needs: it runs the prepared bundles of
jobs, and tests the node. cl-bridge copies it to the shared directory, where it is called
cl-worker.`

func run(ctx context.Context, p program.Process) error {
	root := newRoot(p) //nolint:contextcheck // the commands take theirs from ExecuteContext
	root.SetArgs(p.Args)
	return root.ExecuteContext(ctx) //nolint:wrapcheck // our own errors come through cobra
}

func newRoot(p program.Process) *cobra.Command {
	root := program.Root(p, "cl-worker-node", "Run bundles on a node of a job", about)
	root.AddCommand(onnode.ExecCommand(p, onnode.Containers), onnode.ProbeCommand(p))
	return root
}
