// Package engine runs containers by Docker or Podman, for a machine that Slurm does not manage: an
// engine's containers are not in their caller's cgroup.
//
//	caller                         Runtime.Run
//	└─ docker run, podman run      attached to a container elsewhere
//	   ┆ container-enter           a child of the engine (package enter)
//	   ┆ └─ the command
//
// The container ends with its caller, because package enter notices the end of its standard input.
//
// The engine gives the container its caller's limits: the requested memory, and the processors that
// the caller may use. Package enter measures the command's use. The limits and the way to show GPUs
// depend on the engine's features, for which the package asks it.
package engine
