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
	// Login returns the arguments by which a worker logs in that has no token.
	Login func() ([]string, error)
	// Logger gets the reason for which pilots have no tokens; nil means no log.
	Logger *slog.Logger
	Now    func() time.Time

	program sbatch.Program // the worker's, as it was at the last submission, if it is checked

	shown  map[string]pilot.Phase // the last answer, by name; nil before the first
	issued map[string]time.Time   // the times of the pilots' token files, by name; nil before they are read
	said   string                 // the last logged reason for which pilots have no tokens
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

// Request returns the submission of a pilot; login are the arguments by which it logs in. Its script does not check the
// program.
func (b *Backend) Request(name string, login []string) sbatch.Request {
	return b.request(name, login, sbatch.Program{Path: b.Worker.Executable})
}

func (b *Backend) request(name string, login []string, program sbatch.Program) sbatch.Request {
	j := b.Job
	r := sbatch.Request{
		Name: name, Partition: j.Partition, Account: j.Account, Constraint: j.Constraint, Exclude: j.Exclude,
		CPUs: j.CPUs, GPUs: j.GPUs, GPUType: j.GPUType, MemoryMiB: j.MemoryMB, Time: j.Time,
		Dir: j.Dir, Output: b.LogFile(name), Script: b.Worker.script(name, j, login, program),
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

// Error returns the cause, and explains the limit that Slurm names.
func (e *startError) Error() string {
	if why, ok := sbatch.RefusedLimit(e.err.Message); ok {
		return e.err.Error() + ": " + ofManager(why.Text)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *startError) Unwrap() error { return e.err }

// Uncertain reports whether Slurm may have made a job.
func (e *startError) Uncertain() bool { return !e.err.Refused }

// Start submits a pilot's job. The token is in a file of the work directory. A worker without a token has the arguments
// of Login.
func (b *Backend) Start(ctx context.Context, name, token string) (pilot.Pilot, error) {
	r, err := b.prepare(ctx, name, token)
	if err != nil {
		b.discard(name)
		return pilot.Pilot{}, fmt.Errorf("start worker: %w", err)
	}
	id, err := b.Slurm.Submit(ctx, r)
	var failed *sbatch.Error
	switch {
	case errors.As(err, &failed):
		if failed.Refused {
			b.discard(name)
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
func (b *Backend) prepare(ctx context.Context, name, token string) (sbatch.Request, error) {
	dir := filepath.Join(b.WorkDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sbatch.Request{}, err
	}
	login, err := b.logIn(ctx, name, token)
	if err != nil {
		return sbatch.Request{}, err
	}
	program := sbatch.Program{Path: b.Worker.Executable}
	if b.Worker.Checked {
		if program, err = sbatch.Identify(program.Path, b.program); err != nil {
			return sbatch.Request{}, err
		}
		b.program = program
	}
	r := b.request(name, login, program)
	return r, os.WriteFile(filepath.Join(dir, name+".slurm"), []byte(r.Script), 0o600)
}

// discard removes the files of a pilot that has no job and so writes no files.
func (b *Backend) discard(name string) {
	delete(b.issued, name)
	_ = os.RemoveAll(filepath.Join(b.WorkDir, name))
}

// Refresh is short: a squeue of one user is cheap for Slurm's controller.
func (b *Backend) Refresh() time.Duration { return 5 * time.Second }

// Pilots returns the pilots that Slurm's controller knows, by one squeue. It also returns the ended ones that still have a
// token file: Slurm forgets a job some minutes after its end.
func (b *Backend) Pilots(ctx context.Context) ([]pilot.Pilot, error) {
	snapshot, err := b.Slurm.Observe(ctx, b.Now())
	if err != nil {
		return nil, err
	}
	if err := b.findTokens(); err != nil {
		return nil, err
	}
	var pilots []pilot.Pilot
	shown := map[string]pilot.Phase{}
	for _, j := range snapshot.Jobs {
		if b.IsPilot(j.Name) {
			p := pilotOf(j)
			pilots = append(pilots, p)
			if p.Phase != pilot.Ended || shown[p.Name] == "" {
				shown[p.Name] = p.Phase
			}
		}
	}
	for name, issued := range b.issued {
		if shown[name] == "" && b.Now().Sub(issued) > settling {
			pilots = append(pilots, pilot.Pilot{Name: name, Phase: pilot.Ended, Reason: "Slurm no longer lists its job"})
			shown[name] = pilot.Ended
		}
	}
	b.shown = shown
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
		explain(&p)
	default: // in the others, unknown ones too, it may run
	}
	if j.State.Ended() {
		p.Phase, p.Since = pilot.Ended, j.Submitted
	}
	return p
}

// stuckPatience is the time after which a job that can never start, or that is held, ends: an administrator may be at work on
// its partition, or release it.
const stuckPatience = 10 * time.Minute

// explain adds the meaning of Slurm's reason to a pending pilot. A job of which Slurm says that it can never start, or that
// somebody has to release it, is in trouble.
func explain(p *pilot.Pilot) {
	why := sbatch.Explain(p.Reason)
	if why.Text == "" {
		return
	}
	p.Wait = p.Reason + ": " + ofManager(why.Text)
	if why.Category == sbatch.NeverStarts || why.Category == sbatch.WaitsForRelease {
		p.Trouble, p.Patience = p.Wait, stuckPatience
	}
}

// ofManager changes a phrase of package sbatch, which is about a bridge.
func ofManager(text string) string { return strings.ReplaceAll(text, "the bridge's", "the manager's") }

// Stop ends a pilot's job: the worker gets TERM.
func (b *Backend) Stop(ctx context.Context, p pilot.Pilot) error {
	var id sbatch.JobID
	if _, err := fmt.Sscan(p.Job, (*int64)(&id)); err != nil {
		return fmt.Errorf("end worker %s: its job is not known", p.Name)
	}
	return b.Slurm.Cancel(ctx, p.Name, id)
}
