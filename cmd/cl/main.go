// Command cl is the researcher's command. It uploads data, runs commands on it, and shows the
// results. Its verbs, flags and output are those of CodaLab's own cl
// (codalab/lib/bundle_cli.py).
//
// cli.go builds the command line; there is a file for each command (run.go, wait.go, …).
// session.go and login.go keep servers, worksheets and tokens between calls. target.go and
// dependency.go resolve what users type; fields.go formats what they see.
package main

import (
	"os"
	"runtime/debug"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func main() {
	if os.Getenv("GOGC") == "" {
		// A call is short, and may read a list of 10,000 bundles: rarer collections save it a sixth of its processor time.
		debug.SetGCPercent(400)
	}
	program.Main(run)
}
