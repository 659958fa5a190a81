// Command cl-worker runs bundles: in an allocation of Slurm, `cl-worker exec SPEC` runs the
// prepared bundle that SPEC describes.
package main

import (
	"os"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func main() {
	if code, ran := runner.Main(os.Args); ran {
		os.Exit(code)
	}
	program.Main(run)
}
