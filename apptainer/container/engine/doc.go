// Package engine runs containers by Docker or Podman, for a machine that Slurm does not manage: an
// engine's containers are not in their caller's cgroup.
//
//	caller                         Runtime.Run
//	└─ docker run, podman run      attached to a container elsewhere
//	   ┆ container-enter           a child of the engine (package enter)
//	   ┆ └─ the command
//
// The container ends with its caller: package enter sees the end of its standard input.
package engine
