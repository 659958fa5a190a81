package worker

import (
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
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Errors of a worker that leaves no exit record.
var (
	// ErrSpec means that the specification is unreadable or of another version. Nothing was begun.
	ErrSpec = errors.New("unusable specification")
	// ErrTaken means that another worker has begun the attempt, or a bridge has fenced it. Nothing
	// was changed.
	ErrTaken = errors.New("the attempt is taken")
	// ErrNotBegun means that the worker could not take the attempt on the shared disk in time.
	// Nothing was run.
	ErrNotBegun = errors.New("the attempt could not be begun")
	// ErrUnrecorded means that the bundle has ended, but its exit record could not be written.
	ErrUnrecorded = errors.New("the end could not be recorded")
)

// Worker runs bundles on one node. It is a value, and a caller may use it again.
type Worker struct {
	// Node is Slurm's name of this host or, outside of Slurm, the host's own.
	Node string
	// Job, SLUID, Restart, JobGPUs and VisibleDevices are SLURM_JOB_ID, SLURM_JOB_SLUID (from Slurm
	// 26.05 on), SLURM_RESTART_COUNT, SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES of the allocation. They
	// are empty outside of Slurm.
	Job, SLUID, Restart, JobGPUs, VisibleDevices string
	// ArrayTask is the job as a task of an array, such as "123_4", by which the bridge knows it; empty if it is none.
	ArrayTask string
	// Cluster is SLURM_CLUSTER_NAME of the allocation, and Version the version of this program, for the records.
	Cluster, Version string
	// Submission is the submission of this job (spool.Spec.Submission), from its batch script. Run
	// refuses the specification of another submission. Empty accepts any.
	Submission string
	// Log is for people who read the job's output.
	Log *slog.Logger

	// Containers runs the bundle's container.
	Containers container.Runtime

	// place is the part of the allocation that a member of a pack has; nil means all of it.
	place *place
	// sync flushes results to their disk. nil means fsync(2) of each copied file, and syncfs(2) if
	// the exit record could not be written.
	sync func(*os.File) error
	// dev, proc and sys are the host's; empty means /dev, /proc and /sys.
	dev, proc, sys string
	// driver is the host's driver, with nvidia-smi.
	driver gpudriver.Host
}

// Run runs the bundle of the specification at specPath to its end and returns its exit record. When
// ctx ends, it sends TERM to the command. Any end that Run could record is no error. An error wraps
// one of this package's.
func (w Worker) Run(ctx context.Context, specPath string) (spool.Exit, error) {
	r, err := w.begin(ctx, specPath)
	if err != nil {
		return spool.Exit{}, err
	}
	return r.runBundle(ctx)
}

// begin reads the specification and takes the attempt, even if ctx ends: a worker that owns the
// attempt can then record that the job got TERM.
func (w Worker) begin(ctx context.Context, specPath string) (*attemptRun, error) {
	specPath, err := filepath.Abs(specPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	attempt := spool.AttemptOf(specPath)
	spec, err := attempt.ReadSpec()
	if err == nil {
		err = w.checkSpec(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrSpec, specPath, err)
	}
	if w.place != nil {
		if err := w.place.admit(attempt, spec, time.Now()); err != nil {
			return nil, err
		}
	}
	token := spool.NewToken()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTimeout)
	defer cancel()
	started := spool.Started{Token: token, Node: w.Node, Job: w.Job, Restart: w.Restart, At: time.Now()}
	if w.ArrayTask != "" {
		started.Job = w.ArrayTask
	}
	if w.ArrayTask != "" || w.place != nil {
		started.Submission = w.Submission
	}
	standing, own, err := w.takeAttempt(ctx, attempt, started)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotBegun, err)
	case standing.Fenced:
		return nil, fmt.Errorf("%w: attempt %d of %s was fenced by its bridge", ErrTaken, spec.Attempt, spec.Bundle)
	case !own:
		return nil, fmt.Errorf("%w: attempt %d of %s was begun on %s by job %s", ErrTaken, spec.Attempt, spec.Bundle, standing.Node, standing.Job)
	}
	w.Log = w.Log.With(slog.String("bundle", spec.Bundle), slog.Int("attempt", spec.Attempt))
	given := takeSecrets(attempt, spec)
	w.Log.InfoContext(ctx, "begun", slog.String("node", w.Node), slog.String("reference", spec.PinnedReference))
	return &attemptRun{
		Worker:  w,
		spec:    spec,
		attempt: attempt,
		bell:    attempt.Layout().Bell(),
		usage:   newUsage(token),
		time:    newLimit(spec),
		secrets: given,
	}, nil
}

const (
	// beginTimeout limits the time for taking the attempt.
	beginTimeout = time.Minute
	// takePause is the time between two tries to take it.
	takePause = time.Second
)

// takeAttempt takes the attempt. It tries again while the disk is full or fails. All tries use one
// token, so an earlier try whose success was not seen counts as this worker's.
func (w Worker) takeAttempt(ctx context.Context, a spool.Attempt, s spool.Started) (standing spool.Started, own bool, err error) {
	for {
		standing, own, err = a.Begin(ctx, s)
		if err == nil || pause.For(ctx, takePause) != nil {
			return standing, own, err
		}
		w.Log.WarnContext(ctx, "cannot take the attempt", slog.Any("error", err))
	}
}

// checkSpec refuses a specification with names that would lead to other places, and one of another
// submission, which a bridge with an older copy of its ledger may have written.
func (w Worker) checkSpec(s spool.Spec) error {
	switch {
	case w.Submission != "" && s.Submission != "" && w.Submission != s.Submission:
		return fmt.Errorf("it is for submission %s, and this job is of submission %s", s.Submission, w.Submission)
	case s.Bundle == "" || s.Bundle == "." || s.Bundle == ".." || strings.ContainsAny(s.Bundle, "/\x00"):
		return fmt.Errorf("%q is not a bundle", s.Bundle)
	case !filepath.IsAbs(s.RunDir):
		return fmt.Errorf("the run directory %q is not an absolute path", s.RunDir)
	case s.Runtime.IsEngine() && s.SIF == "" && s.PinnedReference == "":
		return errors.New("no image")
	case !filepath.IsAbs(s.SIF) && (s.SIF != "" || !s.Runtime.IsEngine()):
		return fmt.Errorf("the SIF %q is not an absolute path", s.SIF)
	case s.Command == "":
		return errors.New("no command")
	case w.place != nil && w.place.unknown == nil && s.GPUs > w.place.gpus:
		return fmt.Errorf("it asks for %s, and a place of this pack has %d", countGPUs(s.GPUs), w.place.gpus)
	}
	return nil
}
