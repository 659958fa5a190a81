package sbatch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// states returns the states of jobs by their ids. No two may have the same id.
func states(t *testing.T, jobs []sbatch.Job) map[sbatch.JobID]sbatch.State {
	t.Helper()
	found := map[sbatch.JobID]sbatch.State{}
	for _, j := range jobs {
		if _, twice := found[j.ID]; twice {
			t.Fatalf("%s is there twice: %+v", j.ID, jobs)
		}
		found[j.ID] = j.State
	}
	return found
}

// awaitStates waits until jobs have these states.
func awaitStates(t *testing.T, look func() []sbatch.Job, want map[sbatch.JobID]sbatch.State) {
	t.Helper()
	var diff string
	testenv.Await(t, "the tasks are as wanted", func() bool { diff = cmp.Diff(want, states(t, look())); return diff == "" }, &diff)
}

// tasks returns a request for an array with a part of its own node, of which nine tasks run at once.
func (s *slurm) tasks(t *testing.T, n int, script string) sbatch.Request {
	t.Helper()
	partition := strings.Replace(s.name, "cltest", "cltest-array", 1)
	s.addPartition(t, slurmtest.Partition{Name: partition, Nodes: []string{"n3"}, DefaultTime: time.Hour}, "DefaultTime=60")
	r := s.request(script)
	r.Tasks, r.Partition, r.CPUs = n, partition, 7
	return r
}

func TestTasksOfAnArrayAreJobs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		dir := filepath.Join(s.dir, "100%a")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := s.tasks(t, 20, `echo "$SLURM_JOB_ID $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT"
			until [ -e go ]; do sleep .1; done; [ $SLURM_ARRAY_TASK_ID != 3 ] || exit 3`)
		r.Dir, r.OutputPattern = dir, sbatch.LiteralPattern(dir)+"/out-%A_%a"
		id := s.submit(t, r)
		want := map[sbatch.JobID]sbatch.State{}
		for i := range 20 {
			if want[id.Task(i)] = sbatch.StateRunning; i >= 9 {
				want[id.Task(i)] = sbatch.StatePending
			}
		}
		awaitStates(t, s.jobs(t, s.name), want)
		s.taskSays(t, filepath.Join(dir, "out-"+id.Task(4).String()), id.Task(4))
		for _, task := range []sbatch.JobID{id.Task(1), id.Task(16)} {
			if d, err := s.Describe(t.Context(), task); err != nil || d.Name != s.name || d.Partition != r.Partition {
				t.Errorf("%s is %+v, %v", task, d, err)
			}
		}

		cancel := func(name string) {
			if err := s.Cancel(t.Context(), name, id.Task(15), id.Task(2)); err != nil {
				t.Fatal(err)
			}
		}
		cancel("another") // none
		if diff := cmp.Diff(want, states(t, s.jobs(t, s.name)())); diff != "" {
			t.Errorf("cancelled by another name (-want +got):\n%s", diff)
		}
		cancel(s.name)
		now := states(t, s.jobs(t, s.name)())
		if state := now[id.Task(2)]; state != sbatch.StateCompleting && state != sbatch.StateCancelled {
			t.Errorf("a running task that was cancelled: %s", state)
		}
		if _, shown := now[id.Task(15)]; shown || now[id.Task(14)] != sbatch.StatePending {
			t.Errorf("of a task that was cancelled before it began nothing is left: %v", now)
		}
		if _, err := s.Describe(t.Context(), id.Task(15)); err == nil || !strings.Contains(err.Error(), "Invalid job id specified") {
			t.Errorf("%v", err)
		}
		cancel(s.name)
		cancel("")

		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		delete(want, id.Task(15))
		for task := range want {
			want[task] = sbatch.StateCompleted
		}
		want[id.Task(2)], want[id.Task(3)] = sbatch.StateCancelled, sbatch.StateFailed
		awaitStates(t, s.jobs(t, s.name), want)
		awaitStates(t, s.accounting(t, s.name), want)
		asked := []sbatch.JobID{id.Task(2), id.Task(3), id.Task(15), id.Task(19)}
		jobs, err := s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), sbatch.Which{IDs: asked})
		some := map[sbatch.JobID]sbatch.State{asked[0]: sbatch.StateCancelled, asked[1]: sbatch.StateFailed, asked[3]: sbatch.StateCompleted}
		if diff := cmp.Diff(some, states(t, jobs)); diff != "" || err != nil {
			t.Errorf("by ids: %v (-want +got):\n%s", err, diff)
		}
		if i := slices.IndexFunc(jobs, func(j sbatch.Job) bool { return j.ID == asked[1] }); jobs[i].Exit != "3:0" || jobs[i].Nodes != "n3" {
			t.Errorf("%+v", jobs[i])
		}
		all, err := s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), sbatch.Which{IDs: []sbatch.JobID{id}})
		if diff := cmp.Diff(want, states(t, all)); diff != "" || err != nil {
			t.Errorf("by the array's id: %v (-want +got):\n%s", err, diff)
		}
	})
}

