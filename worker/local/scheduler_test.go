package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestJobsStartInTheirOrderEachWithProcessorsOfItsOwn(t *testing.T) {
	t.Parallel()
	two := cpus(t, 2)
	s := newSite(t, config(two))
	door := s.door("door")
	const script = `echo cpus $(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status); read line <door`
	var ids []sbatch.JobID
	for i := range 3 {
		ids = append(ids, s.submit(s.request(fmt.Sprint("j", i), script)))
	}
	want := affinity.Format(two[:1]) + " " + affinity.Format(two[1:])
	if got := s.printed("j0", "cpus") + " " + s.printed("j1", "cpus"); got != want {
		t.Errorf("the jobs run on %s, want %s", got, want)
	}
	if third := s.job(ids[2]); third.State != sbatch.StatePending || third.Reason != "Resources" || third.Nodes != "" {
		t.Errorf("third job: %+v", third)
	}
	door.open(t)
	first, third := s.printed("j2", "cpus"), s.await(ids[2], sbatch.StateRunning)
	if !strings.Contains(want, first) || third.Nodes != "n1" || third.Start.IsZero() {
		t.Errorf("third job on %s: %+v", first, third)
	}
	door.open(t)
	door.open(t)
	for _, id := range ids {
		s.await(id, sbatch.StateCompleted)
	}
}

func TestJobThatDoesNotFitLetsNoOtherPass(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 2))) // and 1 GiB
	door := s.door("door")
	ask := func(name string, mib int64) sbatch.JobID {
		r := s.request(name, "read line <door")
		r.MemoryMiB = mib
		return s.submit(r)
	}
	first := ask("first", 600)
	s.await(first, sbatch.StateRunning)
	wide, narrow := ask("wide", 600), ask("narrow", 1)
	s.startWaiting() // unless Run has done that
	if j := s.job(wide); j.State != sbatch.StatePending {
		t.Errorf("it has memory of another job: %+v", j)
	}
	if j := s.job(narrow); j.State != sbatch.StatePending {
		t.Errorf("it passed: %+v", j)
	}
	must(t, s.Cancel(t.Context(), "", wide))
	s.await(narrow, sbatch.StateRunning)
	door.open(t)
	door.open(t)
	s.await(first, sbatch.StateCompleted)
	s.await(narrow, sbatch.StateCompleted)
}

func TestJobSeesItsAllocationAndNoOther(t *testing.T) {
	t.Parallel()
	c := config(cpus(t, 1))
	c.Machine.GPUs = []GPU{{Index: 2, UUID: "GPU-a"}, {Index: 0, UUID: "GPU-b"}, {Index: 1, UUID: "GPU-c"}}
	c.Env = append(c.Env, "HOME=/home/ann", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n9", "SLURM_CLUSTER_NAME=lab", "SBATCH_ACCOUNT=x",
		"CUDA_VISIBLE_DEVICES=7", "ROCR_VISIBLE_DEVICES=7", "CL_WORKER_JOB=/other/1")
	s := newSite(t, c)
	r := s.request("a b", `pwd; cat; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= | sort; echo words >&2`)
	r.GPUs, r.MemoryMiB = 2, 100
	must(t, os.WriteFile(r.Output, []byte("before\n"), 0o600))
	id := s.submit(r)
	s.await(id, sbatch.StateCompleted)
	got, err := os.ReadFile(r.Output)
	must(t, err)
	want := strings.Join([]string{
		"before", s.files, "CL_WORKER_JOB=" + filepath.Join(s.records.dir, id.String()), "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
		"HOME=/home/ann", "PATH=/usr/bin:/bin", "SLURMD_NODENAME=n1", "SLURM_CLUSTER_NAME=lab", "SLURM_CPUS_PER_TASK=1", "SLURM_JOB_GPUS=2,0", "SLURM_JOB_ID=" + id.String(),
		"SLURM_JOB_NAME=a b", "SLURM_JOB_NODELIST=n1", "SLURM_MEM_PER_NODE=100", "words", "",
	}, "\n")
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestRunningJobsShareNoGPU(t *testing.T) {
	t.Parallel()
	c := config(cpus(t, 2))
	c.Machine.GPUs = []GPU{{Index: 1}, {Index: 0}}
	s := newSite(t, c)
	door := s.door("door")
	for _, name := range []string{"a", "b"} {
		r := s.request(name, `echo gpus $SLURM_JOB_GPUS "$CUDA_VISIBLE_DEVICES"; read line <door`)
		r.GPUs = 1
		s.submit(r)
	}
	if a, b := s.printed("a", "gpus"), s.printed("b", "gpus"); a != "1 " || b != "0 " {
		t.Errorf("GPUs %q and %q", a, b)
	}
	door.open(t)
	door.open(t)
}

func TestSnapshotShowsAllJobsAsSlurmDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	door := s.door("door")
	before := time.Now().Truncate(time.Second)
	var ids []sbatch.JobID
	for _, script := range []string{"exit 3", "kill -KILL $$", "true", "read line <door", "true"} {
		r := s.request("job", script)
		r.Comment = "of " + script
		ids = append(ids, s.submit(r))
	}
	s.await(ids[3], sbatch.StateRunning)
	asked := time.Now().Add(-time.Minute)
	snapshot, err := s.Observe(t.Context(), asked)
	must(t, err)
	if !snapshot.Asked.Equal(asked) {
		t.Errorf("asked at %v, not %v", snapshot.Asked, asked)
	}
	for i := range snapshot.Jobs {
		j := &snapshot.Jobs[i]
		if j.Submitted.Before(before) || j.Submitted.After(time.Now()) || j.Submitted.Nanosecond() != 0 || j.Start.Nanosecond() != 0 ||
			j.Nodes != "" && j.Start.Before(j.Submitted) {
			t.Errorf("times of %+v", *j)
		}
		j.Submitted, j.Start = time.Time{}, time.Time{}
	}
	want := []sbatch.Job{
		{ID: ids[0], Name: "job", State: sbatch.StateFailed, Reason: "NonZeroExitCode", Nodes: "n1", Exit: "3:0", Comment: "of exit 3"},
		{ID: ids[1], Name: "job", State: sbatch.StateFailed, Reason: "NonZeroExitCode", Nodes: "n1", Exit: "0:9", Comment: "of kill -KILL $$"},
		{ID: ids[2], Name: "job", State: sbatch.StateCompleted, Reason: "None", Nodes: "n1", Exit: "0:0", Comment: "of true"},
		{ID: ids[3], Name: "job", State: sbatch.StateRunning, Reason: "None", Nodes: "n1", Comment: "of read line <door"},
		{ID: ids[4], Name: "job", State: sbatch.StatePending, Reason: "Resources", Comment: "of true"},
	}
	if diff := cmp.Diff(want, snapshot.Jobs); diff != "" {
		t.Error(diff)
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids %v", ids)
	}
	door.open(t)
}

