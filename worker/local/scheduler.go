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
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Config configures a Scheduler. Node, Machine, Now and Log are required.
type Config struct {
	// Node is the host's name, which becomes the node of all jobs.
	Node string
	// Machine has the host's resources for jobs.
	Machine Machine
	// Env is the environment of the jobs. A scheduler adds the variables of the job's allocation,
	// and removes those of an allocation around this process.
	Env []string
	// KillWait is the time between TERM and KILL for a job's processes. 0 means 30 s, as in Slurm
	// (slurm.conf(5): KillWait).
	KillWait time.Duration
	// Now reads the clock.
	Now func() time.Time
	// Log gets messages for an operator.
	Log *slog.Logger
}

const (
	defaultKillWait = 30 * time.Second
	// keepEnded is the time for which jobs stay in snapshots after their end.
	keepEnded = time.Hour
)

// Scheduler runs jobs on this machine. It is safe for concurrent use. Jobs start and end only while Run
// runs.
type Scheduler struct {
	Config
	records records
	boot    string // thisBoot
	lock    *os.File
	wake    chan struct{} // holds one entry

	mu   sync.Mutex
	jobs map[sbatch.JobID]*job
	last sbatch.JobID
	// avoided are ids that no job may get.
	avoided []sbatch.JobID
}

// job is a job in memory.
type job struct {
	record
	// marker is the variable in its processes' environments.
	marker string
	// child is its main process, if this process started it.
	child *command.Held
	// ending is set when the main process has ended and other processes may remain.
	ending bool
	// endNow is closed when the scheduler ends the running job.
	endNow chan struct{}
	// unsaved is set while the record on the disk is outdated.
	unsaved bool
}

// Open returns the scheduler of a directory with the jobs in it. It makes the directory if it is
// missing. Only one process at a time can open it. An unreadable record is an error, so that no job
// counts as absent.
//
// A job that was running before a reboot becomes NODE_FAIL. The error wraps ErrNamespace if a job
// was running in another PID namespace.
func Open(dir string, c Config) (*Scheduler, error) {
	s, err := open(dir, c)
	if err != nil {
		return nil, fmt.Errorf("open the jobs of this worker: %w", err)
	}
	return s, nil
}

