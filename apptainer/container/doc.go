// Package container describes containers, and the promises of every runtime. No runtime needs its
// caller to be root.
//
//	container                 Container, Exit, Runtime; Choose, which picks a runtime for a Host
//	container/builtin         squashfuse, an overlay and bubblewrap
//	container/apptainerexec   a site's own Apptainer or SingularityCE
//	container/engine          Docker or Podman
//	container/runner          chooses one of these for a host, and runs the container
//
// The runtimes share these packages below internal:
//
//	initproc   the init of a container: finds the node's programs for it, mounts its root, and
//	           ends all its processes
//	enter      the first process in a container that another program sets up
//	keyring    keeps the kernel's keys from the command
//	connect    reaches a port of a running container
//	privatenet gives a container a network of its own
//
// A container's init and its first process are the calling program, started again with a hidden
// first argument. So every program that runs containers must begin with runner.Main.
//
// docs/containers.md lists the differences between the runtimes. The fidelity suite, in this
// package's tests, runs over all of them.
package container
