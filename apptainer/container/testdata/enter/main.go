// Command enter has the parts of the product's programs that run containers. Unlike a test's
// program it is linked statically, and starts as fast as they do.
package main

import (
	"os"

	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
)

func main() {
	code, _ := runner.Main(os.Args)
	os.Exit(code)
}
