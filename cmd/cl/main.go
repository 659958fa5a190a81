// Command cl is the researcher's command: it uploads data, runs commands on it, and shows what
// became of them. Its verbs, flags and output are those of CodaLab's own cl
// (codalab/lib/bundle_cli.py).
package main

import "github.com/cl-slurm/cl-slurm/cmd/internal/program"

func main() { program.Main(run) }
