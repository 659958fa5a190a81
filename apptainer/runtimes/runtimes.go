// Package runtimes names the runtimes of containers. A queue's configuration, the records on the
// shared disk and package container use the same names.
package runtimes

// Name names a runtime.
type Name string

// The runtimes. Auto is not a runtime: it leaves the choice to the node.
const (
	Auto        Name = "auto"
	Builtin     Name = "builtin"
	Apptainer   Name = "apptainer"
	Singularity Name = "singularity"
	Docker      Name = "docker"
	Podman      Name = "podman"
	// Kubernetes runs each container as a pod. Only a stand-alone worker requests it.
	Kubernetes Name = "kubernetes"
)

// All lists the names that a queue may request.
func All() []Name {
	return []Name{Auto, Builtin, Apptainer, Singularity, Docker, Podman}
}

// IsEngine reports whether the runtime is an engine, which has its own store of images and runs
// containers outside of its caller's cgroup.
func (n Name) IsEngine() bool { return n == Docker || n == Podman || n == Kubernetes }
