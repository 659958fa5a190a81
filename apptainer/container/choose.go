package container

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// Finding describes one part of a host that a runtime needs.
type Finding struct {
	// Path and Version describe a program. They are empty for other parts, and Version if it was
	// not asked for.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Lack is a sentence with the reason why the part cannot be used, and the remedy for the site.
	// Empty means that no reason is known.
	Lack string `json:"lack,omitempty"`
	// Setuid is set for an Apptainer that is installed with privileges: it needs neither user
	// namespaces nor FUSE.
	Setuid bool `json:"setuid,omitempty"`
	// Engine has the features of an engine that has answered.
	Engine *Engine `json:"engine,omitempty"`
}

// Engine lists features of an engine that depend on its installation.
type Engine struct {
	// Podman is set if it is Podman, also if the program docker has found it.
	Podman bool `json:"podman,omitempty"`
	// UserNamespace is set if root in its containers is not root of the host.
	UserNamespace bool `json:"user_namespace,omitempty"`
	// Memory, Processors and Processes are set if it can limit these.
	Memory     bool `json:"memory,omitempty"`
	Processors bool `json:"processors,omitempty"`
	Processes  bool `json:"processes,omitempty"`
}

// Host lists the parts of a machine for running containers, as one user sees them in one
// environment, such as a job.
type Host struct {
	Pod         bool    `json:"pod,omitempty"` // it is a pod of Kubernetes
	Namespaces  Finding `json:"namespaces"`    // user namespaces, with mounts in them
	Fuse        Finding `json:"fuse"`          // /dev/fuse
	Overlay     Finding `json:"overlay"`       // in a user namespace, over the scratch
	Squashfuse  Finding `json:"squashfuse"`
	Bubblewrap  Finding `json:"bubblewrap"`
	Unsquashfs  Finding `json:"unsquashfs"`
	IDs         Finding `json:"ids"`       // the user's subordinate ids, for the built-in runtime
	Forwarder   Finding `json:"forwarder"` // the program that gives containers a private network
	Processes   Finding `json:"processes"` // the kernel's count of a container's processes, for MaxProcesses
	Apptainer   Finding `json:"apptainer"`
	Singularity Finding `json:"singularity"`
	Docker      Finding `json:"docker"`
	Podman      Finding `json:"podman"`
}

// Part is a part of a host with its name for people.
type Part struct {
	Name string
	Finding
}

// BuiltinParts returns the parts for the built-in runtime, except for unpacking.
func (h Host) BuiltinParts() []Part {
	return []Part{
		{"user namespaces", h.Namespaces},
		{"/dev/fuse", h.Fuse},
		{"overlay", h.Overlay},
		{"squashfuse", h.Squashfuse},
		{"bubblewrap", h.Bubblewrap},
	}
}

// Parts returns all parts.
func (h Host) Parts() []Part {
	return append(h.BuiltinParts(), Part{"subordinate ids", h.IDs}, Part{"network", h.Forwarder}, Part{"process limit", h.Processes}, Part{"unsquashfs", h.Unsquashfs}, Part{"apptainer", h.Apptainer},
		Part{"singularity", h.Singularity}, Part{"docker", h.Docker}, Part{"podman", h.Podman})
}

// Choice is the runtime for a container on a host.
type Choice struct {
	Runtime runtimes.Name `json:"way"` // an older word for runtime
	// Program is the path of Apptainer or of the engine.
	Program string `json:"program,omitempty"`
	// Plain is set if Apptainer must run without namespaces made by this program.
	Plain bool `json:"plain,omitempty"`
	// Reason is a sentence with the reason for the choice.
	Reason string `json:"reason"`
}

// Choose chooses a runtime for a caller's wish and a host. An empty wish means runtimes.Auto. A
// *HostError tells in one sentence which permission the site must give.
//
// Auto means the built-in runtime if the image can be mounted, or else Apptainer or SingularityCE,
// or else the built-in runtime with an unpacked image. It never means an engine, because a job's
// limits do not apply to an engine's containers.
func Choose(want runtimes.Name, h Host) (Choice, error) {
	want = cmp.Or(want, runtimes.Auto)
	asked := fmt.Sprintf("%s was asked for", want)
	switch want {
	case runtimes.Auto:
		return h.chooseAuto()
	case runtimes.Builtin:
		if lack := h.builtinLack(); lack != "" {
			return Choice{}, HostErrorf("%s: %s", asked, lack)
		}
		return h.chooseBuiltin(asked), nil
	case runtimes.Apptainer, runtimes.Singularity, runtimes.Docker, runtimes.Podman:
		if lack := h.programLack(want); lack != "" {
			return Choice{}, HostErrorf("%s: %s", asked, lack)
		}
		return h.chooseProgram(want, asked), nil
	case runtimes.Kubernetes: // it does not run containers on a host
	}
	return Choice{}, RequestErrorf("%q is not a runtime: there are %v", want, runtimes.All())
}

