package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/spool"
)

// coreOutput is the output of each run.
const coreOutput = "loss 0.1\n"

const corePassword = "a password of the benchmark"

// coreServer is a CodaLab server with one user. It may run in a synctest bubble.
type coreServer struct {
	data    *store.Store
	service *server.Server
	handler http.Handler
}

func openServer(ctx context.Context, dir string, hold time.Duration) *coreServer {
	data := must(store.Open(ctx, dir))
	check(data.AddUser(ctx, coreAccount("0x"+strings.Repeat("a", 32), "ann")))
	service := server.New(server.Config{Store: data, Now: time.Now, Hold: hold, PasswordCost: coreCost()})
	return &coreServer{data: data, service: service, handler: service.Handler()}
}

// coreAccount is a user with corePassword and no limits.
func coreAccount(id, name string) store.User {
	const most = 1 << 50
	return store.User{
		ID: id, Name: name, Password: server.HashPassword(corePassword, coreCost()),
		Joined: store.Time{Time: time.Now()}, TimeQuota: most, DiskQuota: most, ParallelRunQuota: most,
	}
}

// coreCost makes sign-ins cheap.
func coreCost() server.PasswordCost { return server.PasswordCost{Passes: 1, KiB: 8} }

// ann is a client of the server's only user.
func ann(address string, h *http.Client) *client.Client {
	return must(client.New(address, client.Options{
		HTTP: h, Credentials: func(context.Context) (string, string, error) { return "ann", corePassword, nil },
	}))
}

// coreUser makes bundles.
type coreUser struct {
	*client.Client
	worksheet, image string
}

func newCoreUser(ctx context.Context, cl *client.Client, image string) coreUser {
	return coreUser{cl, must(cl.FindWorksheet(ctx, "", "/")).UUID, image}
}

// create makes a bundle.
func (u coreUser) create(ctx context.Context, queue string) (string, error) {
	m := benchMetadata(codalab.TypeRun, map[string]any{"name": "train", "request_queue": queue, "request_docker_image": u.image, "description": "a run of the benchmark"})
	b, err := u.CreateBundle(ctx, client.NewBundle{Worksheet: u.worksheet, Type: codalab.TypeRun, Command: benchCommand, Metadata: m})
	return b.UUID, err
}

// benchCommand is the command of runs.
const benchCommand = "python train.py --lr 0.1"

// benchMetadata is the metadata of a new bundle: all that a user may set, with some values.
func benchMetadata(kind string, some map[string]any) codalab.Metadata {
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(kind) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	maps.Copy(m, some)
	return m
}

// createMany makes bundles, several at a time.
func (u coreUser) createMany(ctx context.Context, n int, queue string) {
	var group errgroup.Group
	group.SetLimit(4)
	for range n {
		group.Go(func() error {
			_, err := u.create(ctx, queue)
			return err
		})
	}
	check(group.Wait())
}

// makeSIF makes an image in a directory, and returns its path.
func makeSIF(ctx context.Context, dir string) string {
	check(os.MkdirAll(dir, 0o755))
	kept := filepath.Join(dir, "layers")
	image, stop := serveImage(ctx, layoutBlobs{kept}, "core", makeImage(ctx, recipe{programs: []string{"/bin/true"}}, kept))
	defer stop()
	path := filepath.Join(dir, "core.sif")
	img := must(localRegistries().Resolve(ctx, must(source.ParseReference(image))))
	check(apptainer.Converter{Source: localRegistries(), TempDir: dir}.Convert(ctx, img, path, nil))
	return path
}

// coreSlurm is a Slurm with one node that has room for all jobs. Each job runs a worker that takes its
// attempt, and does nothing for a while; for ever if lasts is 0. It may run in a synctest bubble.
type coreSlurm struct {
	*slurmtest.Clocked

	ctx   context.Context
	lasts time.Duration
	jobs  sync.WaitGroup
}

