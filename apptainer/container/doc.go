// Package container says what a container is, and what every runtime promises about it. No runtime
// needs its caller to be root.
//
//	container                 Container, Exit, Runtime; Choose, which picks a runtime for a Host
//	container/builtin         squashfuse, an overlay and bubblewrap
//	container/apptainerexec   a site's own Apptainer or SingularityCE
//	container/engine          Docker or Podman
//	container/runner          chooses one of these for a host, and runs it
//
// The runtimes share, below internal:
//
//	initproc   the init of a container: what the node has for it, the root that it mounts, and
//	           how its end ends all processes
//	enter      the first process inside, where another program sets the container up
//	keyring    keeps the kernel's keys from the command
//
// A container's init and its first process are the calling program, started again with a hidden
// first argument. So every program that runs containers begins with runner.Main.
//
// docs/containers.md lists the differences between the runtimes. The fidelity suite, in this package's
// tests, runs over all of them.
package container
