package slurmbatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

var update = flag.Bool("update", false, "write the golden files")

// slurm is a Slurm that shows the jobs that a test wants.
type slurm struct {
	jobs      []sbatch.Job
	err       error
	requests  []sbatch.Request
	cancelled []string
}

func (s *slurm) Submit(_ context.Context, r sbatch.Request) (sbatch.JobID, error) {
	s.requests = append(s.requests, r)
	id := sbatch.JobID(len(s.requests))
	s.jobs = append(s.jobs, sbatch.Job{ID: id, Name: r.Name, State: sbatch.StatePending, Reason: "Priority"})
	return id, nil
}

func (s *slurm) Observe(context.Context, time.Time) (sbatch.Snapshot, error) {
	return sbatch.Snapshot{Jobs: slices.Clone(s.jobs)}, s.err
}

func (s *slurm) Cancel(_ context.Context, name string, ids ...sbatch.JobID) error {
	s.cancelled = append(s.cancelled, name+" "+ids[0].String())
	return nil
}

// newBackend returns a backend with a worker that is a script, on one of Slurm's doubles.
func newBackend(t *testing.T, s slurmbatch.Slurm) *slurmbatch.Backend {
	t.Helper()
	dir := t.TempDir()
	worker := filepath.Join(dir, "cl-worker")
	testenv.WriteProgram(t, worker, []byte("#!/bin/sh\necho \"$@\"\nexec sleep 60\n"))
	return &slurmbatch.Backend{
		Slurm: s, User: "ann", JobName: "worker", WorkDir: filepath.Join(dir, "work"), Now: time.Now,
		Job:    slurmbatch.Job{CPUs: 1, MemoryMB: 2048, Time: time.Hour, Dir: dir},
		Worker: slurmbatch.Worker{Scripted: true, Worker: pilot.Worker{Executable: worker, Server: "http://server", WorkDir: "/w", IdleSeconds: 600}},
		Login:  func() ([]string, error) { return []string{"--password-file", "/home/ann/password"}, nil },
	}
}

// server has one staged bundle, and knows no workers.
type server struct{ pilot.Tokens }

func (server) EndWorkerTokens(context.Context, string) error { return nil }

func (server) SearchBundles(context.Context, string, []string) ([]client.BundleInfo, json.RawMessage, error) {
	return []client.BundleInfo{{Bundle: codalab.Bundle{UUID: "0x" + strings.Repeat("1", 32), Type: codalab.TypeRun}}}, nil, nil
}
func (server) Workers(context.Context) ([]codalab.WorkerInfo, error) { return nil, nil }
func (server) Bundle(context.Context, string, ...string) (client.BundleInfo, error) {
	return client.BundleInfo{}, errors.New("none")
}

// slots returns the passes of a manager of one pilot, ten seconds apart.
func slots(t *testing.T, s *slurm) (pass func()) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	m := &pilot.Manager{
		Server: server{}, Backend: newBackend(t, s), Shape: pilot.Shape{CPUs: 1, Memory: 2 << 30}, Max: 1, MostFailed: -1,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	}
	return func() {
		t.Helper()
		now = now.Add(10 * time.Second)
		if err := m.Pass(t.Context()); err != nil && s.err == nil {
			t.Fatal(err)
		}
	}
}

