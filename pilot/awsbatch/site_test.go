package awsbatch_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// connect returns a client of the service at an address, which retries without long pauses.
func connect(url string) awsbatch.Client {
	settings := aws.Config{
		Region: awstest.Region, BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", ""),
	}
	return awsbatch.Client{Region: awstest.Region, Batch: batch.NewFromConfig(settings), Logs: cloudwatchlogs.NewFromConfig(settings)}
}

// open returns a backend at an address.
func open(url, mark string) *awsbatch.Backend {
	return &awsbatch.Backend{
		Client: connect(url), Queue: "codalab-batch-cpu", Mark: mark, Now: time.Now, FollowEvery: 10 * time.Millisecond,
		Definition: awsbatch.Definition{Name: "codalab-worker", Image: "lab/cl-worker:1", User: "root", CPUs: 1, MemoryMB: 2048},
		Worker:     pilot.Worker{Executable: "cl-worker", Server: "http://server:2900", WorkDir: awsbatch.WorkDir, IdleSeconds: 600},
	}
}

// cloudSite is a Cloud for the suite.
type cloudSite struct{ *awstest.Cloud }

// newCloudSite returns a Cloud whose workers print the lines of the suite.
func newCloudSite(t *testing.T) cloudSite {
	t.Helper()
	c := awstest.New(t, time.Now)
	c.Page, c.Done = pilottest.PageSize, pilottest.Done
	c.Begun = func(j *awstest.Job) []string {
		return []string{pilottest.HasToken + j.Environment["CODALAB_WORKER_TOKEN"], pilottest.Begun}
	}
	return cloudSite{c}
}

func (s cloudSite) Open(manager string) pilot.Backend { return open(s.URL, manager) }

func (s cloudSite) LoseAnswer() { s.Cloud.LoseAnswer("SubmitJob") }

func (s cloudSite) Vanish(_ *testing.T, name string) { s.Forget(name) }

func (s cloudSite) Finish(t *testing.T, name string) {
	t.Helper()
	if !s.End(name, 0, pilottest.Done) {
		t.Fatalf("there is no job %s", name)
	}
}

// misconfigured is the reason of a job that no instance can run (Batch user guide, Jobs stuck in a RUNNABLE status).
const misconfigured = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is higher than that can be met by the CE(s) attached to the job queue."

func (s cloudSite) OpenTroubled(manager string) (b pilot.Backend, words string) {
	s.Stuck = misconfigured
	return s.Open(manager), "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"
}

func TestSuiteOnDocumentedRules(t *testing.T) {
	t.Parallel()
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		return newCloudSite(t)
	})
}

// TestSuiteOnStates is the suite for a manager whose jobs of the last week are too many to be listed by name.
func TestSuiteOnStates(t *testing.T) {
	t.Parallel()
	pilottest.Run(t, func(t *testing.T) pilottest.Site {
		t.Helper()
		return oldSite{newCloudSite(t)}
	})
}

// oldSite is a Cloud in which each manager has had many workers.
type oldSite struct{ cloudSite }

func (s oldSite) Open(manager string) pilot.Backend {
	b := open(s.URL, manager)
	s.AddEnded("codalab-batch-cpu", 6*pilottest.PageSize, b.NewName)
	return b
}