// taskSays checks the output of a task: the number of its own that Slurm gave it, and then its identity.
func (s *slurm) taskSays(t *testing.T, path string, task sbatch.JobID) {
	t.Helper()
	var said []byte
	testenv.Await(t, "the task has printed a line", func() bool { said, _ = os.ReadFile(path); return len(said) > 0 && said[len(said)-1] == '\n' }, &said)
	own, rest, _ := strings.Cut(string(said), " ")
	array, index, _ := task.ArrayTask()
	if n, err := strconv.Atoi(own); rest != fmt.Sprintf("%s %d 20\n", array, index) || err != nil || n <= int(array) {
		t.Errorf("the task says %q", said)
	}
}

func TestWaitingTasksAreCancelledTogetherOrOneByOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		held := func(suffix string) (id sbatch.JobID, look func() []sbatch.Job) {
			r := named(s.held(), suffix)
			r.Tasks = 4
			return s.submit(t, r), s.jobs(t, r.Name)
		}
		all := func(id sbatch.JobID, state sbatch.State) map[sbatch.JobID]sbatch.State {
			return map[sbatch.JobID]sbatch.State{id.Task(0): state, id.Task(1): state, id.Task(2): state, id.Task(3): state}
		}
		is := func(what string, look func() []sbatch.Job, want map[sbatch.JobID]sbatch.State) {
			t.Helper()
			if diff := cmp.Diff(want, states(t, look())); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		id, look := held("-whole")
		is("held", look, all(id, sbatch.StatePending))
		if j := look()[0]; j.Reason != "JobHeldUser" || j.Nodes != "" {
			t.Errorf("%+v", j)
		}
		testenv.Must(t, s.Cancel(t.Context(), "", id))
		is("cancelled as a whole", look, all(id, sbatch.StateCancelled))

		id, look = held("-named")
		testenv.Must(t, s.Cancel(t.Context(), s.name+"-named", id))
		is("cancelled as a whole by its name", look, map[sbatch.JobID]sbatch.State{id: sbatch.StateCancelled})

		id, look = held("-tasks")
		testenv.Must(t, s.Cancel(t.Context(), s.name+"-tasks", id.Task(0), id.Task(2)))
		is("two are cancelled", look, map[sbatch.JobID]sbatch.State{id.Task(1): sbatch.StatePending, id.Task(3): sbatch.StatePending})
		testenv.Must(t, s.Cancel(t.Context(), "", id.Task(1), id.Task(3)))
		is("the last two are cancelled", look, map[sbatch.JobID]sbatch.State{id: sbatch.StateCancelled})
	})
}

func TestRequeuedTaskWaitsUnderItsID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		r := with(s.request("exec sleep 600"), "--requeue")
		r.Tasks = 2
		id := s.submit(t, r)
		awaitStates(t, s.jobs(t, s.name), map[sbatch.JobID]sbatch.State{id.Task(0): sbatch.StateRunning, id.Task(1): sbatch.StateRunning})
		if refusal := s.requeue(t, id.Task(1)); refusal != "" {
			t.Fatal(refusal)
		}
		awaitStates(t, s.jobs(t, s.name), map[sbatch.JobID]sbatch.State{id.Task(0): sbatch.StateRunning, id.Task(1): sbatch.StatePending})
	})
}

func TestArrayThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		for words, change := range map[string]func(*sbatch.Request){
			"Invalid job array specification": func(r *sbatch.Request) { r.Tasks = 10_002 }, // MaxArraySize is 10001
			"Job violates accounting/QOS policy (job submit limit, user's size and/or time limits) (QOSMaxSubmitJobPerUserLimit)": func(r *sbatch.Request) {
				r.Tasks, r.QOS = 3, "limited"
			},
		} {
			r := s.held()
			change(&r)
			_, err := s.Submit(t.Context(), r)
			var e *sbatch.Error
			if !errors.As(err, &e) || !e.Refused || e.Retry != (r.Tasks == 3) || e.Message != words {
				t.Errorf("%d tasks: %+v", r.Tasks, err)
			}
		}
		if jobs := s.jobs(t, s.name)(); len(jobs) != 0 {
			t.Errorf("%+v", jobs)
		}
	})
}

// Somebody's huge array costs little.
func TestHugeArrayIsOneJob(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		r := s.held()
		r.Tasks = sbatch.MostTasks + 1
		id := s.submit(t, r)
		if jobs := s.jobs(t, s.name)(); len(jobs) != 1 || jobs[0].ID != id || jobs[0].State != sbatch.StatePending {
			t.Errorf("%d jobs, the first %+v", len(jobs), jobs[0])
		}
	})
}

func TestArrayWithGapsIsListedWhole(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		for array, want := range map[string]int{
			"2-20:2": 10, "0-15:3": 6, "2-12:2": 6, "1-13:3": 5, "0-22:11": 3, "1-5,8": 6, "1-1000": 1000, "0-9%2": 10,
			"1,15,22,29,36,43,50,57,64,71,78,85,92,99,107,113,120,127,134,141,148,155": 22,
		} {
			r := named(with(s.held(), "--array="+array), array)
			s.submit(t, r)
			if tasks := s.observe(t).ByName()[r.Name]; len(tasks) != want {
				t.Errorf("%s: %d tasks, want %d", array, len(tasks), want)
			}
		}
	})
}
