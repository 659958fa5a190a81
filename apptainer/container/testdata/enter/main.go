// Command enter is the product's programs as far as they enter containers:
// unlike a test's program it is linked statically.
package main

import (
	"os"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == container.EnterCommand {
		os.Exit(container.Enter())
	}
}
