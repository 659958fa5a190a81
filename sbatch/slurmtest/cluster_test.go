package slurmtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// TestMain lets this program be the commands of a Cluster.
func TestMain(m *testing.M) {
	slurmtest.Main()
	os.Exit(m.Run())
}

// What is here is true of the real cluster too, as far as it was seen there,
// but takes it minutes, or all of its users with it. The rest is in the suite of
// package sbatch.

// quick is a site with short times.
func quick() *slurmtest.Site {
	s := slurmtest.NewSite()
	s.StartDelay, s.RowAfter, s.NameAfter, s.EndAfter = 0, 0, 0, 0
	s.KillWait, s.MinJobAge, s.LimitEvery, s.RequeueDelay = 50*time.Millisecond, time.Hour, 50*time.Millisecond, 50*time.Millisecond
	return s
}

func script(name, text string, extra ...string) sbatch.Request {
	return sbatch.Request{Name: name, Dir: "/tmp", Output: "/dev/null", Script: "#!/bin/sh\n" + text + "\n", Extra: extra}
}

func submit(t *testing.T, c *sbatch.Client, r sbatch.Request) sbatch.JobID {
	t.Helper()
	id, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// await looks at the job of a name until it is in a state.
func await(t *testing.T, c *sbatch.Client, name string, state sbatch.State) sbatch.Job {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for {
		s, err := c.Observe(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		found := s.ByName()[name]
		if len(found) == 1 && found[0].State == state {
			return found[0]
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s is not %s: %+v", name, state, found)
		}
	}
}

func TestJobIsEndedAtItsLimitAndPurgedLater(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	c := k.Client()
	r := script("a", "exec sleep 600", "--time=0:01")
	id := submit(t, c, r)
	if j := await(t, c, "a", sbatch.StateTimeout); j.Reason != "TimeLimit" {
		t.Errorf("%+v", j)
	}
	k.Do(func(now time.Time, m *slurmtest.Controller) { m.Advance(now.Add(time.Hour)) })
	s, err := c.Observe(t.Context(), time.Now())
	if err != nil || len(s.Jobs) != 0 {
		t.Errorf("%+v, %v: want job %d forgotten", s.Jobs, err, id)
	}
	jobs, err := c.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), []string{"a"})
	if err != nil || len(jobs) != 1 || jobs[0].State != sbatch.StateTimeout {
		t.Errorf("%+v, %v", jobs, err)
	}
}

func TestRequeuedJobBeginsAgain(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	c := k.Client()
	out := filepath.Join(t.TempDir(), "out")
	r := script("a", `echo "begun $SLURM_RESTART_COUNT"; [ -n "$SLURM_RESTART_COUNT" ] || exec sleep 600`, "--requeue")
	r.Output = out
	id := submit(t, c, r)
	await(t, c, "a", sbatch.StateRunning)
	for said := ""; said == ""; { // it has begun to speak
		data, _ := os.ReadFile(out)
		said = string(data)
	}
	if _, err := k.Run(t.Context(), command.Command{Args: []string{"scontrol", "requeue", id.String()}}); err != nil {
		t.Fatal(err)
	}
	await(t, c, "a", sbatch.StateCompleted)
	data, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(data), "begun \n") || !strings.HasSuffix(string(data), "begun 1\n") {
		t.Errorf("%q, %v", data, err)
	}
	jobs, err := c.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), []string{"a"})
	if err != nil || len(jobs) != 2 || jobs[0].State != sbatch.StateRequeued || jobs[1].ID != id {
		t.Errorf("%+v, %v", jobs, err)
	}
}

func TestProcessesOfALostNodeRunOn(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	c := k.Client()
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	r := script("a", "until [ -e stop ]; do sleep 0.01; done; echo >gone; mv gone done; exec sleep 600")
	r.Dir = dir
	submit(t, c, r)
	node := await(t, c, "a", sbatch.StateRunning).Nodes
	set := func(state string) {
		k.Do(func(now time.Time, m *slurmtest.Controller) {
			if err := m.SetNode(now, node, state); err != nil {
				t.Error(err)
			}
		})
	}
	set(slurmtest.NodeLost)
	await(t, c, "a", sbatch.StateNodeFail)
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; { // the script does what it has to do
		if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the script does not run on: no %s", gone)
		}
	}
	set(slurmtest.NodeResume)
	await(t, c, "a", sbatch.StateNodeFail)
}

