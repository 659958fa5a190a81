package bridge_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// fakeSlurm is a Slurm that gives each job a node at once, or never, and runs
// a worker in it that does what the bundle's command says: "sleep 3", "exit 3".
type fakeSlurm struct {
	ctx context.Context //nolint:containedctx // the life of its jobs

	mu      sync.Mutex
	wg      sync.WaitGroup
	jobs    []*fakeJob
	submits int
	cancels int
	looks   []time.Time // when Observe was called

	held   bool                 // jobs stay pending
	silent bool                 // no command gets an answer
	slow   time.Duration        // how long Observe takes
	answer func() error         // what sbatch says of a job that was made
	before func(sbatch.Request) // is called by Submit first
}

type fakeJob struct {
	sbatch.Job
	spec  string
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
	ctx, end := context.WithCancel(s.ctx)
	j := &fakeJob{
		Job: sbatch.Job{
			ID: sbatch.JobID(len(s.jobs) + 1), Name: r.Name, Comment: r.Comment, State: sbatch.StatePending, Reason: "Priority",
		},
		spec: strings.Split(r.Script, "'")[3],
		end:  end,
	}
	s.jobs = append(s.jobs, j)
	if !s.held {
		s.wg.Go(func() { s.run(ctx, j) })
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
	_, own, err := attempt.Begin(ctx, spool.Started{Token: token, Node: "n1", Job: j.ID.String(), At: time.Now()})
	if err != nil || !own {
		s.set(j, sbatch.StateCompleted)
		return
	}
	bell := spool.AttemptOf(j.spec).Layout().Bell()
	_ = bell.Ring(spec.Bundle, spec.Attempt)
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
	_ = bell.Ring(spec.Bundle, spec.Attempt)
	s.set(j, state)
}

// hello is what a command prints.
func hello(bundle string, attempt int) string {
	return fmt.Sprintf("hello from attempt %d of %s\n", attempt, bundle)
}

func (s *fakeSlurm) set(j *fakeJob, state sbatch.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.State, j.Nodes, j.Reason = state, "n1", "None"
	if state.Ended() {
		j.ended = time.Now()
	}
}

// add makes a job that somebody else submitted, and that waits for ever.
func (s *fakeSlurm) add(name, comment string) *fakeJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &fakeJob{end: func() {}, Job: sbatch.Job{
		ID: sbatch.JobID(len(s.jobs) + 1), Name: name, Comment: comment, State: sbatch.StatePending, Reason: "Priority",
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
	s.looks = append(s.looks, now)
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
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return snapshot, err
}

// Account knows of every job that was submitted since a time, without its
// comment.
func (s *fakeSlurm) Account(_ context.Context, since time.Time, names []string) ([]sbatch.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return nil, errSilent
	}
	var jobs []sbatch.Job
	for _, j := range s.jobs {
		if j.Name == names[0] && (j.ended.IsZero() || j.ended.After(since)) {
			shown := j.Job
			shown.Comment = ""
			jobs = append(jobs, shown)
		}
	}
	return jobs, nil
}

func (s *fakeSlurm) Cancel(_ context.Context, id sbatch.JobID, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels++
	if s.silent {
		return errSilent
	}
	j := s.jobs[id-1]
	if j.Name != name {
		return nil
	}
	j.end()
	if j.State == sbatch.StatePending {
		j.State, j.Reason, j.ended = sbatch.StateCancelled, "None", time.Now()
	}
	return nil
}

// change alters the fake under its lock.
func (s *fakeSlurm) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// fakeServer is a CodaLab server with one user's bundles.
type fakeServer struct {
	mu         sync.Mutex
	concurrent bool
	hold       time.Duration
	down       bool
	failures   int             // that many check-ins fail
	deaf       bool            // acknowledgements are lost
	restored   map[string]bool // bundles that it does not know any more
	confirmed  int             // how often it was asked for a state
	messages   []codalab.Message
	unclaimed  map[string]codalab.Message
	arrived    chan struct{}
	superseded chan struct{} // closed by a newer check-in
	held, most int
	checkIns   int
	runs       map[string]codalab.Run
	finished   map[string]codalab.Run
	acked      map[string]bool
	uploads    map[string]string
	replies    map[int64]codalab.ReadReply
	data       map[int64][]byte
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		concurrent: true, hold: 5 * time.Second, arrived: make(chan struct{}, 1), superseded: make(chan struct{}),
		unclaimed: map[string]codalab.Message{}, runs: map[string]codalab.Run{}, finished: map[string]codalab.Run{}, acked: map[string]bool{},
		uploads: map[string]string{}, replies: map[int64]codalab.ReadReply{}, data: map[int64][]byte{},
	}
}