// CodaLab's own manager keeps the slots of jobs that ended in OUT_OF_MEMORY, NODE_FAIL, PREEMPTED, BOOT_FAIL or DEADLINE,
// and those of purged records, forever (slurm_batch_worker_manager.py: get_worker_jobs).
func TestEveryEndOfAJobFreesItsSlotAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	ends := []sbatch.State{
		sbatch.StateCompleted, sbatch.StateFailed, sbatch.StateCancelled, sbatch.StateTimeout, sbatch.StateDeadline,
		sbatch.StateOutOfMemory, sbatch.StateNodeFail, sbatch.StateBootFail, sbatch.StatePreempted,
	}
	live := []sbatch.State{
		sbatch.StatePending, sbatch.StateConfiguring, sbatch.StateRunning, sbatch.StateSuspended, sbatch.StateStopped,
		sbatch.StateCompleting, sbatch.StateSignaling, sbatch.StateStageOut, sbatch.StateResizing, sbatch.StateRequeued,
		sbatch.StateRequeueHold, sbatch.StateRequeueFed, sbatch.StateSpecialExit, sbatch.StateResvDelHold, sbatch.StateRevoked, "NEW_STATE",
	}
	for _, state := range slices.Concat(ends, live) {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			s := &slurm{}
			pass := slots(t, s)
			pass()
			s.jobs[0].State = state
			pass()
			pass()
			want := 1
			if slices.Contains(ends, state) {
				want = 2
			}
			if len(s.requests) != want {
				t.Errorf("%d submissions, want %d", len(s.requests), want)
			}
		})
	}
	t.Run("purged", func(t *testing.T) {
		t.Parallel()
		s := &slurm{}
		pass := slots(t, s)
		pass()
		s.jobs = nil
		pass()
		if len(s.requests) != 2 {
			t.Errorf("%d submissions, want 2", len(s.requests))
		}
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		s := &slurm{}
		pass := slots(t, s)
		pass()
		s.jobs, s.err = nil, errors.New("Unable to contact slurm controller")
		pass()
		pass()
		if len(s.requests) != 1 {
			t.Errorf("%d submissions, want 1", len(s.requests))
		}
	})
}