func open(dir string, c Config) (_ *Scheduler, err error) {
	c.KillWait = cmp.Or(c.KillWait, defaultKillWait)
	s := &Scheduler{Config: c, wake: make(chan struct{}, 1), jobs: map[sbatch.JobID]*job{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// A process that was killed while it started a program may have left it the file. The program
	// closes it soon, when it is executed.
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

// Close lets another process open the directory. Jobs continue. The caller must not use the
// scheduler any more.
func (s *Scheduler) Close() error {
	// A program that this process is just starting has the file, too, until it is executed.
	return errors.Join(unix.Flock(int(s.lock.Fd()), unix.LOCK_UN), s.lock.Close())
}

// load takes over the jobs of the directory.
func (s *Scheduler) load() error {
	all, err := s.records.load()
	if err != nil {
		return err
	}
	if err := s.records.checkNamespace(all, s.boot); err != nil {
		return err // before it changes any job
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

// add adds the job of a record.
func (s *Scheduler) add(r record) {
	j := &job{record: r, marker: s.records.marker(r.ID), endNow: make(chan struct{})}
	if r.State == sbatch.StateRunning && r.EndState != "" {
		close(j.endNow)
	}
	s.jobs[r.ID], s.last = j, max(s.last, r.ID)
}

// ordered returns the jobs by id, which is the order of their submission.
func (s *Scheduler) ordered() []*job {
	all := slices.Collect(maps.Values(s.jobs))
	slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Submit makes a job and returns its id. The job survives a crash of the machine once Submit
// returns.
//
// An error is an *sbatch.Error. It is permanent if the machine can never serve the request, and
// temporary if the job could not be recorded. A scheduler uses these fields of the request: Name,
// Comment, CPUs, MemoryMiB, GPUs, Time, which it does not round, Dir, Output, an absolute path, and
// Script. The others are for clusters, and it ignores them; but it refuses an array.
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
	if r.Tasks > 0 {
		return 0, refused(errors.New("this scheduler has no arrays of jobs"), false)
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
		s.last = made.ID // even if the record could not be removed
		err = errors.Join(err, s.records.remove(made.ID))
		return 0, refused(err, true)
	}
	s.add(made)
	s.wakeRun()
	return made.ID, nil
}

// nextID returns the id of the next job. The record of the last job stays until there is a later
// one, so no id is used twice.
func (s *Scheduler) nextID() sbatch.JobID {
	id := s.last + 1
	for slices.Contains(s.avoided, id) {
		id++
	}
	return id
}

// jobsAround returns the ids of Slurm jobs in whose cgroups this process runs. `cl-worker exec`
// would take a cgroup with its job's id for the job's own (worker: findCgroup).
func jobsAround() ([]sbatch.JobID, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var ids []sbatch.JobID
	for _, level := range strings.FieldsFunc(string(text), func(r rune) bool { return r == '/' || r == '\n' }) {
		digits, ok := strings.CutPrefix(level, "job_")
		if id, err := sbatch.ParseJobID(digits); ok && err == nil {
			ids = append(ids, id)
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

// Observe returns all jobs that have not ended, and those that ended within an hour, in the order
// of their ids. The Exit of an ended job is that of the script, and empty if an earlier process
// started the script.
func (s *Scheduler) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return sbatch.Snapshot{}, &sbatch.Error{Op: "observe", Message: err.Error(), Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := sbatch.Snapshot{Asked: now}
	for _, j := range s.ordered() {
		if !j.expired(s.Now()) {
			snapshot.Jobs = append(snapshot.Jobs, s.show(j))
		}
	}
	return snapshot, nil
}

// expired reports whether a job ended so long ago that it is no longer shown.
func (r *record) expired(now time.Time) bool {
	return r.State.Ended() && !now.Before(r.Ended.Add(keepEnded))
}

// show returns a job as Slurm shows it.
func (s *Scheduler) show(j *job) sbatch.Job {
	shown := j.job(s.Node)
	switch {
	case j.State == sbatch.StateRunning && (j.ending || j.EndState != ""):
		shown.State = sbatch.StateCompleting
	case j.State == sbatch.StatePending && s.Machine.refusal(j.Request) != "": // the machine was larger at its submission
		shown.Reason = "BadConstraints"
	case j.State == sbatch.StatePending:
		shown.Reason = "Resources"
	}
	return shown
}

// QueryAccounting returns those jobs of Observe that have one of the ids or names and did not end
// before since. It omits their comments.
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

// Cancel ends jobs. It ends a waiting job at once. It sends TERM to the main process of a running
// job, and KILL to all its processes after KillWait. With a name, it ends only jobs of this name.
// It ignores jobs that have ended or are not known. After an error, some of the jobs may have been
// ended.
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
	case j.State == sbatch.StateRunning && j.EndState == "":
		next.EndState = sbatch.StateCancelled
	default:
		return nil
	}
	if err := s.records.save(next); err != nil {
		return err
	}
	j.record = next
	if next.EndState != "" {
		close(j.endNow)
	}
	s.wakeRun() // a later job may now fit
	return nil
}

// Try returns nil: the scheduler takes every job that fits its machine, and the server knows the
// machine's size.
func (*Scheduler) Try(context.Context, sbatch.Request) error { return nil }

// Partitions returns the machine as one partition.
func (s *Scheduler) Partitions(context.Context) ([]sbatch.Partition, error) {
	all := s.Machine.resources()
	return []sbatch.Partition{{Name: "local", Default: true, State: "up", Nodes: 1, Ready: 1, Most: all, All: all, Sizes: sbatch.NodeSizes{all}}}, nil
}
