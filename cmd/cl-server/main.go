// Command cl-server keeps bundles, worksheets and users, and hands runs to workers: CodaLab's
// REST API over a directory of data.
package main

import "github.com/cl-slurm/cl-slurm/cmd/internal/program"

func main() { program.Main(run) }