func TestControllerComesBackWithItsJobs(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	c := k.Client()
	dir := t.TempDir()
	r := script("a", "until [ -e stop ]; do sleep 0.01; done; echo >done; exit 4")
	r.Dir = dir
	submit(t, c, r)
	await(t, c, "a", sbatch.StateRunning)
	k.Do(func(now time.Time, m *slurmtest.Controller) { m.Stop(now) })
	var e *sbatch.Error
	if _, err := c.Observe(t.Context(), time.Now()); !errors.As(err, &e) || e.Message != "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" {
		t.Errorf("%v", err)
	}
	if _, err := c.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), []string{"a"}); err != nil {
		t.Errorf("the accounts are there: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k.Do(func(now time.Time, m *slurmtest.Controller) { m.Start(now) })
	if j := await(t, c, "a", sbatch.StateFailed); j.Reason != "NonZeroExitCode" {
		t.Errorf("%+v", j)
	}
}

func TestDatabaseThatIsAwaySaysSo(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	k.Do(func(now time.Time, m *slurmtest.Controller) { m.Database.AwayUntil = now.Add(time.Hour) })
	_, err := (&sbatch.Client{Bin: k.Bin()}).QueryAccounting(t.Context(), time.Now(), []string{"a"})
	var e *sbatch.Error
	if !errors.As(err, &e) || e.Message != "Problem talking to the database: Connection refused" {
		t.Errorf("%v", err)
	}
}

func TestAnswersThatGoWrong(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*slurmtest.Cluster) *sbatch.Client{
		"executables": func(k *slurmtest.Cluster) *sbatch.Client { return &sbatch.Client{Bin: k.Bin()} },
		"in process":  func(k *slurmtest.Cluster) *sbatch.Client { return k.Client() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := slurmtest.NewCluster(t, quick())
			c := client(k)
			var e *sbatch.Error
			for name, f := range map[string]slurmtest.Faults{"lost": {Lost: true}, "late": {Late: time.Hour}} {
				c.SubmitTimeout = time.Second
				k.SetFaults(f)
				if _, err := c.Submit(t.Context(), script(name, "true", "--hold")); !errors.As(err, &e) || e.Refused {
					t.Errorf("%s: %+v: want a submission that is not known", name, err)
				}
				if name == "lost" && e.Message != "Socket timed out on send/recv operation" {
					t.Errorf("%v", e)
				}
				k.SetFaults(slurmtest.Faults{})
				await(t, c, name, sbatch.StatePending)
			}
			k.SetFaults(slurmtest.Faults{Cut: true})
			if s, err := c.Observe(t.Context(), time.Now()); !errors.As(err, &e) || !e.Transient() {
				t.Errorf("%+v, %v: want half an answer to be none", s, err)
			}
		})
	}
}

// stern notes errors that are to be.
type stern struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (s *stern) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func TestWhatIsNotModelledFailsTheTest(t *testing.T) {
	t.Parallel()
	tb := &stern{TB: t}
	k := slurmtest.NewCluster(tb, quick())
	lines := []string{
		"sbatch --wait", "sbatch --dependency=afterok:1", "squeue --json", "squeue --format=%z", "sacct -X -P --format=MaxRSS", "sacct",
		"scancel --signal=USR1 1", "scontrol show config", "scontrol update jobid=1 comment=x", "sinfo --json",
	}
	for _, line := range lines {
		args := strings.Fields(line)
		args[0] = filepath.Join(k.Bin(), args[0])
		_, err := command.Command{Args: args, Stdin: strings.NewReader("#!/bin/sh\n")}.Output(t.Context())
		var failed *command.Error
		if !errors.As(err, &failed) || failed.ExitCode != 99 || !strings.Contains(failed.Stderr, "does not model") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(tb.said) != len(lines) {
		t.Errorf("%d of %d were told to the test: %q", len(tb.said), len(lines), tb.said)
	}
}

func TestClusterEndsItsJobsWithTheTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Run("a test", func(t *testing.T) {
		k := slurmtest.NewCluster(t, quick())
		r := script("a", "sh -c 'trap \"\" TERM; echo $$ >pid; mv pid begun; exec sleep 600' & wait")
		r.Dir = dir
		submit(t, k.Client(), r)
		for {
			if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
				return
			}
		}
	})
	pid, err := os.ReadFile(filepath.Join(dir, "begun"))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("its process is still there: %s", stat)
	}
}

func TestKilledCommandsLeaveTheClusterUsable(t *testing.T) {
	t.Parallel()
	k := slurmtest.NewCluster(t, quick())
	c := &sbatch.Client{Bin: k.Bin(), QueryTimeout: 100 * time.Millisecond}
	k.SetFaults(slurmtest.Faults{Late: time.Hour})
	if _, err := c.Observe(t.Context(), time.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	k.SetFaults(slurmtest.Faults{})
	c.QueryTimeout = 0
	if _, err := c.Observe(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
}

// One squeue of each kind.
func BenchmarkCommand(b *testing.B) {
	k := slurmtest.NewCluster(b, quick())
	for name, c := range map[string]*sbatch.Client{"executable": {Bin: k.Bin()}, "inprocess": k.Client()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Observe(b.Context(), time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
