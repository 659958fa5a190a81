package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

const bundle = "0x0123456789abcdef0123456789abcdef"

// site is a shared directory with one attempt in it.
type site struct {
	layout  spool.Layout
	attempt spool.Attempt
	spec    spool.Spec
}

// newSite writes a specification: a plain one, changed by change.
func newSite(t *testing.T, dir string, change func(*spool.Spec)) site {
	t.Helper()
	s := site{layout: spool.Layout(dir)}
	for _, d := range s.layout.Directories() {
		must(t, os.MkdirAll(d, 0o700))
	}
	scratch := filepath.Join(dir, "scratch")
	must(t, os.Mkdir(scratch, 0o700))
	s.attempt = s.layout.Attempt(bundle, "1-b1")
	s.spec = spool.Spec{
		Bundle: bundle, Attempt: 1, Command: "true", Inputs: spool.Inputs{SIF: "/image.sif"},
		RunDir: s.layout.RunDir(bundle, "1-b1"), Scratch: scratch,
	}
	if change != nil {
		change(&s.spec)
	}
	must(t, s.attempt.WriteSpec(s.spec))
	return s
}

// onSite runs a test on a new site, with a worker whose runtime is this function. The clock is
// synctest's.
func onSite(t *testing.T, run runner, change func(*spool.Spec), test func(t *testing.T, s site, w Worker)) {
	t.Helper()
	dir, w := t.TempDir(), newWorker(t, run)
	synctest.Test(t, func(t *testing.T) {
		test(t, newSite(t, dir, change), w)
	})
}

// exit returns the exit record of the attempt.
func (s site) exit(t *testing.T) spool.Exit {
	t.Helper()
	e, err := s.attempt.ReadExit()
	must(t, err)
	return e
}

// run makes a worker run the attempt, and returns its exit record.
func (s site) run(t *testing.T, w Worker) spool.Exit {
	t.Helper()
	_, err := w.Run(t.Context(), s.attempt.SpecPath())
	must(t, err)
	return s.exit(t)
}

// write puts a file into the working directory.
func (s site) write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(s.spec.RunDir, name), []byte(content), 0o600))
}

// runner is a container runtime that is a function.
type runner func(context.Context, container.Container) (container.Exit, error)

func (r runner) Run(ctx context.Context, c container.Container) (container.Exit, error) {
	return r(ctx, c)
}

// newWorker returns a worker with a function as its runtime. Its host has no cgroups, no GPUs, and
// only the processes that a test writes.
func newWorker(t *testing.T, run runner) Worker {
	t.Helper()
	host := t.TempDir()
	w := Worker{
		Node: "n1", Job: "7", Log: slog.New(slog.DiscardHandler),
		Containers: run, dev: filepath.Join(host, "dev"), proc: filepath.Join(host, "proc"), sys: filepath.Join(host, "sys"),
	}
	must(t, os.Mkdir(w.dev, 0o700))
	must(t, os.Mkdir(w.proc, 0o700))
	return w
}

// succeeds runs a container whose command ends immediately.
func succeeds(_ context.Context, c container.Container) (container.Exit, error) {
	c.OnStart(container.Running{PID: 1})
	return container.Exit{}, nil
}

// obeys runs a container whose command runs until TERM ends it.
func obeys(ctx context.Context, c container.Container) (container.Exit, error) {
	c.OnStart(container.Running{PID: 1})
	<-ctx.Done()
	return container.Exit{Code: 143, Signal: 15}, nil
}

var must = testenv.Must
