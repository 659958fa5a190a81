// Command cl-bridge runs a CodaLab server's bundles as Slurm jobs.
package main

import "github.com/cl-slurm/cl-slurm/cmd/internal/program"

func main() { program.Main(run) }
