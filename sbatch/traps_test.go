package sbatch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// Surprising behaviour of Slurm. Package slurmtest alone tests the behaviour that takes the real cluster too
// long, or disturbs its other users: the end by time limit (Slurm checks every 30 seconds), the purge of old
// jobs, the loss of a node, and the absence of the controller and of the database.

func TestStateOfAJobAfterEachKindOfEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		type end struct {
			State  sbatch.State
			Reason string
		}
		want := map[string]end{
			"exit 0":     {sbatch.StateCompleted, "None"},
			"exit 3":     {sbatch.StateFailed, "NonZeroExitCode"},
			"kill -9 $$": {sbatch.StateFailed, s.either("JobLaunchFailure", "RaisedSignal:9(Killed)")}, // by any process
			"kill $$":    {sbatch.StateFailed, s.either("JobLaunchFailure", "RaisedSignal:15(Terminated)")},
		}
		for script := range want {
			s.submit(t, named(s.request(script), script))
		}
		for _, odd := range []struct {
			name   string
			change func(*sbatch.Request)
			end
		}{
			{"no interpreter", func(r *sbatch.Request) { r.Script = "#!/nonexistent\n" }, end{sbatch.StateFailed, "NonZeroExitCode"}},
			{
				"no output", func(r *sbatch.Request) { r.Output = "/nonexistent/out" },
				end{sbatch.StateFailed, s.either("JobLaunchFailure", "RaisedSignal:53(Real-time signal 19)")},
			},
			{"no directory", func(r *sbatch.Request) { r.Dir = "/nonexistent" }, end{sbatch.StateCompleted, "None"}}, // it is run in /tmp
		} {
			r := named(s.request("true"), odd.name)
			odd.change(&r)
			s.submit(t, r)
			want[odd.name] = odd.end
		}
		for suffix, w := range want {
			j := await(t, s.jobs(t, s.name+suffix), func(j sbatch.Job) bool { return j.State.Ended() })
			if (end{j.State, j.Reason}) != w || j.Nodes == "" {
				t.Errorf("%s: %+v, want %v", suffix, j, w)
			}
		}
	})
}

func TestBatchScriptAloneGetsTermAndAllGetKill(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		told := filepath.Join(s.dir, "told")
		r := s.request(`trap 'echo script >>told' TERM
		sh -c 'trap "echo child >>told" TERM; echo >begun; sleep 600 & wait; wait' &
		wait; wait`)
		r.Dir, r.Output = s.dir, filepath.Join(s.dir, "out")
		id := s.submit(t, r)
		testenv.AwaitFile(t, filepath.Join(s.dir, "begun"))
		began := time.Now()
		if err := s.Cancel(t.Context(), s.name, id); err != nil {
			t.Fatal(err)
		}
		if j := s.observe(t).ByName()[s.name]; j[0].State != sbatch.StateCompleting {
			t.Errorf("after scancel: %+v", j)
		}
		await(t, s.jobs(t, s.name), in(sbatch.StateCancelled))
		if took := time.Since(began); took < s.killWait*2/3 {
			t.Errorf("it was killed after %s, want %s", took, s.killWait)
		}
		if data, err := os.ReadFile(told); err != nil || string(data) != "script\n" {
			t.Errorf("TERM was told to %q, %v", data, err)
		}
		if data, err := os.ReadFile(r.Output); err != nil || !strings.Contains(string(data), "*** JOB "+id.String()+" ON ") {
			t.Errorf("output %q, %v", data, err)
		}
	})
}

func TestRequeuedJobWaitsUnderItsID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, with(s.request("exec sleep 600"), "--requeue"))
		await(t, s.jobs(t, s.name), in(sbatch.StateRunning))
		if refusal := s.requeue(t, id); refusal != "" {
			t.Fatal(refusal)
		}
		first := s.observe(t).ByName()[s.name]
		if state := first[0].State; state != sbatch.StateCompleting && state != sbatch.StatePending {
			t.Errorf("at once: %+v", first)
		}
		j := await(t, s.jobs(t, s.name), func(j sbatch.Job) bool { return j.Reason == "BeginTime" })
		if wait := j.Start.Sub(j.Submitted); j.ID != id || j.State != sbatch.StatePending || j.Nodes != "" || wait < 115*time.Second || wait > 125*time.Second {
			t.Errorf("%+v, to begin in %s", j, wait)
		}
		// The database has the first instance; the second is not eligible yet.
		await(t, s.accounting(t, s.name), in(sbatch.StateRequeued))
		if refusal := s.requeue(t, id); refusal != "Job is pending execution" {
			t.Errorf("requeued while it is pending: %q", refusal)
		}
	})
}