func newCoreSlurm(ctx context.Context, first sbatch.JobID, lasts time.Duration) *coreSlurm {
	site := slurmtest.NewSite()
	site.FirstJob = first
	site.Nodes = []slurmtest.Node{{Name: "n1", CPUs: 1e6, MemoryMiB: 1e12}}
	site.Partitions = []slurmtest.Partition{{Name: "cpu", Nodes: []string{"n1"}, Default: true, MaxTime: 7 * 24 * time.Hour, DefaultTime: time.Hour}}
	s := &coreSlurm{ctx: ctx, lasts: lasts}
	s.Clocked = slurmtest.NewClocked(site, func(o slurmtest.Order) {
		if o.Kind == slurmtest.Start {
			s.jobs.Go(func() { check(s.begin(o.Launch)) })
		}
	})
	return s
}

// end ends Slurm, and waits for the jobs' workers.
func (s *coreSlurm) end() {
	s.Close()
	s.jobs.Wait()
}

// begin begins a job as cl-worker exec does.
func (s *coreSlurm) begin(l slurmtest.Launch) error {
	words := strings.Split(l.Request.Script, "'")
	attempt := spool.AttemptOf(words[len(words)-2])
	spec, err := attempt.ReadSpec()
	if err != nil {
		return err
	}
	token := spool.NewToken()
	if _, _, err := attempt.Begin(s.ctx, spool.Started{Token: token, Node: l.Node, Job: l.Job.String(), At: time.Now()}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(spec.RunDir, "stdout"), []byte(coreOutput), 0o600); err != nil {
		return err
	}
	now := time.Now()
	if err := attempt.WriteStatus(spool.Status{Token: token, Stage: spool.StageRunning, At: now, CommandStarted: now}); err != nil {
		return err
	}
	if s.lasts > 0 {
		time.AfterFunc(s.lasts, func() {
			if s.ctx.Err() == nil {
				check(s.finish(l, attempt, spec, token))
			}
		})
	}
	return attempt.Layout().Bell().Ring(spec.Bundle, attempt.Name())
}

// finish ends it.
func (s *coreSlurm) finish(l slurmtest.Launch, attempt spool.Attempt, spec spool.Spec, token string) error {
	code := 0
	now := time.Now()
	exit := spool.Exit{Token: token, Cause: spool.CauseSucceeded, ExitCode: &code, CommandStarted: now.Add(-s.lasts), CommandEnded: now}
	if err := attempt.WriteExit(exit); err != nil {
		return err
	}
	if err := attempt.Layout().Bell().Ring(spec.Bundle, attempt.Name()); err != nil {
		return err
	}
	s.Do(func(now time.Time, c *slurmtest.Controller) { c.Ended(now, l.Job, l.Restart, slurmtest.End{}) })
	return nil
}

// checkInRecorder records the check-ins that a server receives.
type checkInRecorder struct {
	handler  http.Handler
	requests requestCounts

	mu sync.Mutex
	// at has the time of each run's last report, state its last state, and states the number of runs in
	// each state; longest is the longest time between two reports of one run.
	at      map[string]time.Time
	states  map[codalab.State]int
	state   map[string]codalab.State
	longest time.Duration
}

func recordCheckIns(h http.Handler) *checkInRecorder {
	return &checkInRecorder{handler: h, at: map[string]time.Time{}, states: map[codalab.State]int{}, state: map[string]codalab.State{}}
}

// ServeHTTP reads check-ins on their way.
func (h *checkInRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.requests.add(r)
	if strings.HasSuffix(r.URL.Path, "/checkin") {
		body, err := io.ReadAll(r.Body)
		var in codalab.CheckIn
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err == nil {
			h.record(in.Reports)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	h.handler.ServeHTTP(w, r)
}

func (h *checkInRecorder) record(reports []codalab.RunReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, report := range reports {
		if last, ok := h.at[report.UUID]; ok {
			h.longest = max(h.longest, now.Sub(last))
		}
		h.at[report.UUID] = now
		if before := h.state[report.UUID]; before != report.State {
			h.states[before]--
			h.states[report.State]++
			h.state[report.UUID] = report.State
		}
	}
}

// running returns the number of runs whose last reported state is running.
func (h *checkInRecorder) running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[codalab.StateRunning]
}

// silence returns the longest time between two reports of one run since the last call.
func (h *checkInRecorder) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := h.longest
	for _, last := range h.at {
		longest = max(longest, time.Since(last))
	}
	h.longest = 0
	return longest
}
