// Package engine runs containers by Docker or Podman, for a machine that Slurm does not manage: an
// engine's containers are not in their caller's cgroup.
//
//	caller                         Runtime.Run
//	└─ docker run, podman run      attached to a container elsewhere
//	   ┆ container-enter           a child of the engine (package enter)
//	   ┆ └─ the command
//
// The container ends with its caller: package enter sees the end of its standard input.
//
// The engine gives the container its caller's limits: the memory that is asked for, and the processors
// that the caller may use. Package enter counts what the command has used. Both the limits and the means
// to show GPUs depend on what the engine says of itself.
package engine
