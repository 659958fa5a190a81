package pilot

import "strconv"

// Worker is the command line of a worker. Our cl-worker and CodaLab's own both understand it.
type Worker struct {
	// Executable is a program's absolute path, or its name where the batch system finds it by PATH.
	Executable string
	Server     string
	// WorkDir is the directory of the worker's files.
	WorkDir string
	// IdleSeconds is the time for which it waits for runs.
	IdleSeconds int64
	// Arguments are further arguments.
	Arguments []string
}

// Command returns the command line of the pilot with this name. The words have the order of
// worker_manager.py: build_command. login are the arguments by which the worker logs in.
func (w Worker) Command(name string, login ...string) []string {
	words := []string{
		w.Executable, "--server", w.Server, "--verbose", "--exit-when-idle", "--idle-seconds", strconv.FormatInt(w.IdleSeconds, 10),
		"--work-dir", w.WorkDir, "--id", WorkerID(name), "--network-prefix", "cl_worker_" + name + "_network",
	}
	words = append(words, w.Arguments...)
	// slurm_batch_worker_manager.py: setup_codalab_worker
	return append(append(words, "--pass-down-termination"), login...)
}
