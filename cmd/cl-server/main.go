// Command cl-server keeps bundles, worksheets and users in a data directory, hands runs to
// workers, and serves CodaLab's REST API.
package main

import "github.com/cl-slurm/cl-slurm/cmd/internal/program"

func main() { program.Main(run) }
