package sbatch_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// What of Slurm's ways surprises, on the real cluster and on the fakes. What
// takes the real one too long, or would disturb others on it, is shown of the
// fake alone, in package slurmtest: the end by time limit (looked at every 30
// seconds), the purge of old jobs, the loss of a node, and the absence of the
// controller and of the database.

func TestEndsOfBatchScripts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		type end struct {
			State  sbatch.State
			Reason string
		}
		want := map[string]end{
			"exit 0":     {sbatch.StateCompleted, "None"},
			"exit 3":     {sbatch.StateFailed, "NonZeroExitCode"},
			"kill -9 $$": {sbatch.StateFailed, "JobLaunchFailure"}, // whoever killed it
			"kill $$":    {sbatch.StateFailed, "JobLaunchFailure"},
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
			{"no output", func(r *sbatch.Request) { r.Output = "/nonexistent/out" }, end{sbatch.StateFailed, "JobLaunchFailure"}},
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
		until(t, func() bool { _, err := os.Stat(filepath.Join(s.dir, "begun")); return err == nil }, "no child")
		began := time.Now()
		if err := s.Cancel(t.Context(), id, s.name); err != nil {
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
		if got := s.command(t, "scontrol", "requeue", id.String()); got != (said{}) {
			t.Fatalf("%+v", got)
		}
		before := time.Now()
		first := s.observe(t).ByName()[s.name]
		if state := first[0].State; state != sbatch.StateCompleting && state != sbatch.StatePending {
			t.Errorf("at once: %+v", first)
		}
		j := await(t, s.jobs(t, s.name), func(j sbatch.Job) bool { return j.Reason == "BeginTime" })
		if wait := j.Start.Sub(before); j.ID != id || j.State != sbatch.StatePending || j.Nodes != "" || wait < 115*time.Second || wait > 125*time.Second {
			t.Errorf("%+v, to begin in %s", j, wait)
		}
		if shown := s.command(t, "scontrol", "show", "job", id.String()); !strings.Contains(shown.Out, " Restarts=1 ") {
			t.Errorf("%+v", shown)
		}
		// The accounts have the first instance; the second is not eligible yet.
		await(t, s.accounts(t, s.name), in(sbatch.StateRequeued))
		if again := s.command(t, "scontrol", "requeue", id.String()); again.Exit != 1 || again.Err != "Job is pending execution for job "+id.String() {
			t.Errorf("requeued while it is pending: %+v", again)
		}
	})
}

func TestJobThatHasEndedCanBeRequeued(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, with(s.request("exit 3"), "--requeue"))
		await(t, s.jobs(t, s.name), in(sbatch.StateFailed))
		await(t, s.accounts(t, s.name), in(sbatch.StateFailed))
		if got := s.command(t, "scontrol", "requeue", id.String()); got != (said{}) {
			t.Fatalf("%+v", got)
		}
		if j := s.observe(t).ByName()[s.name]; len(j) != 1 || j[0].ID != id || j[0].State != sbatch.StatePending || j[0].Nodes != "" {
			t.Errorf("%+v", j)
		}
		// How it ended is forgotten.
		await(t, s.accounts(t, s.name), in(sbatch.StateRequeued))
	})
}

func TestJobThatMayNotBeRequeuedIsNot(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := s.submit(t, s.request("exec sleep 600"))
		await(t, s.jobs(t, s.name), in(sbatch.StateRunning))
		refused := said{Err: "Requested operation is presently disabled for job " + id.String(), Exit: 1}
		if d := cmp.Diff(refused, s.command(t, "scontrol", "requeue", id.String())); d != "" {
			t.Error(d)
		}
		if j := s.observe(t).ByName()[s.name]; j[0].State != sbatch.StateRunning {
			t.Errorf("%+v", j)
		}
	})
}

