package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// fakeSlurm is a Slurm that gives each job a node at once, or never, and runs
// a worker in it that does what the bundle's command says: "sleep 3", "exit 3".
type fakeSlurm struct {
	ctx context.Context

	mu       sync.Mutex
	wg       sync.WaitGroup
	jobs     []*fakeJob
	submits  int
	tries    int // of Try
	cancels  int
	queries  int         // of the accounting database
	observed []time.Time // when Observe was called

	held       bool                 // jobs stay pending
	silent     bool                 // no command gets an answer
	slow       time.Duration        // how long Observe takes
	answer     func() error         // what sbatch says of a job that was made
	before     func(sbatch.Request) // is called by Submit first
	partitions []sbatch.Partition
	// refuse is what sbatch says instead of making a job; nil for nothing.
	refuse func(sbatch.Request) error
	// never is the reason for which a job stays pending; empty for none.
	never func(sbatch.Request) string
	// sick is a node on which no command starts. Jobs run on it unless they exclude it; then on n1.
	sick string
	// setup is the time for which workers set the container up.
	setup time.Duration
}

type fakeJob struct {
	sbatch.Job
	spec  string
	node  string
	start func()
	end   context.CancelFunc
	ended time.Time
}

// minJobAge is how long Slurm shows a job that has ended.
const minJobAge = 5 * time.Minute

var errSilent = errors.New("unable to contact slurm controller")

func (s *fakeSlurm) Submit(_ context.Context, r sbatch.Request) (sbatch.JobID, error) { //nolint:contextcheck // a job outlives its sbatch
	if s.before != nil {
		s.before(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.submits++
	if s.silent {
		return 0, &sbatch.Error{Op: "submit", Message: errSilent.Error(), Err: errSilent}
	}
	if s.refuse != nil {
		if err := s.refuse(r); err != nil {
			return 0, err
		}
	}
	ctx, end := context.WithCancel(s.ctx)
	j := &fakeJob{
		Job: sbatch.Job{
			ID: sbatch.JobID(len(s.jobs) + 1), Name: r.Name, Comment: r.Comment, State: sbatch.StatePending, Reason: "Priority",
			Submitted: time.Now().Round(0).Truncate(time.Second),
		},
		spec: strings.Split(r.Script, "'")[3],
		node: "n1",
		end:  end,
	}
	if s.sick != "" && !slices.Contains(strings.Split(r.Exclude, ","), s.sick) {
		j.node = s.sick
	}
	s.jobs = append(s.jobs, j)
	if s.never != nil {
		j.Reason = cmp.Or(s.never(r), j.Reason)
	}
	j.start = func() { s.wg.Go(func() { s.run(ctx, j) }) }
	if !s.held && j.Reason == "Priority" {
		j.start()
	}
	if s.answer != nil {
		if err := s.answer(); err != nil {
			return 0, err
		}
	}
	return j.ID, nil
}

// run is the life of a job.
func (s *fakeSlurm) run(ctx context.Context, j *fakeJob) {
	s.set(j, sbatch.StateRunning)
	attempt := spool.AttemptOf(j.spec)
	spec, err := attempt.ReadSpec()
	if err != nil {
		s.set(j, sbatch.StateFailed)
		return
	}
	token := spool.NewToken()
	_, own, err := attempt.Begin(ctx, spool.Started{Token: token, Node: j.node, Job: j.ID.String(), At: time.Now()})
	if err != nil || !own {
		s.set(j, sbatch.StateCompleted)
		return
	}
	bell := spool.AttemptOf(j.spec).Layout().Bell()
	report := func(stage spool.Stage, commandStarted time.Time) {
		_ = attempt.WriteStatus(spool.Status{Token: token, Stage: stage, At: time.Now(), CommandStarted: commandStarted})
		_ = bell.Ring(spec.Bundle, attempt.Name())
	}
	notStarted := spool.Exit{Token: token, Cause: spool.CausePlatform, NotStarted: true}
	if s.setup > 0 {
		report(spool.StageStarting, time.Time{})
		select {
		case <-time.After(s.setup):
		case <-ctx.Done():
			notStarted.Terminated, notStarted.Failure = true, "The job was terminated before the command began."
		}
	}
	switch {
	case s.ctx.Err() != nil:
		return // the test is over
	case j.node == s.sick:
		notStarted.NodeAtFault, notStarted.Failure = true, "This node has no /dev/fuse."
	}
	if notStarted.Failure != "" {
		_ = attempt.WriteExit(notStarted)
		_ = bell.Ring(spec.Bundle, attempt.Name())
		s.set(j, sbatch.StateFailed)
		return
	}
	report(spool.StageRunning, time.Now())
	_ = os.WriteFile(filepath.Join(spec.RunDir, "stdout"), []byte(hello(spec.Bundle, spec.Attempt)), 0o600)
	var seconds float64
	var code int
	_, _ = fmt.Sscanf(spec.Command, "sleep %f", &seconds)
	_, _ = fmt.Sscanf(spec.Command, "exit %d", &code)
	exit := spool.Exit{Token: token, Cause: spool.CauseSucceeded, ExitCode: &code, CommandStarted: time.Now()}
	state := sbatch.StateCompleted
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	case <-ctx.Done():
		code, exit.Terminated, state = 143, true, sbatch.StateCancelled
	}
	if s.ctx.Err() != nil {
		return // the test is over
	}
	exit.CommandEnded = time.Now()
	if code != 0 {
		exit.Cause = spool.CauseUser
	}
	_ = attempt.WriteExit(exit)
	_ = bell.Ring(spec.Bundle, attempt.Name())
	s.set(j, state)
}

// hello is what a command prints.
func hello(bundle string, attempt int) string {
	return fmt.Sprintf("hello from attempt %d of %s\n", attempt, bundle)
}

func (s *fakeSlurm) set(j *fakeJob, state sbatch.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.State, j.Nodes, j.Reason = state, j.node, "None"
	if state.Ended() {
		j.ended = time.Now()
	}
}

// add makes a job that the bridge has not submitted, and that never starts.
func (s *fakeSlurm) add(name, comment string) *fakeJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &fakeJob{end: func() {}, Job: sbatch.Job{
		ID: sbatch.JobID(len(s.jobs) + 1), Name: name, Comment: comment, State: sbatch.StatePending, Reason: "Priority",
		Submitted: time.Now().Round(0).Truncate(time.Second),
	}}
	s.jobs = append(s.jobs, j)
	return j
}

