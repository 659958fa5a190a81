// Command enter is the product's programs as far as they run containers: unlike
// a test's program it is linked statically, and starts as fast as they do.
package main

import (
	"os"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func main() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case container.InitCommand:
		os.Exit(container.Init())
	case container.EnterCommand:
		os.Exit(container.Enter())
	}
}