func TestNodeThatIsDrainedKeepsJobsWaitingAndOneSetDownFailsThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		update := func(settings ...string) {
			s.admin(t, append([]string{"scontrol", "update", "nodename=n4"}, settings...)...)
		}
		t.Cleanup(func() {
			state := s.admin(t, "sinfo", "-h", "-N", "-p", "gpu", "-n", "n4", "-o", "%T")
			if strings.HasPrefix(state, "down") || strings.HasPrefix(state, "drain") { // the real one is back by itself when it was down
				update("state=resume")
			}
		})
		onN4 := func(suffix string, extra ...string) sbatch.Request {
			r := with(named(s.request("exec sleep 600"), suffix), append(extra, "--nodelist=n4")...)
			r.Partition = "short"
			return r
		}
		update("state=drain", "reason=cltest")
		lost, again := s.submit(t, onN4("-lost")), s.submit(t, onN4("-again", "--requeue"))
		waits := func(j sbatch.Job) bool { return j.Reason == "ReqNodeNotAvail, UnavailableNodes:n4" }
		await(t, s.jobs(t, s.name+"-lost"), waits)
		await(t, s.jobs(t, s.name+"-again"), waits)
		update("state=resume")
		await(t, s.jobs(t, s.name+"-lost"), in(sbatch.StateRunning))
		await(t, s.jobs(t, s.name+"-again"), in(sbatch.StateRunning))
		var others said
		until(t, func() bool { // who run on this machine's cluster
			others = s.command(t, "squeue", "--all", "--noheader", "--nodelist=n4", "--states=RUNNING,COMPLETING", "--format=%A")
			return len(strings.Fields(others.Out)) == 2
		}, &others)
		update("state=down", "reason=cltest")
		now := s.observe(t).ByName()
		if j := now[s.name+"-lost"]; j[0].ID != lost || j[0].State != sbatch.StateNodeFail || j[0].Reason != "NodeDown" || j[0].Nodes != "n4" {
			t.Errorf("that may not be requeued: %+v", j)
		}
		if j := now[s.name+"-again"]; j[0].ID != again || j[0].State != sbatch.StatePending || j[0].Nodes != "" {
			t.Errorf("that may be requeued: %+v", j)
		}
		await(t, s.jobs(t, s.name+"-again"), func(j sbatch.Job) bool { return j.Reason == "BeginTime" })
		await(t, s.accounts(t, s.name+"-lost"), in(sbatch.StateNodeFail))
		await(t, s.accounts(t, s.name+"-again"), in(sbatch.StateNodeFail))
	})
}

func TestAccountsAreBehind(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		r := s.request("exec sleep 600")
		r.Comment = "a comment"
		id := s.submit(t, r)
		if jobs := s.accounts(t, s.name)(); len(jobs) != 0 {
			t.Errorf("at once: %+v", jobs)
		}
		held := s.submit(t, named(s.held(), "-held"))
		row := func() string {
			return s.command(t, "sacct", "-X", "-P", "-n", "--jobs="+id.String(), "--format=JobName,State,Comment,End").Out
		}
		want := s.name + "|RUNNING||Unknown\n"
		var last string
		until(t, func() bool {
			last = row()
			if name, rest, _ := strings.Cut(last, "|"); last != "" && name != "allocation" && name != s.name || strings.Contains(rest, r.Comment) {
				t.Fatalf("%q", last)
			}
			return last == want
		}, &last)
		for id, name := range map[sbatch.JobID]string{id: s.name, held: s.name + "-held"} {
			if err := s.Cancel(t.Context(), id, name); err != nil {
				t.Fatal(err)
			}
		}
		until(t, func() bool { // with its end the comment comes
			last = row()
			return strings.HasPrefix(last, s.name+"|CANCELLED by ") && strings.Contains(last, "|a comment|")
		}, &last)
		if jobs := s.accounts(t, s.name+"-held")(); len(jobs) != 0 {
			t.Errorf("a job that was never eligible: %+v", jobs)
		}
	})
}

func TestTasksOfAnArrayGetIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		out := filepath.Join(s.dir, "out.")
		r := with(s.request(`echo "$SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID"; exec sleep 600`), "--array=1-3%2", "--output="+out+"%a")
		id := s.submit(t, r)
		var tasks []sbatch.Job
		until(t, func() bool {
			tasks = s.observe(t).ByName()[s.name]
			return len(tasks) == 3 && tasks[1].State == sbatch.StateRunning && tasks[2].State == sbatch.StateRunning &&
				tasks[0].Reason == "JobArrayTaskLimit"
		}, &tasks)
		if tasks[0].ID != id || tasks[1].ID <= id || tasks[2].ID <= tasks[1].ID {
			t.Errorf("%+v, want the array's id for the task that waits", tasks)
		}
		var said []byte
		until(t, func() bool { said, _ = os.ReadFile(out + "1"); return len(said) > 0 }, "no output")
		if want := tasks[1].ID.String() + " " + id.String() + " 1\n"; string(said) != want {
			t.Errorf("the task says %q, want %q", said, want)
		}
		if err := s.Cancel(t.Context(), id, s.name); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { tasks = s.jobs(t, s.name)(); return allEnded(tasks) }, &tasks)
	})
}

func allEnded(jobs []sbatch.Job) bool {
	for _, j := range jobs {
		if !j.State.Ended() {
			return false
		}
	}
	return true
}

func TestArrayWithGapsIsListedWithoutItsLastTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		for array, want := range map[string]int{
			"2-20:2": 9, "0-15:3": 5, "2-12:2": 6, "1-13:3": 5, "0-22:11": 3, "1-5,8": 6,
		} {
			r := named(with(s.held(), "--array="+array), array)
			s.submit(t, r)
			if tasks := s.observe(t).ByName()[r.Name]; len(tasks) != want {
				t.Errorf("%s: %d tasks, want %d", array, len(tasks), want)
			}
		}
	})
}

