// Package runtimes names the runtimes, which are the means of running a container. A queue's
// configuration, the records on the shared disk and package container use the same names.
package runtimes

// Name names a runtime.
type Name string

// The runtimes. Auto is not one itself: it leaves the choice to the node.
const (
	Auto        Name = "auto"
	Builtin     Name = "builtin"
	Apptainer   Name = "apptainer"
	Singularity Name = "singularity"
	Docker      Name = "docker"
	Podman      Name = "podman"
)

// All lists the names that a caller may ask for.
func All() []Name {
	return []Name{Auto, Builtin, Apptainer, Singularity, Docker, Podman}
}

// IsEngine reports whether the runtime is an engine, which has images in a store of its own and
// runs containers outside of its caller's cgroup.
func (n Name) IsEngine() bool { return n == Docker || n == Podman }
