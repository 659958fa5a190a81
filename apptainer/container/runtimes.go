package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
)

// Choice is the way by which a container is run on a host.
type Choice struct {
	Runtime runtimes.Name `json:"way"`
	// Program is the path of Apptainer or of the engine.
	Program string `json:"program,omitempty"`
	// Plain is set where Apptainer has to do without namespaces of ours.
	Plain bool `json:"plain,omitempty"`
	// Reason is a sentence that says why it is this way.
	Reason string `json:"reason"`
}

// Choose chooses the way for what is wanted, where empty means runtimes.Auto, by what
// a host has. A *HostError says in one sentence what the site must allow.
//
// runtimes.Auto is the built-in way where the image can be mounted, else Apptainer
// or SingularityCE, else the built-in way with an unpacked image. It is never
// an engine: an engine's containers are out of reach of a job's limits.
func Choose(want runtimes.Name, h Host) (Choice, error) {
	want = cmp.Or(want, runtimes.Auto)
	asked := fmt.Sprintf("%s was asked for", want)
	switch want {
	case runtimes.Auto:
		return h.choose()
	case runtimes.Builtin:
		if lack := h.builtinLack(); lack != "" {
			return Choice{}, lacking("%s: %s", asked, lack)
		}
		return Choice{Runtime: runtimes.Builtin, Reason: asked}, nil
	case runtimes.Apptainer, runtimes.Singularity, runtimes.Docker, runtimes.Podman:
		if lack := h.programLack(want); lack != "" {
			return Choice{}, lacking("%s: %s", asked, lack)
		}
		return h.by(want, asked), nil
	}
	return Choice{}, fmt.Errorf("%q is no way to run a container: there are %v", want, runtimes.All())
}

// choose chooses where nothing was asked for.
func (h Host) choose() (Choice, error) {
	builtin, unmounted := h.builtinLack(), h.mountLack()
	if builtin == "" && unmounted == "" {
		return Choice{Runtime: runtimes.Builtin, Reason: "nothing else was asked for, and this node has all that it needs"}, nil
	}
	because := cmp.Or(builtin, unmounted)
	for _, way := range []runtimes.Name{runtimes.Apptainer, runtimes.Singularity} {
		if h.programLack(way) == "" {
			return h.by(way, "the built-in way is not to be had: "+because), nil
		}
	}
	if builtin == "" {
		return Choice{Runtime: runtimes.Builtin, Reason: "no Apptainer can be used, and the image can be unpacked: " + because}, nil
	}
	return Choice{}, lacking("this node can run no container: %s; or an Apptainer with privileges (setuid) has to be installed", because)
}

// by is the choice of a program of the host's.
func (h Host) by(way runtimes.Name, reason string) Choice {
	f := h.program(way)
	return Choice{
		Runtime: way, Program: f.Path, Reason: reason,
		Plain: f.Setuid && h.apptainerLack(f) != "",
	}
}

// programLack says why the program of a way cannot run an image here.
func (h Host) programLack(way runtimes.Name) string {
	f := h.program(way)
	if f.Lack != "" || f.Setuid || way == runtimes.Docker || way == runtimes.Podman {
		return f.Lack
	}
	return h.apptainerLack(f)
}

// apptainerLack says why a program cannot run an image here without privileges.
func (h Host) apptainerLack(f Finding) string {
	lack := cmp.Or(h.Namespaces.Lack, h.Fuse.Lack)
	if lack == "" && (Apptainer{Program: f.Path}).isSingularity() {
		lack = h.mountLack()
	}
	return lack
}

// program is what was found of a way's program.
func (h Host) program(way runtimes.Name) Finding {
	switch way {
	case runtimes.Apptainer:
		return h.Apptainer
	case runtimes.Singularity:
		return h.Singularity
	case runtimes.Docker:
		return h.Docker
	case runtimes.Podman:
		return h.Podman
	case runtimes.Auto, runtimes.Builtin:
	}
	return Finding{}
}

// builtinLack says why the built-in way cannot run here.
func (h Host) builtinLack() string {
	lack := cmp.Or(h.Namespaces.Lack, h.Bubblewrap.Lack)
	if lack == "" && h.mountLack() != "" && h.Unsquashfs.Lack != "" {
		lack = h.mountLack()
	}
	return lack
}

// mountLack says why the built-in way cannot mount an image here.
func (h Host) mountLack() string {
	return cmp.Or(h.Squashfuse.Lack, h.Fuse.Lack, h.Overlay.Lack)
}

// Runtimes runs containers by the way that each asks for, or that its host has. Its
// zero value is usable where no engine is asked for.
type Runtimes struct {
	// Env is the whole environment of the programs docker and podman: see
	// Engine.
	Env []string
	// Init and Enter are those of the ways.
	Init  []string
	Enter string
	// Images, when not nil, has containers of the built-in way that run in the
	// same image share its mount.
	Images *Images
}

// Run runs a container by the way that c.Runtime asks for, and tells c.OnChoice
// first. What is cheap to see decides; the host is tried in full only when a
// way has failed before its command began and another may be taken.
func (w Runtimes) Run(ctx context.Context, c Container) (Exit, error) {
	host := Look()
	choice, err := Choose(c.Runtime, host)
	if err != nil {
		return Exit{}, err
	}
	exit, err := w.by(ctx, choice, c)
	var refused *HostError
	if !errors.As(err, &refused) || ctx.Err() != nil {
		return exit, err
	}
	again, ok := w.after(ctx, c, host, choice, refused)
	if !ok {
		return exit, err
	}
	return w.by(ctx, again, c)
}

// after is the choice after a way was refused by its host; none where there is
// no other.
func (w Runtimes) after(ctx context.Context, c Container, host Host, refused Choice, why *HostError) (Choice, bool) {
	probed, err := w.Probe(ctx, c.Scratch)
	if err == nil {
		host = probed
	}
	if refused.Runtime == runtimes.Builtin {
		host.refuse(runtimes.Builtin, why)
	}
	again, err := Choose(c.Runtime, host)
	if err == nil && again.Runtime == refused.Runtime && again.Plain == refused.Plain {
		host.refuse(refused.Runtime, why)
		again, err = Choose(c.Runtime, host)
	}
	return again, err == nil
}

// refuse has a way not be chosen.
func (h *Host) refuse(way runtimes.Name, why error) {
	switch way {
	case runtimes.Builtin:
		h.Bubblewrap.Lack = why.Error() // or whatever it was
	case runtimes.Apptainer:
		h.Apptainer.Lack = why.Error()
	case runtimes.Singularity:
		h.Singularity.Lack = why.Error()
	case runtimes.Docker:
		h.Docker.Lack = why.Error()
	case runtimes.Podman:
		h.Podman.Lack = why.Error()
	case runtimes.Auto:
	}
}

// by runs a container by a way.
func (w Runtimes) by(ctx context.Context, choice Choice, c Container) (Exit, error) {
	if c.OnChoice != nil {
		c.OnChoice(choice)
	}
	switch choice.Runtime {
	case runtimes.Apptainer, runtimes.Singularity:
		return Apptainer{Program: choice.Program, Plain: choice.Plain, Init: w.Init, Enter: w.Enter}.Run(ctx, c)
	case runtimes.Docker, runtimes.Podman:
		return Engine{Program: filepath.Clean(choice.Program), Env: w.Env, Enter: w.Enter}.Run(ctx, c)
	case runtimes.Builtin, runtimes.Auto:
	}
	return Builtin{Init: w.Init, Images: w.Images}.Run(ctx, c)
}