func TestLoginShellsVariablesCountMoreThanTheScript(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		script := "#!/bin/sh\n#SBATCH --job-name=script --partition=cpu\n#SBATCH --hold\ntrue\n"
		submitted := s.commandIn(t, script, []string{"SBATCH_PARTITION=short", "SBATCH_JOB_NAME=" + s.name}, "sbatch", "--parsable")
		id, err := strconv.ParseInt(strings.TrimSpace(submitted.Out), 10, 64)
		if err != nil {
			t.Fatalf("%+v", submitted)
		}
		s.cancelLater(t, sbatch.JobID(id), s.name)
		if got := s.command(t, "squeue", "-h", "-j", strconv.FormatInt(id, 10), "-o", "%j %P %r").Out; got != s.name+" short JobHeldUser\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestWordsOfCommands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		const none, none2 = "66000000", "66000001"
		const noJob = "slurm_load_jobs error: Invalid job id specified"
		for line, want := range map[string]said{
			"sbatch --version": {Out: "slurm-wlm 22.05.8\n"},
			"sbatch -Z":        {Err: "sbatch: invalid option -- 'Z'\nTry \"sbatch --help\" for more information", Exit: 255},
			"sbatch --hold=3":  {Err: "sbatch: option '--hold' doesn't allow an argument\nTry \"sbatch --help\" for more information", Exit: 255},
			"sbatch --output":  {Err: "sbatch: option '--output' requires an argument\nTry \"sbatch --help\" for more information", Exit: 255},
			"sbatch /no/such":  {Err: "sbatch: error: Unable to open file /no/such", Exit: 1},
			// One that is gone is an error, two are not.
			"squeue -h -j " + none:                            {Err: noJob, Exit: 1},
			"squeue -h -j " + none + "," + none2:              {},
			"squeue -h -j 4000000000":                         {Err: "squeue: error: Invalid job id: 4000000000", Exit: 1},
			"squeue --bogus":                                  {Err: "squeue: unrecognized option '--bogus'\nTry \"squeue --help\" for more information", Exit: 1},
			"sacct --bogus":                                   {Err: "sacct: unrecognized option '--bogus'", Exit: 1},
			"sacct -X -n -P --jobs=" + none + " -o=":          {},
			"sacct --starttime=bogus":                         {Err: "Invalid time specification (pos=0): bogus", Exit: 1},
			"scancel " + none:                                 {}, // nothing to do
			"scancel --name=x " + none:                        {Err: "scancel: error: Kill job error on job id " + none + ": Invalid job id specified", Exit: 1},
			"scancel --quiet --name=x " + none:                {Exit: 1},
			"scancel abc":                                     {Err: "scancel: error: Invalid job id abc", Exit: 1},
			"scancel":                                         {Err: "scancel: error: No job identification provided", Exit: 1},
			"scontrol ping":                                   {Out: "Slurmctld(primary) at vm is UP\n"},
			"scontrol bogus":                                  {Err: "invalid keyword: bogus", Exit: 1},
			"scontrol show job " + none:                       {Err: noJob, Exit: 1},
			"scontrol requeue " + none:                        {Err: "Invalid job id specified for job " + none, Exit: 1},
			"scontrol create PartitionName=x":                 {Err: "Error creating the partition: Invalid user id", Exit: 1},
			"scontrol update nodename=n1 state=down reason=x": {Err: "slurm_update error: Invalid user id", Exit: 1},
			"sinfo --bogus":                                   {Err: "sinfo: unrecognized option '--bogus'\nTry \"sinfo --help\" for more information", Exit: 1},
			"sinfo -h -p cpu,gpu -o %R|%a|%l|%D":              {Out: "cpu|up|7-00:00:00|2\ngpu|up|2-00:00:00|2\n"},
		} {
			args := strings.Fields(strings.ReplaceAll(line, "-o=", "-o JobName"))
			got := s.command(t, args...)
			// getopt(3) says how the program was called.
			got.Err = strings.TrimPrefix(got.Err, s.Bin+"/")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", line, d)
			}
		}
	})
}

func TestOthersJobsAreNotOnesOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		id := strings.TrimSpace(s.admin(t, "sbatch", "--parsable", "--hold", "--job-name="+s.name, "--output=/dev/null", "--wrap=true"))
		t.Cleanup(func() { s.admin(t, "scancel", id) })
		if found := s.observe(t).ByName()[s.name]; len(found) != 0 {
			t.Errorf("%+v", found)
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cancel(t.Context(), sbatch.JobID(n), s.name); err == nil || !strings.Contains(err.Error(), "Access/permission denied") {
			t.Errorf("cancelled another's job: %v", err)
		}
		for _, args := range [][]string{{"--quiet", id}, {"--name=" + s.name, id}} {
			if got := s.command(t, append([]string{"scancel"}, args...)...); got.Exit != 210 {
				t.Errorf("scancel %v: %+v", args, got)
			}
		}
		if got := s.command(t, "scancel", "--name=another", id); got != (said{}) {
			t.Errorf("by another name: %+v", got)
		}
	})
}