func TestJobsOfOthersAreNoPilots(t *testing.T) {
	t.Parallel()
	b := newBackend(t, &slurm{})
	digits := strings.Repeat("0", 32)
	for name, want := range map[string]bool{
		b.NewName(): true, "ann-worker-" + digits: true, "ann-worker-" + digits[1:]: false, "bob-worker-" + digits: false,
		"ann-worker-2-" + digits: false, "ann-worker-train": false, "": false,
	} {
		if got := b.IsPilot(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLogsAreFoundAfterTheEndOfTheirJobs(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b := newBackend(t, s)
	var names []string
	for range 2 {
		name := b.NewName()
		if _, err := b.Start(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	uuid := codalab.NewUUID()
	for i, name := range names {
		lines := "a line\nthe worker takes " + uuid + "\n"
		if err := os.WriteFile(b.LogFile(name), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1_800_000_000+i), 0)
		if err := os.Chtimes(b.LogFile(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	logged, err := b.Logged(t.Context())
	if err != nil || len(logged) != 2 || logged[0].Name != names[1] || logged[0].Job != "2" || logged[1].Name != names[0] {
		t.Fatal(logged, err)
	}
	if got, err := pilot.FindPrinted(t.Context(), b, logged, uuid); got.Name != names[1] || err != nil {
		t.Errorf("the last log with %s in it: %q, %v", uuid, got.Name, err)
	}
	if got, err := pilot.FindPrinted(t.Context(), b, logged, codalab.NewUUID()); !errors.Is(err, pilot.ErrNotFound) {
		t.Errorf("a log that nothing has printed to: %q, %v", got.Name, err)
	}
	pilots, err := b.Pilots(t.Context())
	if err != nil || len(pilots) != 2 {
		t.Fatal(pilots, err)
	}
	if err := b.Stop(t.Context(), pilot.Named(pilots, "2")[0]); err != nil || s.cancelled[0] != names[1]+" 2" {
		t.Error(s.cancelled, err)
	}
}

// TestScriptsAreAsWritten compares submissions with testdata/jobs.golden.
func TestScriptsAreAsWritten(t *testing.T) {
	t.Parallel()
	login := []string{"--password-file", "/home/ann/it's here"}
	b := &slurmbatch.Backend{User: "ann", JobName: "worker", WorkDir: "/shared/scratch"}
	var got strings.Builder
	for _, test := range []struct {
		job    slurmbatch.Job
		worker slurmbatch.Worker
	}{
		{slurmbatch.Job{CPUs: 1, MemoryMB: 2048, Dir: "/home/ann"}, slurmbatch.Worker{Worker: pilot.Worker{Executable: "/opt/bin/cl-worker", Server: "https://worksheets.codalab.org", WorkDir: "/w", IdleSeconds: 600}}},
		{
			slurmbatch.Job{
				Partition: "gpu", Account: "nlp", Constraint: "a100", NodeList: "n3", Exclude: "n4", CPUs: 4, GPUs: 2, GPUType: "a100", MemoryMB: 16000,
				Time: 10 * 24 * time.Hour, Dir: "/home/ann",
			},
			slurmbatch.Worker{Worker: pilot.Worker{Executable: "/opt/bin/cl-worker", Server: "http://s", WorkDir: "/juice/ann-codalab-SlurmBatchWorkerManager-scratch/workdir", IdleSeconds: 60, Arguments: []string{"--tag", "big one"}}},
		},
		{
			slurmbatch.Job{CPUs: 1, GPUs: 1, MemoryMB: 2048, Time: 10 * time.Minute, Dir: "/home/ann"},
			slurmbatch.Worker{Scripted: true, Worker: pilot.Worker{Executable: "/venv/bin/cl-worker", Server: "http://s", WorkDir: "/w", IdleSeconds: 600}},
		},
	} {
		b.Job, b.Worker = test.job, test.worker
		r := b.Request("ann-worker-"+strings.Repeat("0", 32), login)
		if r.LoginEnvironment != test.worker.Scripted {
			t.Errorf("%s: the login shell's environment: %v", test.worker.Executable, r.LoginEnvironment)
		}
		got.WriteString(strings.Join(r.Args(), "\n") + "\n\n" + r.Script + "\n\n")
	}
	file := filepath.Join("testdata", "jobs.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-update writes it): %s", file, diff)
	}
}

func TestWorkerGetsTermItsLogAndNothingOfTheLogin(t *testing.T) {
	t.Parallel()
	cluster := slurmtest.NewCluster(t, slurmtest.NewSite())
	b := newBackend(t, cluster)
	testenv.WriteProgram(t, b.Worker.Executable, []byte("#!/bin/sh\ntrap 'echo got TERM; exit 0' TERM\nenv\necho \"$@\"\nwhile :; do sleep 0.05; done\n"))
	p, err := b.Start(t.Context(), b.NewName(), "")
	if err != nil {
		t.Fatal(err)
	}
	printed := func(text string) string {
		t.Helper()
		var log []byte
		testenv.Await(t, fmt.Sprintf("%q is in the log", text), func() bool {
			log, _ = os.ReadFile(b.LogFile(p.Name)) // until it is there
			return strings.Contains(string(log), text)
		}, &log)
		return string(log)
	}
	log := printed("--gpuset NONE")
	for _, want := range []string{
		"Worker is executing on host: ", "CL_WORKER_STOP_AFTER=3450\n", "PATH=" + sbatch.DefaultPath + ":" + filepath.Dir(b.Worker.Executable) + "\n",
		"--id host-" + p.Name + " --network-prefix cl_worker_" + p.Name + "_network --pass-down-termination --password-file /home/ann/password",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q: %s", want, log)
		}
	}
	if strings.Contains(log, "CODALAB_") {
		t.Errorf("the environment names a login: %s", log)
	}
	if err := b.Stop(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	printed("got TERM")
}

func TestRefusalsAndLostAnswersAreToldApart(t *testing.T) {
	t.Parallel()
	site := slurmtest.NewSite()
	cluster := slurmtest.NewCluster(t, site)
	b := newBackend(t, cluster)
	b.Job.Account = "nobody"
	name := b.NewName()
	_, err := b.Start(t.Context(), name, "")
	var doubt pilot.Uncertain
	if !errors.As(err, &doubt) || doubt.Uncertain() {
		t.Errorf("a refusal: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.WorkDir, name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused submission leaves files: %v", err)
	}
	b = newBackend(t, &sbatch.Observer{Scheduler: lost{cluster}, Interval: time.Second, Now: time.Now})
	if _, err := b.Start(t.Context(), b.NewName(), ""); !errors.As(err, &doubt) || !doubt.Uncertain() {
		t.Errorf("a lost answer: %v", err)
	}
}

// lost is a Slurm whose answers to sbatch are lost.
type lost struct{ sbatch.Scheduler }

func (lost) Submit(_ context.Context, r sbatch.Request) (sbatch.JobID, error) {
	return 0, slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 1)
}

// A site's wrapper prints lines around the id.
func TestBannersHideNoJob(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	testenv.WriteProgram(t, filepath.Join(bin, "sbatch"), []byte("#!/bin/sh\necho '*** maintenance on Friday ***'\necho '42;north'\necho bye\n"))
	b := newBackend(t, &sbatch.Client{Bin: bin})
	if p, err := b.Start(t.Context(), b.NewName(), ""); err != nil || p.Job != "42" {
		t.Errorf("%+v, %v", p, err)
	}
}

// A job may wait for days, on a disk that somebody else can write to.
func TestPilotStartsOnlyTheProgramOfItsSubmission(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	s := &slurm{}
	b := newBackend(t, s)
	b.Worker.Checked = true
	start := func() (script string) {
		t.Helper()
		if _, err := b.Start(t.Context(), b.NewName(), ""); err != nil {
			t.Fatal(err)
		}
		return s.requests[len(s.requests)-1].Script
	}
	run := func(script string) (int, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	testenv.WriteProgram(t, b.Worker.Executable, []byte("#!/bin/sh\necho the first\n"))
	first := start()
	if code, out := run(first); code != 0 || !strings.Contains(out, "the first\n") {
		t.Errorf("exit %d: %s", code, out)
	}
	testenv.WriteProgram(t, b.Worker.Executable, []byte("#!/bin/sh\necho another\n"))
	if code, out := run(first); code != sbatch.MismatchStatus || strings.Contains(out, "another\n") || !strings.Contains(out, "is not the program that was put there") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := run(start()); code != 0 || !strings.Contains(out, "another\n") {
		t.Errorf("a job that is submitted later: exit %d: %s", code, out)
	}
}

func TestWaitForALimitIsExplained(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]pilot.Pilot{
		"AssocGrpJobsLimit":             {Wait: "AssocGrpJobsLimit: all jobs of the account that run are as many as the account allows"},
		"QOSMaxCpuPerUserLimit":         {Wait: "QOSMaxCpuPerUserLimit: with it, the jobs of the manager's Slurm user that run would have more processors than the QOS allows at once"},
		"JobHeldAdmin":                  {Wait: "JobHeldAdmin: an administrator of the site holds it", Trouble: "JobHeldAdmin: an administrator of the site holds it", Patience: 10 * time.Minute},
		"QOSMaxWallDurationPerJobLimit": {Wait: "QOSMaxWallDurationPerJobLimit: its time limit is longer than the QOS allows", Trouble: "QOSMaxWallDurationPerJobLimit: its time limit is longer than the QOS allows", Patience: 10 * time.Minute},
		"NewReason":                     {},
	} {
		s := &slurm{}
		b := newBackend(t, s)
		if _, err := b.Start(t.Context(), b.NewName(), ""); err != nil {
			t.Fatal(err)
		}
		s.jobs[0].Reason = reason
		got, err := b.Pilots(t.Context())
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if p := got[0]; p.Reason != reason || p.Wait != want.Wait || p.Trouble != want.Trouble || p.Patience != want.Patience {
			t.Errorf("%s: %+v", reason, p)
		}
		s.jobs[0].State = sbatch.StateRunning
		if got, err := b.Pilots(t.Context()); err != nil || got[0].Wait+got[0].Trouble != "" {
			t.Errorf("%s: a running job waits: %+v, %v", reason, got, err)
		}
	}
}
