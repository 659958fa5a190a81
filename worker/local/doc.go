// Package local is a scheduler for one machine. It is an sbatch.Scheduler, as Slurm is: a bridge gives it
// jobs, and finds them again by their names. It needs no Slurm, no daemon beside the worker, and no
// privilege.
//
// # Promises
//
// Jobs start in the order of their submission, each with processors, GPUs and memory of its own, as soon
// as there is room. A job that does not fit lets no later one pass, so each job has its turn. A request
// that the machine can never serve is refused.
//
// A job runs in a session of its own, and survives the process that started it. The next scheduler of the
// same directory takes it over. A job is started at most once, and it is not taken for ended while its
// main process lives. When the main process has ended, the job's other processes get KILL, and what the
// job had of the machine is free when they are gone. Ids never come back.
//
// The memory of a job is counted and not limited: `cl-worker exec` watches what its command uses.
// Processors are limited by the affinity of the job's processes, which a program may change
// (sched_setaffinity(2)). GPUs are named to the job (SLURM_JOB_GPUS), and `cl-worker exec` shows no other
// one to its command.
//
// # The states of a job
//
// The directory has one record for each job, <id>.json, which says what the job is and what state it is
// in. Each arrow is one atomic write of that record, flushed to the disk. It comes before what it says is
// done to a job (a start, a signal), and after what it says has happened (an end). If the disk refuses
// it, a job is not started; an end is written at a later try.
//
//	        Submit        room           its processes are gone
//	(none) ───────► PENDING ───────► RUNNING ───────► COMPLETED, FAILED ──────────► (none)
//	                   │  │             │  │ Cancel       ▲                 an hour later
//	            Cancel │  │ no process  │  │ or limit     │
//	                   │  ▼             │  ▼              │
//	                   │ FAILED         │ RUNNING, stop ──┴─► CANCELLED, TIMEOUT
//	                   ▼                ▼
//	                CANCELLED        NODE_FAIL: Open finds the machine restarted
//
// The record of the last job stays, although it is not shown any more, until there is a later job. So the
// largest id is always known.
//
// # Starting a job
//
//	1  start the process, held      it is in its session, on its processors, and waits at a pipe
//	2  write RUNNING, with its pid and start time
//	3  release it                   it executes the script
//
// A crash before 2 leaves a PENDING job. The pipe ends with the scheduler's process, and so the held
// process exits without having executed the script: the next scheduler can start the job. A crash between
// 2 and 3 leaves a RUNNING job whose process exits in the same way. The next scheduler finds it gone, and
// the job is FAILED although it has done nothing, which a bridge treats as a failed start. After 3 the
// record has all that it takes to find the process. So no process has to be searched for, and none can
// be missed.
//
// # Finding a job again
//
// A process is named by its pid, its start time (proc_pid_stat(5)), and the boot id and pid namespace
// that both belong to. Linux gives a pid to another process later, but not with the same start time. From
// another namespace the process cannot be seen, so Open refuses to judge it (ErrNamespace).
//
// The scheduler waits for the end of each main process by a pidfd, whether the process is its child or
// that of an earlier scheduler; before Linux 5.10 it looks at /proc. Only a child's exit status is known:
// a job that an earlier scheduler started ends as FAILED, without an Exit, unless it was cancelled or its
// time was up. A bridge takes the end from the exit record in the spool.
//
// The other processes of a job are those of its session, and those with the job's marker in their
// environment, the variable CL_WORKER_JOB, which also has those that left the session. If the main
// process ended while no scheduler ran, the marker alone counts, because the session's id may have come
// back. A process that has neither survives its job, as it does under Slurm without cgroups.
package local
