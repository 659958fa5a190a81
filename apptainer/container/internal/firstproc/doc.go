// Package firstproc starts the first process of a container by system calls alone. A helper program such as bubblewrap takes longer
// to start than a small command runs.
//
// The first process is a copy (fork) of the calling one, which is a Go program with several threads. Only the thread that forks is in
// the copy, so no code of Go's runtime may run there. A [Setup] therefore holds all system calls of the copy, prepared:
//
//	the caller                     adds the calls to a Setup, and forks
//	└─ the first process           does the calls in their order; they set the container up
//	   └─ the command              starts with the signals of a new program
//
// The first process then waits for its children. When the command has ended, it kills the others, unless its caller has told it to
// leave them (Tell), waits until none is left, reports, and exits with the command's status as a shell tells it. The kernel kills all
// processes of the container if the first one ends in any other way.
//
// The copy has the caller's memory, which may hold secrets of other containers. A Setup makes it impossible for the container's
// processes to look into it, before the first of them starts (PR_SET_DUMPABLE: ptrace(2), proc_pid_mem(5)).
package firstproc