func TestJobThatHasEndedCanBeRequeued(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, with(s.request("exit 3"), "--requeue"))
		await(t, s.jobs(t, s.name), in(sbatch.StateFailed))
		await(t, s.accounting(t, s.name), in(sbatch.StateFailed))
		if refusal := s.requeue(t, id); refusal != "" {
			t.Fatal(refusal)
		}
		if j := s.observe(t).ByName()[s.name]; len(j) != 1 || j[0].ID != id || j[0].State != sbatch.StatePending || j[0].Nodes != "" {
			t.Errorf("%+v", j)
		}
		if s.version.Since(slurmtest.Slurm2605) { // the database keeps its end
			if s.real != nil {
				s.awaitInstances(t, id, 2)
			}
			if j := s.accounting(t, s.name)(); len(j) != 1 || j[0].State != sbatch.StateFailed || j[0].Exit != "3:0" {
				t.Errorf("%+v", j)
			}
			return
		}
		await(t, s.accounting(t, s.name), in(sbatch.StateRequeued))
	})
}

// awaitInstances waits until the real database has that many instances of a job.
func (s *slurm) awaitInstances(t *testing.T, id sbatch.JobID, n int) {
	t.Helper()
	var found []sbatch.Job
	testenv.Await(t, fmt.Sprintf("job %s has %d instances", id, n), func() bool {
		var err error
		if found, err = s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), sbatch.Which{IDs: []sbatch.JobID{id}}); err != nil {
			t.Fatal(err)
		}
		return len(found) == n
	}, &found)
}

func TestJobThatMayNotBeRequeuedIsNot(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, s.request("exec sleep 600"))
		await(t, s.jobs(t, s.name), in(sbatch.StateRunning))
		if refusal := s.requeue(t, id); refusal != "Requested operation is presently disabled" {
			t.Error(refusal)
		}
		if j := s.observe(t).ByName()[s.name]; j[0].State != sbatch.StateRunning {
			t.Errorf("%+v", j)
		}
	})
}

func TestSuspendedJobKeepsItsNodeAndGoesOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		begun := filepath.Join(s.dir, "begun")
		id := s.submit(t, s.request("echo $$ >"+begun+"; sleep 600 & wait"))
		pid := writtenPID(t, begun)
		s.suspend(t, id, false)
		if j := await(t, s.jobs(t, s.name), in(sbatch.StateSuspended)); j.State.Ended() || j.Nodes == "" {
			t.Errorf("%+v", j)
		}
		await(t, s.accounting(t, s.name), in(sbatch.StateSuspended))
		testenv.Await(t, "the suspended process is stopped", func() bool { return testenv.Stopped(pid) })
		s.suspend(t, id, true)
		testenv.Await(t, "the resumed process goes on", func() bool { return !testenv.Stopped(pid) })
		await(t, s.jobs(t, s.name), in(sbatch.StateRunning))
	})
}

func TestSuspendedJobGetsKillWithoutTerm(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		told, begun := filepath.Join(s.dir, "told"), filepath.Join(s.dir, "begun")
		id := s.submit(t, s.request("trap 'echo >"+told+"' TERM; echo $$ >"+begun+"; sleep 600 & wait"))
		pid := writtenPID(t, begun)
		s.suspend(t, id, false)
		await(t, s.jobs(t, s.name), in(sbatch.StateSuspended))
		// slurmctld answers before slurmd has stopped anything (slurmd/req.c, _rpc_suspend_job).
		testenv.Await(t, "the process is stopped", func() bool { return testenv.Stopped(pid) })
		if err := s.Cancel(t.Context(), s.name, id); err != nil {
			t.Fatal(err)
		}
		await(t, s.jobs(t, s.name), in(sbatch.StateCancelled))
		await(t, s.accounting(t, s.name), in(sbatch.StateCancelled))
		if _, err := os.Stat(told); err == nil {
			t.Error("it was told TERM")
		}
	})
}

