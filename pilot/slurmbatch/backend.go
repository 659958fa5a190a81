package slurmbatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm is the part of Slurm that the backend uses. *sbatch.Observer implements it, with one squeue for all pilots.
type Slurm interface {
	Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error)
	Observe(ctx context.Context, notBefore time.Time) (sbatch.Snapshot, error)
	Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error
}

// Job is the request of a pilot's job. An empty field requests nothing.
type Job struct {
	Partition, Account, Constraint string
	// NodeList and Exclude list nodes, separated by commas.
	NodeList, Exclude string
	CPUs, GPUs        int64
	GPUType           string
	MemoryMB          int64
	// Time is the limit; 0 leaves it to Slurm.
	Time time.Duration
	// Dir is the working directory of the batch script.
	Dir string
}

// Backend runs pilots in Slurm jobs. The exported fields are set before the first use.
type Backend struct {
	Slurm Slurm
	Job   Job
	// User and JobName begin the names of pilots.
	User, JobName string
	// WorkDir is the absolute path of the directory for the files of pilots. Nodes see it under the same path.
	WorkDir string
	// Worker is the command line of the worker. A Scripted one gets the environment of the user's login
	// shell, because its interpreter may depend on variables that a profile sets.
	Worker Worker
	// Env has further variables for the jobs of other workers, as NAME=value. They must hold no secret.
	Env []string
	// Tokens makes a token for each pilot; nil for none. If it is set, Tidy ends the tokens of pilots that have
	// ended.
	Tokens Tokens
	// Credentials returns the arguments by which a worker logs in. It is called once for each pilot that has
	// no token of its own.
	Credentials func(ctx context.Context) ([]string, error)
	// Logger gets the reason for which pilots have no tokens; nil means no log.
	Logger *slog.Logger
	Now    func() time.Time

	jobs       []sbatch.Job         // Slurm's last answer
	answered   bool                 // Slurm has answered
	issued     map[string]time.Time // the times of the pilots' tokens, by name; nil before they are read
	whyNoToken string               // the last logged reason
}

var _ pilot.Backend = (*Backend)(nil)

func (b *Backend) prefix() string { return b.User + "-" + b.JobName + "-" }

// NewName returns the name of a new pilot and its job (slurm_batch_worker_manager.py: start_worker_job).
func (b *Backend) NewName() string { return b.prefix() + pilot.NewID() }

// IsPilot reports whether a job of this name is a pilot of this manager.
func (b *Backend) IsPilot(name string) bool {
	digits, ok := strings.CutPrefix(name, b.prefix())
	return ok && pilot.IsID(digits)
}

// jobFile returns the path of the file with the number of a pilot's job.
func (b *Backend) jobFile(name string) string { return filepath.Join(b.WorkDir, name, "job") }

// Request returns the submission of a pilot; login are the arguments by which it logs in.
func (b *Backend) Request(name string, login []string) sbatch.Request {
	j := b.Job
	r := sbatch.Request{
		Name: name, Partition: j.Partition, Account: j.Account, Constraint: j.Constraint, Exclude: j.Exclude,
		CPUs: j.CPUs, GPUs: j.GPUs, GPUType: j.GPUType, MemoryMiB: j.MemoryMB, Time: j.Time,
		Dir: j.Dir, Output: b.LogFile(name), Script: b.Worker.script(name, j, login),
		Env: b.Env, LoginEnvironment: b.Worker.Scripted,
	}
	if j.NodeList != "" {
		r.Extra = append(r.Extra, "--nodelist="+j.NodeList)
	}
	if j.Time > 0 {
		// sbatch(1): --signal; B sends it to the batch script, which is the worker itself.
		r.Extra = append(r.Extra, fmt.Sprintf("--signal=B:TERM@%d", int(warnBefore(j.Time).Seconds())))
	}
	return r
}

// startError is a failed submission.
type startError struct{ err *sbatch.Error }

