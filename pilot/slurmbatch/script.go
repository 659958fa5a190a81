package slurmbatch

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Worker is the command line of a worker. Its Executable is an absolute path.
type Worker struct {
	pilot.Worker
	// Scripted is set for a program that is a script, like CodaLab's own cl-worker: it cannot find out by
	// itself which GPUs Slurm has given it.
	Scripted bool
	// Checked is set for a program that jobs start only if it has the content that it has at their submission.
	Checked bool
	// TakesToken is set for a program that has the flag --token-file, like our cl-worker.
	TakesToken bool
}

// The worker takes no run that would not end in time, and gets TERM before Slurm's limit. Slurm sends the
// signal up to a minute early (sbatch(1): --signal), so the worker stops earlier by itself.
const (
	stopBeforeLimit = 150 * time.Second
	termBeforeLimit = 60 * time.Second
)

// StopAfter returns the time from its job's start after which a worker stops by itself.
func StopAfter(limit time.Duration) time.Duration { return limit - min(stopBeforeLimit, limit/4) }

// Longest returns the longest run that a pilot can take right after its start; 0 for no bound.
func Longest(limit time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return StopAfter(limit) - min(time.Minute, limit/8)
}

func warnBefore(limit time.Duration) time.Duration { return min(termBeforeLimit, limit/8) }

// script returns the batch script of a pilot. The program is the worker's Executable.
func (w Worker) script(name string, j Job, login []string, program sbatch.Program) string {
	var s strings.Builder
	fmt.Fprintf(&s, "#!/bin/sh\n# A worker of CodaLab. cl-worker-manager has submitted it.\n")
	fmt.Fprintf(&s, "export PATH=%s\n", sbatch.Quote(sbatch.DefaultPath+":"+filepath.Dir(w.Executable)))
	if j.Time > 0 {
		// Only our cl-worker reads this variable.
		fmt.Fprintf(&s, "export CL_WORKER_STOP_AFTER=%d\n", int64(StopAfter(j.Time).Seconds()))
	}
	s.WriteString("echo \"Worker is executing on host: $(hostname)\"\n")
	gpus := "ALL"
	switch {
	case j.GPUs == 0:
		gpus = "NONE"
	case w.Scripted: // slurm_batch_worker_manager.py: create_job_definition
		s.WriteString("gpus=$(nvidia-smi -L 2>/dev/null | sed -n 's/.*UUID: \\([^)]*\\).*/\\1/p' | tr '\\n' ',')\ngpus=${gpus%,}\n")
		gpus = "${gpus:-NONE}"
	}
	var words []string
	for _, word := range w.Command(name, login...)[1:] {
		words = append(words, sbatch.Quote(word))
	}
	s.WriteString(program.Exec(append(words, "--gpuset", `"`+gpus+`"`)...))
	return s.String()
}
