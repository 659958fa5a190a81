// Package container says what a container is, and what every runtime promises about it. No runtime
// needs a privilege.
//
//	container                 Container, Exit, Runtime; Choose, which picks a runtime for a Host
//	container/builtin         squashfuse, an overlay and bubblewrap
//	container/apptainerexec   a site's own Apptainer or SingularityCE
//	container/engine          Docker or Podman
//	container/runner          chooses one of these for a host, and runs it
//
// The runtimes share, below internal:
//
//	host       what this host has
//	initproc   the init of a container: how it starts, and how everything ends with it
//	rootfs     the root that an init mounts: image, overlay, binds
//	enter      the first process inside, where another program sets the container up
//
// An init, and the first process inside, are this program itself with a hidden first argument, so
// every program that runs containers begins with runner.Main.
//
// docs/containers.md lists the differences between the runtimes. The fidelity suite, in this package's
// tests, runs over all of them.
package container
