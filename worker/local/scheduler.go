package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Config is what a Scheduler is given. Node, Machine, Now and Log are needed.
type Config struct {
	// Node is the host's name, which is the node of all jobs.
	Node string
	// Machine is what jobs may have of the host.
	Machine Machine
	// Env is the environment of the jobs. A scheduler adds what describes a job's allocation, and
	// removes what describes an allocation around this process.
	Env []string
	// KillWait is how long the processes of a job have between TERM and KILL; 0 means 30 s, as
	// in Slurm (slurm.conf(5): KillWait).
	KillWait time.Duration
	// KeepEnded is how long jobs stay in snapshots after their end; 0 means an hour.
	KeepEnded time.Duration
	// Now reads the clock.
	Now func() time.Time
	// Log is told of what needs an operator.
	Log *slog.Logger
}

const (
	defaultKillWait  = 30 * time.Second
	defaultKeepEnded = time.Hour
)

// Scheduler runs jobs on this machine. It is safe for concurrent use. Jobs start and end only while Run
// runs.
type Scheduler struct {
	Config
	records records
	boot    string // thisBoot
	lock    *os.File
	wake    chan struct{} // has room for one

	mu   sync.Mutex
	jobs map[sbatch.JobID]*job
	last sbatch.JobID
	// avoided are ids that no job gets.
	avoided []sbatch.JobID
}

// job is a job in memory.
type job struct {
	record
	// marker is what its processes have in their environment.
	marker string
	// child is its main process if this process started it.
	child *command.Held
	// ending is set when the main process has ended and the job has not.
	ending bool
	// stopping is closed when the scheduler wants the running job to end.
	stopping chan struct{}
	// unsaved is set while the record on the disk is older.
	unsaved bool
}

// Open returns the scheduler of a directory, which is made if it is not there, with the jobs that the
// directory has. One process at a time can have it open. A record that cannot be read is an error, so that
// no job is taken for absent.
//
// A job that ran when the machine was restarted is NODE_FAIL then. The error wraps ErrNamespace if a job was
// running in another PID namespace.
func Open(dir string, c Config) (*Scheduler, error) {
	s, err := open(dir, c)
	if err != nil {
		return nil, fmt.Errorf("open the jobs of this worker: %w", err)
	}
	return s, nil
}