// Error returns the cause.
func (e *startError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *startError) Unwrap() error { return e.err }

// Uncertain reports whether Slurm may have made a job.
func (e *startError) Uncertain() bool { return !e.err.Refused }

// Start submits a pilot's job.
func (b *Backend) Start(ctx context.Context, name string) (pilot.Pilot, error) {
	r, err := b.prepare(ctx, name)
	if err != nil {
		b.discard(ctx, name)
		return pilot.Pilot{}, fmt.Errorf("start worker: %w", err)
	}
	id, err := b.Slurm.Submit(ctx, r)
	var failed *sbatch.Error
	switch {
	case errors.As(err, &failed):
		if failed.Refused {
			b.discard(ctx, name)
		}
		return pilot.Pilot{}, &startError{failed}
	case err != nil:
		return pilot.Pilot{}, err
	}
	// Without this file the log is still found by the worker's id.
	_ = os.WriteFile(b.jobFile(name), []byte(id.String()+"\n"), 0o600)
	return pilot.Pilot{Name: name, Phase: pilot.Pending, Job: id.String(), State: string(sbatch.StatePending), Since: b.Now()}, nil
}

// prepare makes the files of a pilot, and returns its submission.
func (b *Backend) prepare(ctx context.Context, name string) (sbatch.Request, error) {
	dir := filepath.Join(b.WorkDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sbatch.Request{}, err
	}
	login, err := b.logIn(ctx, name)
	if err != nil {
		return sbatch.Request{}, err
	}
	r := b.Request(name, login)
	return r, os.WriteFile(filepath.Join(dir, name+".slurm"), []byte(r.Script), 0o600)
}

// discard removes the files of a pilot that has no job and so writes no files. It keeps them if the token cannot be
// revoked now.
func (b *Backend) discard(ctx context.Context, name string) {
	if b.Tokens != nil {
		if err := b.dropToken(ctx, name); err != nil {
			return // Tidy tries again
		}
		delete(b.issued, name)
	}
	_ = os.RemoveAll(filepath.Join(b.WorkDir, name))
}

// Pilots returns the pilots that Slurm's controller knows, by one squeue.
func (b *Backend) Pilots(ctx context.Context) ([]pilot.Pilot, error) {
	snapshot, err := b.Slurm.Observe(ctx, b.Now())
	if err != nil {
		return nil, err
	}
	var pilots []pilot.Pilot
	for _, j := range snapshot.Jobs {
		if b.IsPilot(j.Name) {
			pilots = append(pilots, pilotOf(j))
		}
	}
	b.jobs, b.answered = snapshot.Jobs, true
	return pilots, nil
}

// pilotOf returns the pilot of a job.
func pilotOf(j sbatch.Job) pilot.Pilot {
	p := pilot.Pilot{
		Name: j.Name, Phase: pilot.Active, Job: j.ID.String(), State: string(j.State), Reason: j.Reason, Node: j.Nodes,
		Since: j.Start, Cancelled: j.State == sbatch.StateCancelled,
	}
	switch j.State {
	case sbatch.StatePending, sbatch.StateConfiguring, sbatch.StateRequeued, sbatch.StateRequeueHold, sbatch.StateRequeueFed,
		sbatch.StateSpecialExit, sbatch.StateResvDelHold:
		p.Phase, p.Since = pilot.Pending, j.Submitted // its start is only expected
	default: // in the others, unknown ones too, it may run
	}
	if j.State.Ended() {
		p.Phase, p.Since = pilot.Ended, j.Submitted
	}
	return p
}

// Stop ends a pilot's job: the worker gets TERM.
func (b *Backend) Stop(ctx context.Context, p pilot.Pilot) error {
	var id sbatch.JobID
	if _, err := fmt.Sscan(p.Job, (*int64)(&id)); err != nil {
		return fmt.Errorf("end worker %s: its job is not known", p.Name)
	}
	return b.Slurm.Cancel(ctx, p.Name, id)
}
