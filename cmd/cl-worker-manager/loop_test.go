package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// counted counts the requests to a Slurm, and keeps the submissions.
type counted struct {
	slurmbatch.Slurm
	observed atomic.Int64
	requests []sbatch.Request
}

func (c *counted) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	c.requests = append(c.requests, r)
	return c.Slurm.Submit(ctx, r)
}

func (c *counted) Observe(ctx context.Context, notBefore time.Time) (sbatch.Snapshot, error) {
	c.observed.Add(1)
	return c.Slurm.Observe(ctx, notBefore)
}

// standInPath is the path of a cl-worker for jobs.
func standInPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("cl-worker") // testscript.Main has put it there
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newManager returns a manager for ann's bundles, whose workers are idle for a second.
func newManager(t *testing.T, address, dir string, slurm slurmbatch.Slurm) (*pilot.Manager, *slurmbatch.Backend) {
	t.Helper()
	l := &login{Login: account.Login{User: "ann", Password: "secret"}, file: filepath.Join(dir, ".password")}
	b := &slurmbatch.Backend{
		Slurm: slurm, User: "ann", JobName: "worker", WorkDir: dir, Now: time.Now, Login: l.forWorker,
		Job:    slurmbatch.Job{CPUs: 1, MemoryMB: 2048, Time: time.Hour, Dir: dir},
		Worker: slurmbatch.Worker{Worker: pilot.Worker{Executable: standInPath(t), Server: address, WorkDir: dir, IdleSeconds: 1}},
	}
	api, err := l.connect(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := record{Server: address, Shape: pilot.Shape{CPUs: 1, Memory: 2 << 30}}.manager(api, b, time.Now)
	m.Max, m.Pause, m.Log = 10, 50*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil))
	return m, b
}

func TestTenBundlesRunInTenWorkersThatOnePassStarts(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	uuids := stage(t, api, 10, nil)
	dir := t.TempDir()
	slurm := &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())}
	m, b := newManager(t, web.URL, dir, slurm)
	if err := m.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(slurm.requests) != 10 || slurm.observed.Load() != 1 {
		t.Errorf("%d submissions and %d squeue, want 10 and 1", len(slurm.requests), slurm.observed.Load())
	}
	for _, r := range slurm.requests {
		if text := strings.Join(r.Args(), " ") + r.Script; strings.Contains(text, "secret") {
			t.Errorf("the password is in a job: %s", text)
		}
	}
	info, err := os.Stat(filepath.Join(dir, ".password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	again, _ := newManager(t, web.URL, dir, slurm) // it was ended, and started again
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- again.Run(ctx) }()
	for _, uuid := range uuids {
		ran := awaitState(t, api, uuid, codalab.StateReady)
		logged, err := b.Logged(t.Context())
		if err != nil {
			t.Error(err)
		}
		p, err := pilot.Find(logged, ran.Metadata.String("remote"))
		if err != nil {
			t.Error(err)
		}
		if log, err := os.ReadFile(b.LogFile(p.Name)); err != nil || !strings.Contains(string(log), "the worker takes "+uuid) {
			t.Errorf("the log of %s is %s, %v", p.Name, log, err)
		}
	}
	var live []pilot.Pilot
	testenv.Await(t, "all workers have ended", func() bool {
		pilots, err := b.Pilots(t.Context())
		testenv.Must(t, err)
		live = alive(pilots)
		return len(live) == 0
	}, &live)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(slurm.requests) != 10 {
		t.Errorf("%d submissions in all, want 10", len(slurm.requests))
	}
}
