// Command cl-worker runs bundles: `cl-worker exec SPEC`, in an allocation of
// Slurm's, runs the one prepared bundle that SPEC describes.
package main

import (
	"os"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case container.InitCommand:
			os.Exit(container.Init())
		case container.EnterCommand:
			os.Exit(container.Enter())
		}
	}
	program.Main(run)
}
