package awstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/batch"
)

// The only region and account of a Cloud.
const (
	Region  = "us-east-1"
	account = "123456789012"
)

// Cloud is AWS Batch and CloudWatch Logs in memory. Its exported fields may be changed between two requests.
type Cloud struct {
	Gate
	URL string

	mu sync.Mutex
	// Page is the most jobs, definitions or lines in one answer; 0 means AWS's own number.
	Page int
	// Queues and Environments are the job queues and compute environments, by name, as AWS shows them.
	Queues, Environments map[string]map[string]any
	// Denied are the operations that this account may not call, in small letters.
	Denied map[string]bool
	// Begun returns the first lines of a job's container, and Done is its last one after TERM. If Begun is set, each
	// answer about jobs moves those that have not ended by one state.
	Begun func(j *Job) []string
	Done  string
	// Stuck is the reason for which jobs stay RUNNABLE; empty for those that start.
	Stuck string
	// Hidden are the names of jobs that the answers do not have yet.
	Hidden map[string]bool

	jobs        []*Job
	definitions []map[string]any
	now         func() time.Time
}

// Job is a job of a Cloud.
type Job struct {
	ID, Name, Queue, Definition   string
	Status, StatusReason          string
	Created, Started, Stopped     int64
	ExitCode                      *int32
	ContainerReason, Instance     string
	Command                       []string
	Environment                   map[string]string
	Terminated, Cancelled, Logged bool
	Lines                         []string
}

// New returns a cloud with the job queue "codalab-batch-cpu" and its compute environment "cpu", which ends with the test.
// now is its clock.
func New(tb testing.TB, now func() time.Time) *Cloud {
	tb.Helper()
	c := &Cloud{now: now, Denied: map[string]bool{}, Hidden: map[string]bool{}}
	c.Queues = map[string]map[string]any{"codalab-batch-cpu": {
		"jobQueueName": "codalab-batch-cpu", "jobQueueArn": arn("job-queue", "codalab-batch-cpu"), "state": "ENABLED", "status": "VALID",
		"statusReason": "JobQueue Healthy", "priority": 1,
		"computeEnvironmentOrder": []map[string]any{{"order": 1, "computeEnvironment": arn("compute-environment", "cpu")}},
	}}
	c.Environments = map[string]map[string]any{"cpu": {
		"computeEnvironmentName": "cpu", "computeEnvironmentArn": arn("compute-environment", "cpu"), "type": "MANAGED", "state": "ENABLED",
		"status": "VALID", "statusReason": "ComputeEnvironment Healthy", "ecsClusterArn": "arn:aws:ecs:us-east-1:" + account + ":cluster/cpu",
		"computeResources": map[string]any{"type": "EC2", "minvCpus": 0, "maxvCpus": 256, "instanceTypes": []string{"optimal"}, "subnets": []string{"subnet-1"}},
	}}
	c.Service = http.HandlerFunc(c.answer)
	server := httptest.NewServer(&c.Gate)
	tb.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Client returns a client of AWS Batch.
func (c *Cloud) Client() *batch.Client {
	return batch.New(batch.Options{Region: Region, BaseEndpoint: &c.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", "")})
}

func arn(kind, name string) string {
	return fmt.Sprintf("arn:aws:batch:%s:%s:%s/%s", Region, account, kind, name)
}

// Change calls change with all jobs while no request is answered.
func (c *Cloud) Change(change func(jobs []*Job)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.jobs)
}

// Set changes one job while no request is answered, and reports whether there is one of this name.
func (c *Cloud) Set(name string, change func(j *Job)) bool {
	found := false
	c.Change(func(jobs []*Job) {
		for _, j := range jobs {
			if j.Name == name {
				found = true
				change(j)
			}
		}
	})
	return found
}

// advance moves the jobs by one state.
func (c *Cloud) advance() {
	if c.Begun == nil {
		return
	}
	states := []string{"SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"}
	for _, j := range c.jobs {
		if i := slices.Index(states, j.Status); i >= 0 && i < len(states)-1 {
			switch {
			case j.Status == "RUNNABLE" && c.Stuck != "":
				j.StatusReason = c.Stuck
				continue
			case j.Status == "STARTING":
				c.run(j, c.Begun(j)...)
			}
			j.Status = states[i+1]
		}
	}
}

// Run gives a job its container, which prints lines.
func (c *Cloud) Run(name string, lines ...string) bool {
	return c.Set(name, func(j *Job) { c.run(j, lines...) })
}

func (c *Cloud) run(j *Job, lines ...string) {
	j.Status, j.StatusReason, j.Started, j.Logged = "RUNNING", "", c.now().UnixMilli(), true
	j.Instance = "arn:aws:ecs:us-east-1:" + account + ":container-instance/cpu/0123456789abcdef"
	j.Lines = append(j.Lines, lines...)
}

// End ends a job's container with an exit code, after it has printed lines.
func (c *Cloud) End(name string, code int32, lines ...string) bool {
	return c.Set(name, func(j *Job) {
		j.Status, j.StatusReason, j.ExitCode, j.Stopped = "SUCCEEDED", "Essential container in task exited", &code, c.now().UnixMilli()
		if code != 0 {
			j.Status = "FAILED"
		}
		j.Lines = append(j.Lines, lines...)
	})
}

// Fail ends a job with AWS's reason.
func (c *Cloud) Fail(name, reason string) bool {
	return c.Set(name, func(j *Job) { j.Status, j.StatusReason, j.Stopped = "FAILED", reason, c.now().UnixMilli() })
}

// Forget removes a job.
func (c *Cloud) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = slices.DeleteFunc(c.jobs, func(j *Job) bool { return j.Name == name })
}

// AddEnded adds n jobs that ended three days ago. name returns their names.
func (c *Cloud) AddEnded(queue string, n int, name func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.now().Add(-72 * time.Hour).UnixMilli()
	for range n {
		c.jobs = append(c.jobs, &Job{
			ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(c.jobs)+1), Name: name(), Queue: queue, Status: "SUCCEEDED",
			Created: at, Started: at, Stopped: at, Logged: true,
		})
	}
}

// Add adds a job of somebody else, which runs if running is set and waits otherwise.
func (c *Cloud) Add(queue, name string, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := &Job{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(c.jobs)+1), Name: name, Queue: queue, Status: "RUNNABLE", Created: c.now().UnixMilli()}
	c.jobs = append(c.jobs, j)
	if running {
		c.run(j)
	}
}

// Named returns copies of the jobs of a name.
func (c *Cloud) Named(name string) []Job {
	var found []Job
	c.Change(func(jobs []*Job) {
		for _, j := range jobs {
			if j.Name == name {
				found = append(found, *j)
			}
		}
	})
	return found
}

// Definitions returns the number of registered revisions.
func (c *Cloud) Definitions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.definitions)
}

// Deregister makes all revisions inactive.
func (c *Cloud) Deregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.definitions {
		d["status"] = "INACTIVE"
	}
}

// Registered returns the JSON text of a revision, counted from 0.
func (c *Cloud) Registered(i int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _ := json.Marshal(c.definitions[i]) // it came as JSON
	return string(text)
}
