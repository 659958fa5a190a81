package awsbatch_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

// TestJobFilterCountsTheJobsThatItMatches has jobs of CodaLab's manager, which all have the name of their definition, and of
// others in the queue.
func TestJobFilterCountsTheJobsThatItMatches(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string][2]int{
		``:                                    {0, 0},
		`codalab-worker`:                      {2, 3},
		`codalab`:                             {0, 0}, // a part of a name
		`codalab-worker|codalab-worker-gpu.*`: {2, 4},
		`Codalab-worker`:                      {0, 0},
		`cl_worker_.*`:                        {0, 1}, // this manager's own jobs count once
		`.*`:                                  {3, 6},
	} {
		c, b := openCloud(t)
		if filter != "" {
			b.Filter = regexp.MustCompile(`\A(?:` + filter + `)\z`)
		}
		c.Page = 2
		for i := range 5 {
			c.Add("codalab-batch-cpu", "codalab-worker", i > 1)
		}
		c.Add("codalab-batch-cpu", "codalab-worker-gpu-2", true)
		c.Add("codalab-batch-cpu", "cl_worker_other_"+pilot.NewID(), true)
		c.Add("codalab-batch-cpu", "CL_WORKER_CODALAB_"+pilot.NewID(), true)
		c.Add("codalab-batch-cpu", "cl_worker_codalab_of-a-person", false)
		c.Add("another-queue", "codalab-worker", true)
		own := start(t, b)
		if filter == `cl_worker_.*` {
			want[0]++ // cl_worker_codalab_of-a-person
		}
		for range 2 { // the first answer is asked for by name
			got := pilots(t, b)
			if len(got) != 1 || got[own.Name].Job != own.Job {
				t.Errorf("%q: shown are %v", filter, got)
			}
			if pending, active := b.Others(); [2]int{pending, active} != want {
				t.Errorf("%q: %d wait and %d run, want %v", filter, pending, active, want)
			}
		}
	}
}

// A job may change its state between two of the five requests.
func TestOtherJobThatIsListedTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	b.Filter = regexp.MustCompile(`\Acodalab-worker\z`)
	c.Begun = func(*awstest.Job) []string { return nil } // each answer moves jobs by one state
	c.Add("codalab-batch-cpu", "codalab-worker", false)
	pilots(t, b)
	if pending, active := b.Others(); pending != 0 || active != 1 {
		t.Errorf("%d wait and %d run", pending, active)
	}
}

func TestLocateAsksForAHundredRunningWorkersAtOnce(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	for i := range 210 {
		name := start(t, b).Name
		if i%2 == 0 {
			c.Run(name)
			c.Set(name, func(j *awstest.Job) {
				j.Instance = fmt.Sprintf("arn:aws:ecs:us-east-1:123456789012:container-instance/cpu/instance%d", i)
			})
		}
	}
	shown, err := open(c.URL, "codalab").Pilots(t.Context())
	testenv.Must(t, err)
	if n := c.Requests("DescribeJobs"); n != 0 {
		t.Errorf("a look has asked for details %d times", n)
	}
	testenv.Must(t, b.Locate(t.Context(), shown))
	for i, p := range shown {
		want := ""
		if i%2 == 0 {
			want = fmt.Sprintf("instance%d", i)
		}
		if p.Node != want {
			t.Errorf("worker %d is on %q, want %q", i, p.Node, want)
		}
	}
	if n := c.Requests("DescribeJobs"); n != 2 { // for 105 running workers
		t.Errorf("%d requests were sent", n)
	}
}

// A manager that waits for long does not ask for instances.
func TestLooksDoNotAskForInstances(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	now := &clock{time.Now()}
	b.Now = now.now
	c.Run(start(t, b).Name)
	for range 5 {
		pilots(t, b)
		now.Time = now.Add(time.Minute)
	}
	if n := c.Requests("DescribeJobs"); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
