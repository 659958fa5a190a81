package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/spool"
)

// How a worker fails that leaves no exit record.
var (
	// ErrSpec means that the specification cannot be read, or is not one of
	// this version. Nothing was begun.
	ErrSpec = errors.New("unusable specification")
	// ErrTaken means that the attempt is another worker's, or closed. Nothing
	// was touched.
	ErrTaken = errors.New("the attempt is taken")
	// ErrNotBegun means that the shared disk did not let the attempt be taken
	// in time. Nothing was run.
	ErrNotBegun = errors.New("the attempt could not be begun")
	// ErrUnrecorded means that the bundle has ended and the record of how
	// could not be written.
	ErrUnrecorded = errors.New("the end could not be recorded")
)

// Containers is a way to run a container; those of package container are.
type Containers interface {
	Run(ctx context.Context, c container.Container) (container.Exit, error)
}

// Worker runs bundles on one node. It is a value and may be used again.
type Worker struct {
	// Node is the host's name.
	Node string
	// Job and Restart are SLURM_JOB_ID and SLURM_RESTART_COUNT, GPUs is
	// SLURM_JOB_GPUS, and GPUNames is CUDA_VISIBLE_DEVICES: what Slurm says of
	// the allocation. Empty outside of Slurm.
	Job, Restart, GPUs, GPUNames string
	// BeginWait bounds how long taking the attempt may last, RecordWait how
	// long writing the exit record; zero means one minute and two.
	BeginWait, RecordWait time.Duration
	// Grace is how long the command has between TERM and KILL; zero means two
	// seconds. It has to be shorter than the site's KillWait.
	Grace time.Duration
	// CopyGrace is how long a local working directory is copied after TERM; zero
	// means ten seconds. With Grace it has to be shorter than the site's
	// KillWait.
	CopyGrace time.Duration
	// Log is for people who look into the job's output.
	Log *slog.Logger

	// Containers runs the bundle's container.
	Containers Containers

	// sync flushes a result that was copied home; nil means fsync(2).
	sync func(*os.File) error
	// dev, proc and sys are the host's; empty means /dev, /proc and /sys.
	dev, proc, sys string
	// driver is where nvidia-smi is looked for.
	driver gpudriver.Host
}

// Run runs the bundle of the specification at specPath to its end and returns
// the record of it. The end of ctx is passed on to the command as TERM, and is
// not an error; nor is any end that could be recorded. An error wraps one of
// this package's.
func (w Worker) Run(ctx context.Context, specPath string) (spool.Exit, error) {
	r, err := w.begin(ctx, specPath)
	if err != nil {
		return spool.Exit{}, err
	}
	return r.run(ctx)
}

// begin reads the specification and takes the attempt. The end of ctx does not
// cut that short: once it is known whose the attempt is, an owner can say that
// it was told to stop.
func (w Worker) begin(ctx context.Context, specPath string) (*run, error) {
	specPath, err := filepath.Abs(specPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	attempt := spool.AttemptOf(specPath)
	spec, err := attempt.ReadSpec()
	if err == nil {
		err = checkSpec(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrSpec, specPath, err)
	}
	token := spool.NewToken()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(w.BeginWait, time.Minute))
	defer cancel()
	standing, own, err := w.take(ctx, attempt, spool.Started{
		Token: token, Node: w.Node, Job: w.Job, Restart: w.Restart, At: time.Now(), //nolint:forbidigo // a record's date, for people
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotBegun, err)
	case standing.Fenced:
		return nil, fmt.Errorf("%w: attempt %d of %s was closed by its bridge", ErrTaken, spec.Attempt, spec.Bundle)
	case !own:
		return nil, fmt.Errorf("%w: attempt %d of %s was begun on %s by job %s", ErrTaken, spec.Attempt, spec.Bundle, standing.Node, standing.Job)
	}
	w.Log = w.Log.With(slog.String("bundle", spec.Bundle), slog.Int("attempt", spec.Attempt))
	w.Log.InfoContext(ctx, "begun", slog.String("node", w.Node), slog.String("image", spec.ImageDigest))
	return &run{
		Worker:  w,
		spec:    spec,
		attempt: attempt,
		bell:    attempt.Layout().Bell(),
		account: newAccount(token),
	}, nil
}

// takePause is the time between two tries of taking the attempt.
const takePause = time.Second

// take takes the attempt, again while the disk is full or answers with errors:
// of however many tries with one token, one that succeeded is the owner's.
func (w Worker) take(ctx context.Context, a spool.Attempt, s spool.Started) (standing spool.Started, own bool, err error) {
	for {
		standing, own, err = a.Begin(ctx, s)
		if err == nil || !pause(ctx, takePause) {
			return standing, own, err
		}
		w.Log.WarnContext(ctx, "take the attempt", slog.Any("error", err))
	}
}

// pause says whether a time has passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// checkSpec refuses what would lead out of the places that are meant.
func checkSpec(s spool.Spec) error {
	switch {
	case s.Bundle == "" || s.Bundle == "." || s.Bundle == ".." || strings.ContainsAny(s.Bundle, "/\x00"):
		return fmt.Errorf("%q is no bundle", s.Bundle)
	case !filepath.IsAbs(s.RunDir):
		return fmt.Errorf("the run directory %q is not an absolute path", s.RunDir)
	case !filepath.IsAbs(s.Image):
		return fmt.Errorf("the image %q is not an absolute path", s.Image)
	case s.Command == "":
		return errors.New("no command")
	}
	return nil
}