// state is what Slurm shows of a job.
func (s *fakeSlurm) state(j *fakeJob) sbatch.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.State
}

func (s *fakeSlurm) Observe(_ context.Context, now time.Time) (sbatch.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = append(s.observed, now)
	if s.silent {
		return sbatch.Snapshot{}, errSilent
	}
	snapshot := sbatch.Snapshot{Asked: now}
	for _, j := range s.jobs {
		if j.ended.IsZero() || time.Since(j.ended) < minJobAge {
			snapshot.Jobs = append(snapshot.Jobs, j.Job)
		}
	}
	return snapshot, nil
}

// slowly is a Slurm that takes its time to answer Observe.
type slowly struct{ *fakeSlurm }

func (s slowly) Observe(ctx context.Context, now time.Time) (sbatch.Snapshot, error) {
	snapshot, err := s.fakeSlurm.Observe(ctx, now)
	var takes time.Duration
	s.change(func() { takes = s.slow })
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return snapshot, err
}

// QueryAccounting knows of every job that was submitted since a time, without its
// comment. Like sacct it takes a tenth of a second.
func (s *fakeSlurm) QueryAccounting(_ context.Context, since time.Time, which sbatch.Which) ([]sbatch.Job, error) {
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	if s.silent {
		return nil, errSilent
	}
	var jobs []sbatch.Job
	for _, j := range s.jobs {
		if (slices.Contains(which.Names, j.Name) || slices.Contains(which.IDs, j.ID)) && (j.ended.IsZero() || j.ended.After(since)) {
			shown := j.Job
			shown.Comment = ""
			jobs = append(jobs, shown)
		}
	}
	return jobs, nil
}

func (s *fakeSlurm) Cancel(_ context.Context, _ string, ids ...sbatch.JobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels++
	if s.silent {
		return errSilent
	}
	for _, j := range s.jobs {
		if !slices.Contains(ids, j.ID) {
			continue
		}
		j.end()
		if j.State == sbatch.StatePending {
			j.State, j.Reason, j.ended = sbatch.StateCancelled, "None", time.Now()
		}
	}
	return nil
}

// change alters the fake under its lock.
func (s *fakeSlurm) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Try refuses what Submit refuses.
func (s *fakeSlurm) Try(_ context.Context, r sbatch.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	switch {
	case s.silent:
		return &sbatch.Error{Op: "try to submit", Message: errSilent.Error(), Err: errSilent}
	case s.refuse != nil:
		return s.refuse(r)
	}
	return nil
}

func (s *fakeSlurm) Partitions(context.Context) ([]sbatch.Partition, error) { return s.partitions, nil }
