// Package runner runs containers by the runtime that a container requests, or that the host allows.
// It also tests the host.
package runner

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/apptainerexec"
	"github.com/cl-slurm/cl-slurm/apptainer/container/builtin"
	"github.com/cl-slurm/cl-slurm/apptainer/container/engine"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/connect"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/enter"
	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/initproc"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/subids"
)

// Main runs a program's hidden parts. With one of four first arguments, the program is the init of
// a container, the first process in one, a process that becomes the command of one, or a process that
// connects to a port in one. ran reports whether it was one of these, and code is then the exit status for the program. A program that
// runs containers, or is a runtime's Helper, must call Main before anything else.
func Main(args []string) (code int, ran bool) {
	if code, ran := subids.Main(args); ran || len(args) < 2 {
		return code, ran
	}
	switch args[1] {
	case initproc.Command:
		works := map[string]initproc.Work{trialWork: tryOverlay, networkWork: enterNetwork}
		maps.Copy(works, builtin.Works())
		maps.Copy(works, apptainerexec.Works())
		return initproc.Main(works), true
	case enter.Command:
		return enter.Main(args[2:]), true
	case builtin.ExecCommand:
		return builtin.ExecMain(), true
	case connect.Command:
		return connect.Main(args[2:]), true
	}
	return 0, false
}

// Runner is a runtime that chooses among the others by Container.Runtime and the host. Its zero
// value is usable if no container requests an engine.
type Runner struct {
	// Env is the whole environment of the programs docker and podman; see engine.Runtime.
	Env []string
	// Helper is the Helper of every runtime.
	Helper string

	kept *kept // nil unless this is the Runner of a Place
}

// kept is what a Place keeps.
type kept struct {
	init *initproc.Kept
	// choices are those that the host has not refused, by the wish.
	choices map[runtimes.Name]container.Choice
}

// Place is a Runner for containers that one thread runs one after another. It keeps what the next one of the same image needs
// again, in Container.KeptDir.
type Place struct {
	Runner
}

// Images has images mounted for several Places, each image once while one of them uses it. Its zero value is usable.
type Images struct {
	mounted initproc.Images
}

// NewPlace returns a Place with images, which several may share. The caller closes it after the last container, in the thread that has
// run them.
func NewPlace(r Runner, images *Images) Place {
	r.kept = &kept{&initproc.Kept{Images: &images.mounted}, map[runtimes.Name]container.Choice{}}
	return Place{r}
}

// Close ends what is kept.
func (p Place) Close() { p.kept.init.Close() }

var _ container.Runtime = Runner{}

// Run runs a container, and calls c.OnChoice first. It chooses the runtime by Look, so that the
// container starts without delay. If the host then refuses the runtime before the command begins,
// Run probes the host and tries another runtime.
func (r Runner) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	choice, err := r.choose(c.Runtime)
	if err != nil {
		return container.Exit{}, err
	}
	exit, err := r.runBy(ctx, choice, c)
	var refusal *container.HostError
	if !errors.As(err, &refusal) || refusal.AnyRuntime || ctx.Err() != nil {
		return exit, err
	}
	if r.kept != nil {
		delete(r.kept.choices, c.Runtime)
	}
	other, ok := r.chooseAgain(ctx, c, choice, refusal)
	if !ok {
		return exit, err
	}
	return r.runBy(ctx, other, c)
}

// choose chooses a runtime by Look. A Place looks once for all its containers, until the host refuses the runtime.
func (r Runner) choose(want runtimes.Name) (container.Choice, error) {
	if r.kept == nil {
		return choose(want)
	}
	choice, ok := r.kept.choices[want]
	if ok {
		return choice, nil
	}
	choice, err := choose(want)
	if err == nil {
		r.kept.choices[want] = choice
	}
	return choice, err
}

// chooseAgain chooses after the host has refused a runtime. It returns false if there is no other.
func (r Runner) chooseAgain(ctx context.Context, c container.Container, refused container.Choice, reason error) (container.Choice, bool) {
	host, err := r.Probe(ctx, c.PrivateDir, c.Runtime)
	if err != nil {
		host = Look()
	}
	if refused.Runtime == runtimes.Builtin {
		host = host.Without(runtimes.Builtin, reason)
	}
	choice, err := container.Choose(c.Runtime, host)
	if err == nil && choice.Runtime == refused.Runtime && choice.Plain == refused.Plain {
		choice, err = container.Choose(c.Runtime, host.Without(refused.Runtime, reason))
	}
	return choice, err == nil
}

func (r Runner) runBy(ctx context.Context, choice container.Choice, c container.Container) (container.Exit, error) {
	if c.OnChoice != nil {
		c.OnChoice(choice)
	}
	own := builtin.Runtime{Helper: r.Helper}
	if r.kept != nil {
		own.Kept = r.kept.init
	}
	var chosen container.Runtime = own
	switch choice.Runtime {
	case runtimes.Apptainer, runtimes.Singularity:
		chosen = apptainerexec.Runtime{Program: choice.Program, Plain: choice.Plain, Helper: r.Helper}
	case runtimes.Docker, runtimes.Podman:
		chosen = engine.Runtime{Program: filepath.Clean(choice.Program), Env: r.Env, Helper: r.Helper}
	case runtimes.Builtin, runtimes.Auto, runtimes.Kubernetes: // Choose does not choose the last one
	}
	return chosen.Run(ctx, c)
}