var errDown = &codalab.Error{Method: "POST", Path: "/workers", Message: "connection refused"}

func (s *fakeServer) CheckIn(ctx context.Context, _ string, in codalab.CheckIn) (codalab.CheckInAnswer, error) {
	s.mu.Lock()
	s.checkIns++
	if s.down || s.failures > 0 {
		s.failures--
		s.mu.Unlock()
		return codalab.CheckInAnswer{}, errDown
	}
	s.held++
	s.most = max(s.most, s.held)
	if s.concurrent {
		close(s.superseded)
		s.superseded = make(chan struct{})
	}
	superseded := s.superseded
	s.report(in.Runs)
	s.mu.Unlock()
	s.wait(ctx, superseded)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	answer := codalab.CheckInAnswer{Concurrent: s.concurrent}
	if s.superseded == superseded && !s.down {
		answer.Messages, s.messages = s.messages, nil
	}
	return answer, nil
}

// wait holds a check-in until there is a message for it.
func (s *fakeServer) wait(ctx context.Context, superseded chan struct{}) {
	timer := time.NewTimer(s.hold)
	defer timer.Stop()
	for {
		s.mu.Lock()
		waiting := len(s.messages) > 0
		s.mu.Unlock()
		if waiting {
			return
		}
		select {
		case <-s.arrived:
		case <-superseded:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// report takes the runs in, and acknowledges those that have ended.
func (s *fakeServer) report(runs []codalab.Run) {
	for _, run := range runs {
		s.runs[run.UUID] = run
		if run.State == codalab.StateFinalizing && !s.acked[run.UUID] && !s.restored[run.UUID] {
			s.acked[run.UUID], s.finished[run.UUID] = true, run
			if s.deaf {
				continue
			}
			s.messages = append(s.messages, codalab.Message{Type: codalab.MessageMarkFinalized, UUID: run.UUID})
		}
	}
}

func (s *fakeServer) send(m codalab.Message) {
	s.mu.Lock()
	s.messages = append(s.messages, m)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

func (s *fakeServer) StartBundle(_ context.Context, _, bundle string, _ codalab.StartBundle) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false, errDown
	}
	delete(s.unclaimed, bundle)
	return true, nil
}

// State is what the server believes of a bundle.
func (s *fakeServer) State(_ context.Context, bundle string) (codalab.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed++
	if s.down {
		return "", errDown
	}
	if s.restored[bundle] {
		return "", &codalab.Error{Method: "GET", Path: "/bundles/" + bundle, Status: http.StatusNotFound, Message: "not found"}
	}
	if s.acked[bundle] {
		return codalab.StateReady, nil
	}
	return s.runs[bundle].State, nil
}

func (s *fakeServer) Reply(_ context.Context, _ string, socket int64, r codalab.ReadReply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[socket] = r
	return nil
}

func (s *fakeServer) ReplyData(_ context.Context, _ string, socket int64, body io.Reader) error {
	data, err := io.ReadAll(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[socket] = data
	return err
}

// Collect uploads a run's standard output.
func (s *fakeServer) Collect(_ context.Context, run codalab.RunBundle, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	data, err := os.ReadFile(filepath.Join(dir, "stdout"))
	s.uploads[run.UUID] = string(data)
	return err
}

// fakeStager has everything there already.
type fakeStager struct{}

func (fakeStager) Stage(_ context.Context, _ codalab.RunBundle, image string, progress func(string)) (spool.Inputs, error) {
	progress("Looking for " + image + ".")
	return spool.Inputs{Image: "/cache/" + image, ImageDigest: "sha256:1"}, nil
}

// site is a bridge among its doubles, with a real ledger and a real shared
// directory.
type site struct {
	*testing.T
	slurm  *fakeSlurm
	server *fakeServer
	shared spool.Layout
	path   string
	queue  plan.Queue
	book   *ledger.Ledger
	stop   func()

	dryRun bool                   // strays are not cancelled
	ends   error                  // what Run ends with
	alter  func(b *bridge.Bridge) // is called before Run
}

// newSite is called in a synctest bubble; dir was made outside of it.
func newSite(t *testing.T, dir string) *site {
	t.Helper()
	s := &site{T: t, server: newFakeServer(), shared: spool.Layout(filepath.Join(dir, "shared")), path: filepath.Join(dir, "ledger.db")}
	s.queue = plan.Queue{Name: "cpu", Tag: "cpu", DefaultTime: time.Hour}
	ctx, cancel := context.WithCancel(context.Background())
	s.slurm = &fakeSlurm{ctx: ctx}
	t.Cleanup(func() {
		cancel()
		s.slurm.wg.Wait()
	})
	for _, d := range s.shared.Directories() {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) policy() plan.Policy {
	return plan.Policy{
		Bridge: s.book.ID, Owner: "ann", Layout: s.shared, Worker: "/bin/cl-worker",
		Queues:      map[string]plan.Queue{"cpu": s.queue},
		SubmitGrace: 90 * time.Second, StrayGrace: 3 * time.Minute, CancelStrays: !s.dryRun, RecordAge: 5 * time.Minute, Accounting: true, Settle: 10 * time.Second,
		StuckFor: 5 * time.Second, StagePatience: 5 * time.Minute, CollectPatience: 72 * time.Hour, MaxAttempts: 3,
		AckPatience: 10 * time.Minute, KeepAfterAck: time.Hour,
	}
}

// start starts a bridge on the site's ledger. It is stopped at the latest when
// the test ends.
func (s *site) start() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	book, err := ledger.Open(ctx, s.path)
	if err != nil {
		s.Fatal(err)
	}
	s.book = book
	b := &bridge.Bridge{
		Policy: s.policy(), Name: "ann-login1", Hostname: "login1",
		Ledger: book, Scheduler: slowly{s.slurm}, Service: s.server, Spool: spool.Disk{Layout: s.shared},
		Stager: fakeStager{}, Collector: s.server, Now: time.Now,
		Log:          slog.New(slog.NewTextHandler(s.Output(), nil)),
		ObserveEvery: 6 * time.Second, LookEvery: 350 * time.Millisecond, ReadEvery: 5 * time.Second,
	}
	if s.alter != nil {
		s.alter(b)
	}
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, s.ends) {
			s.Errorf("bridge ended: %v, want %v", err, s.ends)
		}
		if err := book.Close(); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(s.stop)
}

// offer gives the bridge a bundle to run.
func (s *site) offer(bundle, command string) {
	m := codalab.Message{
		Type:      codalab.MessageRun,
		Bundle:    &codalab.RunBundle{UUID: bundle, Type: codalab.TypeRun, OwnerID: "1", Command: command, Metadata: codalab.Metadata{}},
		Resources: &codalab.Resources{CPUs: 1, DockerImage: "python:3"},
	}
	s.server.mu.Lock()
	s.server.unclaimed[bundle] = m
	s.server.mu.Unlock()
	s.server.send(m)
}

// offerAgain sends what was offered and not claimed, as a server does after a
// while.
func (s *site) offerAgain() {
	s.server.mu.Lock()
	lost := slices.Collect(maps.Values(s.server.unclaimed))
	s.server.mu.Unlock()
	for _, m := range lost {
		s.server.send(m)
	}
}

// rows are the ledger's rows, by bundle.
func (s *site) rows() map[string]plan.Row {
	s.Helper()
	rows, err := s.book.Rows(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]plan.Row{}
	for _, r := range rows {
		out[r.Bundle] = r
	}
	return out
}

// within waits, in the bubble's time, until something holds.
func (s *site) within(limit time.Duration, what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			for _, r := range s.rows() {
				s.Logf("%s: %s: %s (due %s)", r.Bundle, r.Phase, r.Reason, r.Due)
			}
			s.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// phase waits until a bundle's row is in a phase.
func (s *site) phase(limit time.Duration, bundle string, p plan.Phase) {
	s.Helper()
	s.within(limit, bundle+" is "+string(p), func() bool { return s.rows()[bundle].Phase == p })
}

// result waits until the server has a bundle's result.
func (s *site) result(limit time.Duration, bundle string) codalab.Run {
	s.Helper()
	var run codalab.Run
	s.within(limit, bundle+" has ended", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		var ok bool
		run, ok = s.server.finished[bundle]
		return ok
	})
	return run
}

// bundleID differs from bundle to bundle in what a mark has of it.
func bundleID(n int) string { return fmt.Sprintf("0x%012x%020x", n, n) }

func gunzip(t *testing.T, data []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
