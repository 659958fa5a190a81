package slurmbatch

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

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
	// Tokens makes a token for each pilot; nil for none. If it is set, Pilots ends the tokens of pilots that
	// have ended.
	Tokens Tokens
	// Credentials returns the arguments by which a worker logs in. It is called once for each pilot that has
	// no token of its own.
	Credentials func(ctx context.Context) ([]string, error)
	// Logger gets messages about tokens; nil means no log.
	Logger *slog.Logger
	Now    func() time.Time

	issued                   map[string]time.Time // the times of the pilots' tokens, by name; nil before they are read
	whyNoToken, tokenTrouble string               // the last logged reason, and error
}

var _ pilot.Backend = (*Backend)(nil)

func (b *Backend) prefix() string { return b.User + "-" + b.JobName + "-" }

// NewName returns the name of a new pilot and its job (slurm_batch_worker_manager.py: start_worker_job).
func (b *Backend) NewName() string {
	id := uuid.New()
	return b.prefix() + hex.EncodeToString(id[:])
}

// IsPilot reports whether a job of this name is a pilot of this manager.
func (b *Backend) IsPilot(name string) bool {
	digits, ok := strings.CutPrefix(name, b.prefix())
	id, err := hex.DecodeString(digits)
	return ok && err == nil && len(id) == 16
}

// Log returns the path of a pilot's log.
func (b *Backend) Log(name string) string { return filepath.Join(b.WorkDir, name, name+".out") }

// jobFile returns the path of the file with the number of a pilot's job.
func (b *Backend) jobFile(name string) string { return filepath.Join(b.WorkDir, name, "job") }

// Request returns the submission of a pilot; login are the arguments by which it logs in.
func (b *Backend) Request(name string, login []string) sbatch.Request {
	j := b.Job
	r := sbatch.Request{
		Name: name, Partition: j.Partition, Account: j.Account, Constraint: j.Constraint, Exclude: j.Exclude,
		CPUs: j.CPUs, GPUs: j.GPUs, GPUType: j.GPUType, MemoryMiB: j.MemoryMB, Time: j.Time,
		Dir: j.Dir, Output: b.Log(name), Script: b.Worker.script(name, j, login),
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
			b.logTokenError(ctx, err)
			return
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
	if b.Tokens != nil {
		b.maintainTokens(ctx, snapshot.Jobs)
	}
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

// ErrAmbiguous means that a text names several pilots.
var ErrAmbiguous = errors.New("it names several workers")

// FindLog tries the texts in order and returns the first pilot that one of them names; only pilots with files in
// WorkDir count. A text names a pilot by its name or worker id, by its job's number, by the beginning of its
// hexadecimal digits, or by a bundle's remote, which ends in a worker id. The error is ErrAmbiguous if a text
// names several.
func (b *Backend) FindLog(texts ...string) (name string, err error) {
	entries, err := os.ReadDir(b.WorkDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find log: %w", err)
	}
	var pilots []pilot.Pilot
	for _, e := range entries {
		if b.IsPilot(e.Name()) {
			job, _ := os.ReadFile(b.jobFile(e.Name())) // without the file its job is not known
			pilots = append(pilots, pilot.Pilot{Name: e.Name(), Job: strings.TrimSpace(string(job))})
		}
	}
	for _, text := range texts {
		switch found := b.Named(pilots, text); len(found) {
		case 0:
		case 1:
			return found[0].Name, nil
		default:
			return "", fmt.Errorf("%s: %w: %s, %s", text, ErrAmbiguous, found[0].Name, found[1].Name)
		}
	}
	return "", fmt.Errorf("no worker of %s has files in %s", strings.Join(texts, ", "), b.WorkDir)
}

// FindPrinted returns the pilot whose log contains a text; of several, the one that printed last. It reads all
// logs in the work directory, the newest first. It is for bundles that are staged again, because the server
// forgets their workers.
func (b *Backend) FindPrinted(text string) (name string, err error) {
	logs, err := filepath.Glob(filepath.Join(b.WorkDir, "*", "*.out"))
	if err != nil {
		return "", fmt.Errorf("find log: %w", err)
	}
	ages := map[string]time.Time{}
	logs = slices.DeleteFunc(logs, func(path string) bool {
		info, err := os.Stat(path)
		if err != nil || b.Log(filepath.Base(filepath.Dir(path))) != path {
			return true
		}
		ages[path] = info.ModTime()
		return false
	})
	slices.SortFunc(logs, func(a, c string) int { return ages[c].Compare(ages[a]) })
	for _, path := range logs {
		if found, err := contains(path, text); err != nil || found {
			return filepath.Base(filepath.Dir(path)), err
		}
	}
	return "", fmt.Errorf("no log in %s has %s in it", b.WorkDir, text)
}

// contains reports whether a file has a text in one of its lines.
func contains(path, text string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read log: %w", err)
		}
	}
}

// leastPart is the least number of hexadecimal digits that can name a pilot.
const leastPart = 4

// Named returns the pilots among these that a text names, by the rules of FindLog.
func (b *Backend) Named(pilots []pilot.Pilot, text string) []pilot.Pilot {
	var whole, part []pilot.Pilot
	for _, p := range pilots {
		switch {
		case text == "":
		case p.Job == text, strings.HasSuffix(text, p.Name):
			whole = append(whole, p)
		case len(text) >= leastPart && strings.HasPrefix(strings.TrimPrefix(p.Name, b.prefix()), text):
			part = append(part, p)
		}
	}
	if len(whole) > 0 {
		return whole
	}
	return part
}