func (h Host) chooseAuto() (Choice, error) {
	builtin, unmounted := h.builtinLack(), h.mountLack()
	if builtin == "" && unmounted == "" {
		return h.chooseBuiltin("nothing else was asked for, and this node has all that it needs"), nil
	}
	because := cmp.Or(builtin, unmounted)
	for _, name := range []runtimes.Name{runtimes.Apptainer, runtimes.Singularity} {
		if h.programLack(name) == "" {
			return h.chooseProgram(name, "the built-in runtime cannot be used: "+because), nil
		}
	}
	if builtin == "" {
		return h.chooseBuiltin("no Apptainer can be used, and the image can be unpacked: " + because), nil
	}
	if h.Pod {
		return Choice{}, HostErrorf("this pod can run no container: %s; or each bundle has to get a pod of its own", because)
	}
	return Choice{}, HostErrorf("this node can run no container: %s; or an Apptainer with privileges (setuid) has to be installed", because)
}

// chooseBuiltin returns the choice of the built-in runtime.
func (h Host) chooseBuiltin(reason string) Choice {
	if h.IDs.Lack != "" {
		reason += "; " + OneID(h.IDs.Lack)
	}
	return Choice{Runtime: runtimes.Builtin, Reason: reason}
}

// OneID returns the sentence about a container that has only one user id, with the reason.
func OneID(reason string) string { return "the container has only one user id: " + reason }

// chooseProgram returns the choice of a runtime that is a program of the host.
func (h Host) chooseProgram(name runtimes.Name, reason string) Choice {
	f := h.program(name)
	return Choice{
		Runtime: name, Program: f.Path, Reason: reason,
		Plain: f.Setuid && h.apptainerLack(f) != "",
	}
}

// Without returns the host without a runtime that has failed on it for a reason that the findings
// did not show.
func (h Host) Without(name runtimes.Name, reason error) Host {
	if name == runtimes.Builtin {
		h.Bubblewrap.Lack = reason.Error() // every built-in container needs it
	} else if f := h.program(name); f != nil {
		f.Lack = reason.Error()
	}
	return h
}

// program returns the finding of a runtime's program; nil for runtimes without one.
func (h *Host) program(name runtimes.Name) *Finding {
	switch name {
	case runtimes.Apptainer:
		return &h.Apptainer
	case runtimes.Singularity:
		return &h.Singularity
	case runtimes.Docker:
		return &h.Docker
	case runtimes.Podman:
		return &h.Podman
	case runtimes.Auto, runtimes.Builtin, runtimes.Kubernetes:
	}
	return nil
}

// EngineOf returns the features of a runtime that is an engine, or nil if they are unknown.
func (h Host) EngineOf(name runtimes.Name) *Engine {
	if f := h.program(name); f != nil {
		return f.Engine
	}
	return nil
}

func (h Host) programLack(name runtimes.Name) string {
	f := h.program(name)
	if f.Lack != "" || f.Setuid || name == runtimes.Docker || name == runtimes.Podman {
		return f.Lack
	}
	return h.apptainerLack(f)
}

// apptainerLack returns the reason why an Apptainer cannot run an image here without privileges, or
// "".
func (h Host) apptainerLack(f *Finding) string {
	lack := cmp.Or(h.Namespaces.Lack, h.Fuse.Lack)
	if lack == "" && IsSingularity(f.Path) {
		lack = h.mountLack()
	}
	return lack
}

// IsSingularity reports whether a program is SingularityCE, or an old Singularity.
func IsSingularity(program string) bool {
	program, err := filepath.EvalSymlinks(program)
	return err == nil && filepath.Base(program) == "singularity"
}

func (h Host) builtinLack() string {
	lack := cmp.Or(h.Namespaces.Lack, h.Bubblewrap.Lack)
	if lack == "" && h.mountLack() != "" && h.Unsquashfs.Lack != "" {
		lack = h.mountLack()
	}
	return lack
}

func (h Host) mountLack() string {
	return cmp.Or(h.Squashfuse.Lack, h.Fuse.Lack, h.Overlay.Lack)
}