// writtenPID waits for a job's script to write its process id into a file.
func writtenPID(t *testing.T, path string) int {
	t.Helper()
	var pid int
	testenv.Await(t, "the job has written its process id", func() bool {
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

func TestNodeThatIsDrainedKeepsJobsWaitingAndOneSetDownFailsThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		t.Cleanup(func() {
			if s.real == nil {
				return
			}
			state := s.admin(t, "sinfo", "-h", "-N", "-p", "gpu", "-n", "n4", "-o", "%T")
			if strings.HasPrefix(state, "down") || strings.HasPrefix(state, "drain") { // in other states it is back by itself
				s.setN4(t, slurmtest.NodeResume)
			}
		})
		onN4 := func(suffix string, extra ...string) sbatch.Request {
			r := with(named(s.request("exec sleep 600"), suffix), append(extra, "--nodelist=n4")...)
			r.Partition = "short"
			return r
		}
		s.setN4(t, slurmtest.NodeDrain)
		lost, again := s.submit(t, onN4("-lost")), s.submit(t, onN4("-again", "--requeue"))
		reason := s.either("ReqNodeNotAvail, UnavailableNodes:n4", "ReqNodeNotAvail, May be reserved for other job")
		waits := func(j sbatch.Job) bool { return j.Reason == reason }
		await(t, s.jobs(t, s.name+"-lost"), waits)
		await(t, s.jobs(t, s.name+"-again"), waits)
		s.setN4(t, slurmtest.NodeResume)
		await(t, s.jobs(t, s.name+"-lost"), in(sbatch.StateRunning))
		await(t, s.jobs(t, s.name+"-again"), in(sbatch.StateRunning))
		var others answer
		testenv.Await(t, "no job of another test runs on n4", func() bool {
			if s.real == nil {
				return true
			}
			others = s.command(t, "squeue", "--all", "--noheader", "--nodelist=n4", "--states=RUNNING,COMPLETING", "--format=%A")
			return len(strings.Fields(others.Out)) == 2
		}, &others)
		s.setN4(t, slurmtest.NodeDown)
		now := s.observe(t).ByName()
		// Slurm 22.05 has once shown no reason: the bridge goes by the state.
		j := now[s.name+"-lost"]
		if j[0].ID != lost || j[0].State != sbatch.StateNodeFail || j[0].Reason != "NodeDown" && j[0].Reason != "None" || j[0].Nodes != "n4" {
			t.Errorf("that may not be requeued: %+v", j)
		}
		if j := now[s.name+"-again"]; j[0].ID != again || j[0].State != sbatch.StatePending || j[0].Nodes != "" {
			t.Errorf("that may be requeued: %+v", j)
		}
		await(t, s.jobs(t, s.name+"-again"), func(j sbatch.Job) bool { return j.Reason == "BeginTime" })
		await(t, s.accounting(t, s.name+"-lost"), in(sbatch.StateNodeFail))
		await(t, s.accounting(t, s.name+"-again"), in(sbatch.StateNodeFail))
	})
}

func TestAccountingLacksAJobThatWasNeverEligible(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, s.request("exec sleep 600"))
		held := s.submit(t, named(s.held(), "-held"))
		await(t, s.accounting(t, s.name), in(sbatch.StateRunning))
		for id, name := range map[sbatch.JobID]string{id: s.name, held: s.name + "-held"} {
			if err := s.Cancel(t.Context(), name, id); err != nil {
				t.Fatal(err)
			}
		}
		await(t, s.accounting(t, s.name), in(sbatch.StateCancelled))
		if jobs := s.accounting(t, s.name+"-held")(); len(jobs) != 0 {
			t.Errorf("a job that was never eligible: %+v", jobs)
		}
	})
}

func TestJobOfAnotherUserIsNeitherObservedNorCancelled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submitAsRoot(t)
		if found := s.observe(t).ByName()[s.name]; len(found) != 0 {
			t.Errorf("%+v", found)
		}
		if err := s.Cancel(t.Context(), s.name, id); err == nil || !strings.Contains(err.Error(), "Access/permission denied") {
			t.Errorf("cancelled another's job: %v", err)
		}
		if err := s.Cancel(t.Context(), "another", id); err != nil {
			t.Errorf("by another name: %v", err)
		}
	})
}