func TestAccountingAnswersByIDAndName(t *testing.T) {
	t.Parallel()
	var c clock
	conf := config(cpus(t, 1))
	conf.Now = c.now
	s := newSite(t, conf)
	ids := map[string]sbatch.JobID{}
	for _, name := range []string{"a", "b", "c"} {
		r := s.request(name, "true")
		r.Comment = "comment"
		ids[name] = s.submit(r)
		s.await(ids[name], sbatch.StateCompleted)
		c.advance(time.Minute)
	}
	for name, test := range map[string]struct {
		since time.Duration // before the last job was submitted
		which sbatch.Which
		want  string
	}{
		"ids":           {time.Hour, sbatch.Which{IDs: []sbatch.JobID{ids["b"], 99}}, "b"},
		"names":         {time.Hour, sbatch.Which{Names: []string{"c", "a", "x"}}, "ac"},
		"both":          {time.Hour, sbatch.Which{Names: []string{"a"}, IDs: []sbatch.JobID{ids["a"], ids["c"]}}, "ac"},
		"none":          {time.Hour, sbatch.Which{}, ""},
		"ended earlier": {90 * time.Second, sbatch.Which{Names: []string{"a", "b", "c"}}, "c"},
	} {
		jobs, err := s.QueryAccounting(t.Context(), c.now().Add(-test.since), test.which)
		must(t, err)
		got := ""
		for _, j := range jobs {
			got += j.Name
			if j.Comment != "" || j.Exit != sbatch.ExitedWell || j.State != sbatch.StateCompleted {
				t.Errorf("%s: %+v", name, j)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRequestThatTheMachineCanNeverServeIsRefused(t *testing.T) {
	t.Parallel()
	c := config([]int{0, 1, 2, 3})
	c.Machine.GPUs = []GPU{{Index: 0}}
	s := newSite(t, c)
	for words, change := range map[string]func(*sbatch.Request){
		"this worker has 4 CPUs, and the run asks for 8":          func(r *sbatch.Request) { r.CPUs = 8 },
		"this worker has 1 GPU, and the run asks for 2":           func(r *sbatch.Request) { r.GPUs = 2 },
		"this worker has 1g of memory, and the run asks for 1.5g": func(r *sbatch.Request) { r.MemoryMiB = 1536 },
		"this scheduler has no arrays of jobs":                    func(r *sbatch.Request) { r.Tasks = 2 },
		"the script does not begin with #! and an interpreter":    func(r *sbatch.Request) { r.Script = "true" },
	} {
		r := s.request("wide", "true")
		change(&r)
		_, err := s.Submit(t.Context(), r)
		var refused *sbatch.Error
		if !errors.As(err, &refused) || !refused.Refused || refused.Retry || refused.Message != words || refused.Op != "submit wide" {
			t.Errorf("want %q, got %+v", words, err)
		}
	}
	if snapshot, err := s.Observe(t.Context(), time.Now()); err != nil || len(snapshot.Jobs) > 0 {
		t.Errorf("refused requests made %+v, %v", snapshot, err)
	}
}

func TestSubmissionThatCannotBeRecordedIsRefusedForNow(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	must(t, os.Rename(s.dir, s.dir+".away"))
	_, err := s.Submit(t.Context(), s.request("a", "true"))
	must(t, os.Rename(s.dir+".away", s.dir))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, cancelled := s.Submit(ctx, s.request("a", "true"))
	for _, err := range []error{err, cancelled} {
		var refused *sbatch.Error
		if !errors.As(err, &refused) || !refused.Refused || !refused.Retry {
			t.Errorf("%+v", err)
		}
	}
	if s.await(s.submit(s.request("b", "true")), sbatch.StateCompleted); len(s.running()) > 0 {
		t.Error("a job that was refused runs")
	}
}

func TestJobThatCannotBeStartedFailsOnItsNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	r := s.request("a", "true")
	r.Dir = filepath.Join(s.files, "nosuch")
	if j := s.await(s.submit(r), sbatch.StateFailed); j.Nodes != "n1" || j.Reason != "JobLaunchFailure" || j.Exit != "" {
		t.Errorf("%+v", j)
	}
	r = s.request("b", "")
	r.Script = "#! /nosuch/interpreter -x\n"
	if j := s.await(s.submit(r), sbatch.StateFailed); j.Exit != "127:0" {
		t.Errorf("%+v", j)
	}
	s.await(s.submit(s.request("c", "true")), sbatch.StateCompleted)
}

func TestMachineIsOnePartition(t *testing.T) {
	t.Parallel()
	c := config([]int{1, 3})
	c.Machine.GPUs = []GPU{{Index: 0}}
	got, err := newSite(t, c).Partitions(t.Context())
	must(t, err)
	all := sbatch.NodeResources{CPUs: 2, GPUs: 1, Memory: 1 << 30}
	want := []sbatch.Partition{{Name: "local", Default: true, State: "up", Nodes: 1, Ready: 1, Most: all, All: all, Sizes: sbatch.NodeSizes{all}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEndedJobIsKeptForAWhileAndItsIDNeverComesBack(t *testing.T) {
	t.Parallel()
	var c clock
	conf := config(cpus(t, 1))
	conf.Now = c.now
	s := newSite(t, conf)
	one, two := s.submit(s.request("one", "true")), s.submit(s.request("two", "true"))
	s.await(one, sbatch.StateCompleted)
	s.await(two, sbatch.StateCompleted)
	c.advance(time.Hour - time.Minute)
	if snapshot, err := s.Observe(t.Context(), c.now()); err != nil || len(snapshot.Jobs) != 2 {
		t.Errorf("within the hour: %+v, %v", snapshot, err)
	}
	c.advance(time.Minute)
	if snapshot, err := s.Observe(t.Context(), c.now()); err != nil || len(snapshot.Jobs) != 0 {
		t.Errorf("after the hour: %+v, %v", snapshot, err)
	}
	s.wakeRun()
	files := func() string {
		names, err := filepath.Glob(filepath.Join(s.dir, "[0-9]*"))
		must(t, err)
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return strings.Join(names, " ")
	}
	last := ""
	testenv.Await(t, "the files of the first job are gone", func() bool { last = files(); return last == "2.json 2.script" }, &last)
	s.stop()
	again := openSite(t, s.dir, conf)
	if snapshot, err := again.Observe(t.Context(), c.now()); err != nil || len(snapshot.Jobs) != 0 {
		t.Errorf("after a restart: %+v, %v", snapshot, err)
	}
	if id := again.submit(again.request("three", "true")); id != two+1 {
		t.Errorf("id %s after %s", id, two)
	}
}

// cl-worker mistakes a cgroup of Slurm with its job's id for its own.
func TestNoJobHasTheIDOfAnAllocationAroundTheWorker(t *testing.T) {
	t.Parallel()
	s := &Scheduler{last: 4, avoided: []sbatch.JobID{6, 5, 3}}
	if id := s.nextID(); id != 7 {
		t.Errorf("id %s", id)
	}
}

func TestOneProcessAtATimeHasTheDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	if _, err := Open(s.dir, s.Config); err == nil || !strings.Contains(err.Error(), "another process has "+s.dir+" open") {
		t.Errorf("a second one: %v", err)
	}
	s.stop()
	openSite(t, s.dir, s.Config)
}

func TestUnreadableRecordIsNoMissingJob(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "of another job": `{"id": 2}`} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "1.json"), []byte(text), 0o600))
		for range 2 { // the first leaves no lock
			if _, err := Open(dir, config(nil)); err == nil || !strings.Contains(err.Error(), "1.json") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
