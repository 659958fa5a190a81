package awsbatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

// waiting makes a job RUNNABLE.
func waiting(c *awstest.Cloud, name, reason string) {
	c.Set(name, func(j *awstest.Job) { j.Status, j.StatusReason = "RUNNABLE", reason })
}

func TestReasonOfAJobThatBlocksTheQueueIsItsTrouble(t *testing.T) {
	t.Parallel()
	for reason, patience := range map[string]time.Duration{
		misconfigured: 10 * time.Minute,
		"MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue cannot meet the CPU requirement of the job.": 10 * time.Minute,
		"MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS - Batch service role has a permission issue.":                                              10 * time.Minute,
		"ACTION_REQUIRED - CE(s) associated with the job queue are invalid.":                                                                  10 * time.Minute,
		"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for instance type [p3.2xlarge]":              2 * time.Hour,
		"UNDETERMINED - Batch job is blocked, root cause is undetermined.":                                                                    2 * time.Hour,
		"": 0,
	} {
		c, b := openCloud(t)
		p := start(t, b)
		waiting(c, p.Name, reason)
		if got := pilots(t, b)[p.Name]; got.Trouble != reason || got.Patience != patience {
			t.Errorf("%q: the trouble is %q, the patience %s", reason, got.Trouble, got.Patience)
		}
	}
}

func TestQueueIsAskedAboutAJobThatWaitsForLong(t *testing.T) {
	t.Parallel()
	computeResources := func(c *awstest.Cloud) map[string]any {
		return c.Environments["cpu"]["computeResources"].(map[string]any)
	}
	for name, test := range map[string]struct {
		change func(c *awstest.Cloud, b *awsbatch.Backend)
		want   string
	}{
		"all is well": {func(*awstest.Cloud, *awsbatch.Backend) {}, ""},
		"the queue is INVALID": {func(c *awstest.Cloud, _ *awsbatch.Backend) {
			c.Queues["codalab-batch-cpu"]["status"], c.Queues["codalab-batch-cpu"]["statusReason"] = "INVALID", "no environment"
		}, "the job queue codalab-batch-cpu is INVALID: no environment"},
		"the environment is INVALID": {func(c *awstest.Cloud, _ *awsbatch.Backend) {
			c.Environments["cpu"]["status"], c.Environments["cpu"]["statusReason"] = "INVALID", "CLIENT_ERROR - Not authorized to perform sts:AssumeRole"
		}, "the compute environment cpu is INVALID: CLIENT_ERROR - Not authorized to perform sts:AssumeRole"},
		"the environment is DISABLED": {func(c *awstest.Cloud, _ *awsbatch.Backend) { c.Environments["cpu"]["state"] = "DISABLED" }, "the compute environment cpu is DISABLED"},
		"no instance has GPUs": {
			func(_ *awstest.Cloud, b *awsbatch.Backend) { b.Definition.GPUs = 2 },
			"the compute environment cpu has only instance types without GPUs, optimal, and a worker asks for 2",
		},
		"an instance has GPUs": {func(c *awstest.Cloud, b *awsbatch.Backend) {
			b.Definition.GPUs = 2
			computeResources(c)["instanceTypes"] = []string{"m5.large", "g4dn"}
		}, ""},
		"too few CPUs": {
			func(_ *awstest.Cloud, b *awsbatch.Backend) { b.Definition.CPUs = 300 },
			"the compute environment cpu has at most 256 vCPUs, and a worker asks for 300",
		},
		"Fargate": {
			func(c *awstest.Cloud, _ *awsbatch.Backend) { computeResources(c)["type"] = "FARGATE" },
			"the compute environment cpu is of type FARGATE, and workers need instances of EC2",
		},
		"EKS": {
			func(c *awstest.Cloud, _ *awsbatch.Backend) {
				c.Environments["cpu"]["containerOrchestrationType"] = "EKS"
			},
			"the compute environment cpu is of EKS, and workers need one of ECS",
		},
		"the account may not ask": {func(c *awstest.Cloud, _ *awsbatch.Backend) {
			c.Queues["codalab-batch-cpu"]["status"], c.Denied["describejobqueues"] = "INVALID", true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, b := openCloud(t)
			now := &clock{time.Now()}
			b.Now = now.now
			p := start(t, b)
			waiting(c, p.Name, "")
			test.change(c, b)
			now.Time = now.Add(time.Minute)
			if got := pilots(t, b)[p.Name]; got.Trouble != "" || c.Requests("DescribeJobQueues") != 0 {
				t.Errorf("after a minute the trouble is %q", got.Trouble)
			}
			for range 3 { // the queue is asked once
				now.Time = now.Add(5*time.Minute + time.Second)
				if got := pilots(t, b)[p.Name]; got.Trouble != test.want {
					t.Errorf("the trouble is %q, want %q", got.Trouble, test.want)
				}
				now.Time = now.Add(-5 * time.Minute)
			}
			if n := c.Requests("DescribeJobQueues"); n != 1 {
				t.Errorf("the queue was asked %d times", n)
			}
		})
	}
}

func TestCheckTellsEachNeed(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	for _, f := range b.Check(t.Context()) {
		if !f.OK {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
	if c.Definitions() != 0 || len(pilots(t, b)) != 0 {
		t.Error("it has changed something")
	}
	bad, b := openCloud(t)
	for _, operation := range []string{"listjobs", "describejobdefinitions", "registerjobdefinition", "submitjob", "terminatejob", "getlogevents"} {
		bad.Denied[operation] = true
	}
	bad.Queues["codalab-batch-cpu"]["state"], b.Definition.GPUs = "DISABLED", 1
	want := map[string]string{
		"job queue": "is DISABLED", "instances": "without GPUs", "list jobs": "not authorized", "job definition": "not authorized",
		"register definitions": "not authorized", "start jobs": "not authorized", "end jobs": "not authorized", "read logs": "not authorized",
	}
	for _, f := range b.Check(t.Context()) {
		if f.OK || !strings.Contains(f.Text, want[f.Name]) {
			t.Errorf("%s: %t, %s", f.Name, f.OK, f.Text)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
}
