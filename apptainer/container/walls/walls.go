// Package walls lists the walls that keep a command inside its container, with the parts of the kernel that
// each runtime makes them of, and with the reasons why a wall is weaker with a runtime. docs/security.md is
// written from this list. Tests of package container attack each wall with each runtime, and compare.
//
// The package also lists the promises inside of the container, which the fidelity suite of package container tests
// with each runtime. docs/containers.md has that table.
package walls

import (
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// Way is a way to run a container: a runtime, with the privileges that the site gave it.
type Way string

// The ways. Apptainer and SingularityCE are alike here.
const (
	Builtin   Way = "builtin"
	Apptainer Way = "apptainer"
	Setuid    Way = "apptainer, setuid" // without namespaces made by this program
	Docker    Way = "docker"
	Podman    Way = "podman" // without root
	// Kubernetes is a pod. Its node's container runtime and kubelet are the site's, without user namespaces.
	Kubernetes Way = "kubernetes"
)

// Ways lists all ways, in the order of the table.
func Ways() []Way { return []Way{Builtin, Apptainer, Setuid, Docker, Podman, Kubernetes} }

// Of returns the way of a choice.
func Of(choice container.Choice) Way {
	switch choice.Runtime {
	case runtimes.Apptainer, runtimes.Singularity:
		if choice.Plain {
			return Setuid
		}
		return Apptainer
	case runtimes.Docker:
		return Docker
	case runtimes.Podman:
		return Podman
	case runtimes.Kubernetes:
		return Kubernetes
	case runtimes.Builtin, runtimes.Auto:
	}
	return Builtin
}

// Wall is one wall.
type Wall struct {
	// Name is a noun for the things behind the wall. Keeps completes the sentence "The command cannot …".
	Name, Keeps string
	// Made names the parts that the wall is made of. Others has the ways for which it is made of other
	// parts.
	Made   string
	Others map[Way]string
	// Weaker has the ways with which the command can reach some of the things.
	Weaker map[Way]Weakness
	// Tests names the tests that attack the wall. If it is empty, TestWallsHold does.
	Tests []string
}

// MadeOf returns what the wall is made of with a way.
func (w Wall) MadeOf(way Way) string {
	if made, ok := w.Others[way]; ok {
		return made
	}
	return w.Made
}

// Weakness is the reason why a wall is weaker.
type Weakness struct {
	// Clause completes the sentence "The command …".
	Clause string
	// If tells the condition, if the weakness has one, and Absent reports whether a host is without it.
	If     string
	Absent func(container.Host) bool
}

// WeakerOn returns the clause of the wall's weakness with a way on a host, or "" if it is as strong as elsewhere. A
// weakness that depends on an engine's unknown features counts.
func (w Wall) WeakerOn(h container.Host, way Way) string {
	if weakness := w.Weaker[way]; weakness.Absent == nil || !weakness.Absent(h) {
		return weakness.Clause
	}
	return ""
}

// Weaker lists the weaknesses of the chosen way of a host.
// Each clause completes the sentence "The command …".
func Weaker(choice container.Choice, h container.Host) (clauses []string) {
	for _, w := range All() {
		if clause := w.WeakerOn(h, Of(choice)); clause != "" {
			clauses = append(clauses, clause)
		}
	}
	return clauses
}
