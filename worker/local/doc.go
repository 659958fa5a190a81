// Package local is a scheduler for one machine. It is an sbatch.Scheduler, like Slurm: a bridge
// submits jobs to it, and finds them by their names. It needs no Slurm, no daemon except the
// worker, and no privilege.
//
// # Promises
//
// Jobs start in the order of their submission, as soon as there is room. Each has its own
// processors, GPUs and memory. A job that does not fit blocks later ones, so that each job has its
// turn. The scheduler refuses a request that the machine can never serve.
//
// A job runs in its own session, and survives the process that started it. The next scheduler of
// the same directory takes it over. A job is started at most once, and does not count as ended
// while its main process lives. When the main process has ended, the scheduler sends KILL to the
// job's other processes. When they are gone, it frees the job's resources. An id is never used
// again.
//
// The scheduler counts the memory of a job and does not limit it: `cl-worker exec` watches its
// command's use. The affinity of the job's processes limits its processors, and a program may
// change it (sched_setaffinity(2)). The job gets the numbers of its GPUs (SLURM_JOB_GPUS), and
// `cl-worker exec` shows only these to its command.
//
// # The states of a job
//
// The directory has one record for each job, <id>.json, with the job's request and state. Each
// arrow is one atomic write of that record, flushed to the disk. An action on a job (a start, a
// signal) comes after its write, and an event (an end) before it. If the write fails, a job is not
// started, and an end is written at a later try.
//
//	        Submit        room           its processes are gone
//	(none) ───────► PENDING ───────► RUNNING ───────► COMPLETED, FAILED ──────────► (none)
//	                   │  │             │  │ Cancel       ▲                 an hour later
//	            Cancel │  │ no process  │  │ or limit     │
//	                   │  ▼             │  ▼              │
//	                   │ FAILED         │ RUNNING, ends ──┴─► CANCELLED, TIMEOUT
//	                   ▼                ▼
//	                CANCELLED        NODE_FAIL: Open finds the machine restarted
//
// The record of the last job stays until there is a later job, although it is no longer shown. So
// the largest id is always known.
//
// # Starting a job
//
//	1  start the process, held      it is in its session, on its processors, and waits at a pipe
//	2  write RUNNING, with its pid and start time
//	3  release it                   it executes the script
//
// A crash before 2 leaves a PENDING job. The held process exits without executing the script,
// because its pipe ends with the scheduler's process. So the next scheduler can start the job. A
// crash between 2 and 3 leaves a RUNNING job whose process exits in the same way. The next
// scheduler finds it gone, and the job is FAILED although it did nothing; a bridge treats that as a
// failed start. After 3 the record identifies the process, so the scheduler need not search for it
// and cannot miss it.
//
// # Finding a job's processes
//
// A process is identified by its pid, its start time (proc_pid_stat(5)), and the boot id and PID
// namespace of both. Linux gives a pid to another process later, but not with the same start time.
// From another namespace the process is invisible, so Open refuses to judge it (ErrNamespace).
//
// The scheduler waits for the end of each main process by a pidfd, even if an earlier scheduler
// started it; before Linux 5.10 it polls /proc. It knows only the exit status of its own children.
// A job that an earlier scheduler started ends as FAILED, without an Exit, unless it was cancelled
// or its time was up. A bridge takes the end from the exit record in the spool.
//
// A job's other processes are those of its session, and those with the job's marker in their
// environment (the variable CL_WORKER_JOB), which also finds those that left the session. If the
// main process ended while no scheduler ran, only the marker counts, because Linux may have reused
// the session's id. A process with neither survives its job, as it does under Slurm without
// cgroups.
package local