func open(dir string, c Config) (_ *Scheduler, err error) {
	c.KillWait, c.KeepEnded = cmp.Or(c.KillWait, defaultKillWait), cmp.Or(c.KeepEnded, defaultKeepEnded)
	s := &Scheduler{Config: c, wake: make(chan struct{}, 1), jobs: map[sbatch.JobID]*job{}}
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the path is the caller's
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if s.records.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if s.boot, err = thisBoot(); err != nil {
		return nil, err
	}
	if s.avoided, err = jobsAround(); err != nil {
		return nil, err
	}
	if s.lock, err = lockFile(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// lockFile locks a file until it is closed.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, err
	}
	// A process that was killed while it started a program may have left it the file. The program
	// closes it in a moment, when it is executed.
	const tries = 50
	for try := range tries {
		if try > 0 {
			_ = pause.For(context.Background(), 10*time.Millisecond) // this context does not end
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another process has %s open", filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close lets another process open the directory. Jobs go on. The scheduler is not used any more.
func (s *Scheduler) Close() error {
	// A program that this process starts just now has the file, too, until it is executed.
	return errors.Join(unix.Flock(int(s.lock.Fd()), unix.LOCK_UN), s.lock.Close())
}

// load takes the jobs of the directory over.
func (s *Scheduler) load() error {
	all, err := s.records.load()
	if err != nil {
		return err
	}
	if err := s.records.checkNamespace(all, s.boot); err != nil {
		return err // before any job is changed
	}
	for _, r := range all {
		if r.State == sbatch.StateRunning && r.Boot != s.boot {
			r.State, r.Reason, r.Ended = sbatch.StateNodeFail, "NodeDown", s.Now()
			if err := s.records.save(r); err != nil {
				return err
			}
		}
		s.add(r)
	}
	return nil
}

// add adds a job of a record.
func (s *Scheduler) add(r record) {
	j := &job{record: r, marker: s.records.marker(r.ID), stopping: make(chan struct{})}
	if r.State == sbatch.StateRunning && r.Stop != "" {
		close(j.stopping)
	}
	s.jobs[r.ID], s.last = j, max(s.last, r.ID)
}

// ordered returns the jobs in the order of their ids, which is that of their submission.
func (s *Scheduler) ordered() []*job {
	all := slices.Collect(maps.Values(s.jobs))
	slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Submit makes a job and returns its id. The job survives a crash of the machine once Submit returns.
//
// An error is an *sbatch.Error. It is a refusal for good if the machine can never serve the request, and
// a refusal for now if the job could not be recorded. Of the request, a scheduler follows Name, Comment,
// CPUs, MemoryMiB, GPUs, Time, which it does not round, Dir, Output, an absolute path, and Script. What
// else a request has is for a cluster, and is ignored.
func (s *Scheduler) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	refused := func(err error, retry bool) error {
		return &sbatch.Error{Op: "submit " + r.Name, Message: err.Error(), Refused: true, Retry: retry, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return 0, refused(err, true)
	}
	asked := request{
		Name: r.Name, Comment: r.Comment, Script: r.Script, Dir: r.Dir, Output: r.Output,
		CPUs: int(max(r.CPUs, 1)), GPUs: int(r.GPUs), MemoryMiB: r.MemoryMiB, Time: r.Time,
	}
	if interpreter(r.Script) == nil {
		return 0, refused(errors.New("the script does not begin with #! and an interpreter"), false)
	}
	if why := s.Machine.refusal(asked); why != "" {
		return 0, refused(errors.New(why), false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made := record{ID: s.nextID(), Request: asked, Submitted: s.Now(), State: sbatch.StatePending}
	if err := s.records.save(made); err != nil {
		s.last = made.ID // also if the record could not be removed
		err = errors.Join(err, s.records.remove(made.ID))
		return 0, refused(err, true)
	}
	s.add(made)
	s.wakeRun()
	return made.ID, nil
}

// nextID is the id of the next job. The record of the last job stays until there is a later one, so no id
// comes back.
func (s *Scheduler) nextID() sbatch.JobID {
	id := s.last + 1
	for slices.Contains(s.avoided, id) {
		id++
	}
	return id
}

// jobsAround returns the ids of jobs of Slurm in whose cgroups this process runs. `cl-worker exec` takes
// a cgroup with the id of its job for the job's own (worker: findCgroup).
func jobsAround() ([]sbatch.JobID, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var ids []sbatch.JobID
	for _, level := range strings.FieldsFunc(string(text), func(r rune) bool { return r == '/' || r == '\n' }) {
		digits, ok := strings.CutPrefix(level, "job_")
		if id, err := strconv.ParseInt(digits, 10, 64); ok && err == nil {
			ids = append(ids, sbatch.JobID(id))
		}
	}
	return ids, nil
}

func (s *Scheduler) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default: // it will wake anyway
	}
}

// Observe returns all jobs that have not ended, and those that ended within KeepEnded, in the order of
// their ids. The Exit of each ended job is that of the script, and empty if the script was started by an
// earlier process.
func (s *Scheduler) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return sbatch.Snapshot{}, &sbatch.Error{Op: "observe", Message: err.Error(), Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := sbatch.Snapshot{Asked: now}
	for _, j := range s.ordered() {
		if !j.expired(s.Now(), s.KeepEnded) {
			snapshot.Jobs = append(snapshot.Jobs, s.show(j))
		}
	}
	return snapshot, nil
}

// expired reports whether a job ended so long ago that it is not shown any more.
func (r *record) expired(now time.Time, keep time.Duration) bool {
	return r.State.Ended() && !now.Before(r.Ended.Add(keep))
}

// show returns a job as Slurm shows it.
func (s *Scheduler) show(j *job) sbatch.Job {
	shown := j.job(s.Node)
	switch {
	case j.State == sbatch.StateRunning && (j.ending || j.Stop != ""):
		shown.State = sbatch.StateCompleting
	case j.State == sbatch.StatePending && s.Machine.refusal(j.Request) != "": // the machine had more when it came
		shown.Reason = "BadConstraints"
	case j.State == sbatch.StatePending:
		shown.Reason = "Resources"
	}
	return shown
}

// QueryAccounting returns the jobs that Observe would, of those with one of the ids or names, if they
// have not ended before since. It leaves out their comments.
func (s *Scheduler) QueryAccounting(ctx context.Context, since time.Time, which sbatch.Which) ([]sbatch.Job, error) {
	snapshot, err := s.Observe(ctx, since)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []sbatch.Job
	for _, shown := range snapshot.Jobs {
		j, ok := s.jobs[shown.ID]
		endedBefore := ok && j.State.Ended() && j.Ended.Before(since)
		if !endedBefore && (slices.Contains(which.IDs, shown.ID) || slices.Contains(which.Names, shown.Name)) {
			shown.Comment = ""
			found = append(found, shown)
		}
	}
	return found, nil
}

// Cancel ends jobs: one that waits at once. The main process of a job that runs gets TERM, and KillWait
// later all its processes get KILL. With a name, only jobs of this name are ended. It is no error if a
// job has ended, or is not known. After an error some of the jobs may have been ended.
func (s *Scheduler) Cancel(ctx context.Context, name string, ids ...sbatch.JobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		j, ok := s.jobs[id]
		if !ok || name != "" && j.Request.Name != name {
			continue
		}
		err := ctx.Err()
		if err == nil {
			err = s.cancel(j)
		}
		if err != nil {
			return &sbatch.Error{Op: "cancel " + id.String(), Message: err.Error(), Err: err}
		}
	}
	return nil
}

func (s *Scheduler) cancel(j *job) error {
	next := j.record
	switch {
	case j.State == sbatch.StatePending:
		next.State, next.Ended = sbatch.StateCancelled, s.Now()
	case j.State == sbatch.StateRunning && j.Stop == "":
		next.Stop = sbatch.StateCancelled
	default:
		return nil
	}
	if err := s.records.save(next); err != nil {
		return err
	}
	j.record = next
	if next.Stop != "" {
		close(j.stopping)
	}
	s.wakeRun() // perhaps another job waits behind this one
	return nil
}

// Try returns nil: the scheduler takes every job that its machine is large enough for, which the server
// knows.
func (*Scheduler) Try(context.Context, sbatch.Request) error { return nil }

// Partitions returns the machine as one partition.
func (s *Scheduler) Partitions(context.Context) ([]sbatch.Partition, error) {
	all := s.Machine.resources()
	return []sbatch.Partition{{Name: "local", Default: true, State: "up", Nodes: 1, Ready: 1, Most: all, All: all, Sizes: sbatch.NodeSizes{all}}}, nil
}
