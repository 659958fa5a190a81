// Package enter is the first process in a container that Apptainer or an engine sets up. It makes
// such a container like all others: the environment is exactly the requested one; TERM reaches
// every process; a program that cannot be run ends with 126 or 127; and the container ends with its
// caller.
//
// The caller shows this program in the container ([Binds]) and makes it the container's command:
//
//	caller                       enter (pid 1 of the container)
//	standard input: Spec ──────► starts the command
//	standard input: {} ────────► TERM to all processes, KILL after the grace
//	standard input: end ───────► the caller is gone: the container ends
//	◄──── report file: Began     the command begins, or Error has the reason why it did not
//	◄──── report file: Code      the command has ended, with its usage
//
// A caller in another pod of Kubernetes has no pipe to this process. It gives its order in files of a shared disk
// (OrderFiles), and rewrites one of them again and again; TERM comes from the kubelet.
//
// Neither the command nor its environment is on a command line, where other users could read them.
package enter
