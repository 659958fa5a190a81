package awsbatch_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

// clock is a time that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// openCloud returns a cloud and a backend of the manager "codalab".
func openCloud(t *testing.T) (*awstest.Cloud, *awsbatch.Backend) {
	t.Helper()
	c := awstest.New(t, time.Now)
	return c, open(c.URL, "codalab")
}

// token is that of workers.
const token = "token-of-a-worker"

func start(t *testing.T, b *awsbatch.Backend) pilot.Pilot {
	t.Helper()
	p, err := b.Start(t.Context(), b.NewName(), token)
	testenv.Must(t, err)
	return p
}

// pilots returns the pilots by name.
func pilots(t *testing.T, b *awsbatch.Backend) map[string]pilot.Pilot {
	t.Helper()
	list, err := b.Pilots(t.Context())
	testenv.Must(t, err)
	named := map[string]pilot.Pilot{}
	for _, p := range list {
		if _, twice := named[p.Name]; twice {
			t.Errorf("%s is shown twice", p.Name)
		}
		named[p.Name] = p
	}
	return named
}

// kind is the certainty of a failed start.
type kind struct{ Uncertain, Transient bool }

func kindOf(err error) kind {
	var u pilot.Uncertain
	var t interface{ Transient() bool }
	return kind{errors.As(err, &u) && u.Uncertain(), errors.As(err, &t) && t.Transient()}
}

func TestStartSendsOneRequestAndKnowsWhetherAJobMayExist(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault func(c *awstest.Cloud)
		want  kind
		jobs  int
	}{
		"the answer is lost":     {func(c *awstest.Cloud) { c.LoseAnswer("SubmitJob") }, kind{true, true}, 1},
		"the service fails":      {func(c *awstest.Cloud) { c.Refuse("SubmitJob", 500, "ServerException", "Internal error") }, kind{true, true}, 0},
		"too many requests":      {func(c *awstest.Cloud) { c.Refuse("SubmitJob", 429, "TooManyRequestsException", "Too Many Requests") }, kind{false, true}, 0},
		"the queue is not there": {func(c *awstest.Cloud) { c.Refuse("SubmitJob", 400, "ClientException", "JobQueue x not found.") }, kind{false, false}, 0},
		"the session has ended": {func(c *awstest.Cloud) {
			c.Refuse("SubmitJob", 403, "ExpiredTokenException", "The security token included in the request is expired")
		}, kind{false, false}, 0},
		"the account may not":     {func(c *awstest.Cloud) { c.Denied["submitjob"] = true }, kind{false, false}, 0},
		"the queue takes no jobs": {func(c *awstest.Cloud) { c.Queues["codalab-batch-cpu"]["state"] = "DISABLED" }, kind{false, false}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := awstest.New(t, time.Now)
			b := open(c.URL, "codalab")
			test.fault(c)
			worker := b.NewName()
			_, err := b.Start(t.Context(), worker, token)
			if err == nil || kindOf(err) != test.want {
				t.Errorf("%v is %+v, want %+v", err, kindOf(err), test.want)
			}
			if n := c.Requests("SubmitJob"); n != 1 {
				t.Errorf("%d requests were sent", n)
			}
			if n := len(c.Named(worker)); n != test.jobs {
				t.Errorf("there are %d jobs, want %d", n, test.jobs)
			}
			if got := pilots(t, b); len(got) != test.jobs {
				t.Errorf("shown are %v", got)
			}
		})
	}
}

func TestServiceThatIsNotThereIsTransientAndCertain(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	start(t, b) // so that the definition is known
	b.Batch = open("http://127.0.0.1:1", "codalab").Batch
	_, err := b.Start(t.Context(), b.NewName(), token)
	if got := kindOf(err); got != (kind{false, true}) {
		t.Errorf("%v is %+v", err, got)
	}
	if n := c.Requests("SubmitJob"); n != 1 {
		t.Errorf("%d jobs were submitted", n)
	}
}

func TestStopOfALostStartFindsItsJob(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	c.LoseAnswer("SubmitJob")
	name := b.NewName()
	if _, err := b.Start(t.Context(), name, token); err == nil {
		t.Fatal("no error")
	}
	for _, p := range []pilot.Pilot{{Name: name}, {Name: b.NewName()}} { // the second one never was
		if err := b.Stop(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	if j := c.Named(name)[0]; j.Status != "FAILED" || j.StatusReason != "ended by cl-worker-manager" {
		t.Errorf("the job is %+v", j)
	}
	if p := pilots(t, b)[name]; !p.Cancelled {
		t.Errorf("the pilot is %+v", p)
	}
}

func TestThrottledListIsAskedAgain(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	p := start(t, b)
	for range 2 {
		c.Refuse("ListJobs", http.StatusTooManyRequests, "TooManyRequestsException", "Too Many Requests")
	}
	if got := pilots(t, b); len(got) != 1 || got[p.Name].Job != p.Job {
		t.Errorf("shown are %v", got)
	}
	if n := c.Requests("ListJobs"); n != 3 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestPageThatFailsMakesNoHalfAnswer(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	c.Page = 1
	start(t, b)
	start(t, b)
	c.Service = afterFirst(c.Service, func() { c.Refuse("ListJobs", 403, "ExpiredTokenException", "expired") })
	if list, err := b.Pilots(t.Context()); err == nil || list != nil {
		t.Errorf("the answer is %v, %v", list, err)
	}
}

// afterFirst returns a handler that calls then after its first answer.
func afterFirst(h http.Handler, then func()) http.Handler {
	done := false
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if !done {
			done = true
			then()
		}
	})
}

func TestNewJobMayBeMissingInAnswersForAWhile(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	now := &clock{time.Now()}
	b.Now = now.now
	p := start(t, b)
	c.Hidden[p.Name] = true
	if got := pilots(t, b)[p.Name]; got.Phase != pilot.Pending || got.Job != p.Job {
		t.Errorf("the hidden pilot is %+v", got)
	}
	delete(c.Hidden, p.Name)
	if got := pilots(t, b)[p.Name]; got.Phase != pilot.Pending {
		t.Errorf("the pilot is %+v", got)
	}
	c.Forget(p.Name)
	if got := pilots(t, b); len(got) != 0 {
		t.Errorf("shown once and gone, it is still shown: %v", got)
	}
	never := start(t, b)
	c.Hidden[never.Name] = true
	now.Time = now.Add(3 * time.Minute)
	if got := pilots(t, b); len(got) != 0 {
		t.Errorf("never shown for three minutes, it is still shown: %v", got)
	}
}

func TestEndsAreToldInTheWordsOfTheService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end                func(c *awstest.Cloud, name string)
		reason             string
		cancelled, byState bool
	}{
		"idle": {end: func(c *awstest.Cloud, n string) { c.End(n, 0) }, reason: "Essential container in task exited (exit code 0)"},
		"memory": {end: func(c *awstest.Cloud, n string) {
			c.End(n, 137)
			c.Set(n, func(j *awstest.Job) { j.ContainerReason = "OutOfMemoryError: Container killed due to memory usage" })
		}, reason: "Essential container in task exited (OutOfMemoryError: Container killed due to memory usage, exit code 137)"},
		"preemption": {end: func(c *awstest.Cloud, n string) { c.Fail(n, "Host EC2 (instance i-0123456789) terminated.") }, reason: "Host EC2 (instance i-0123456789) terminated."},
		"a person": {end: func(c *awstest.Cloud, n string) {
			c.Fail(n, "I need the machine")
			c.Set(n, func(j *awstest.Job) { j.Terminated = true })
		}, reason: "I need the machine", cancelled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, b := openCloud(t)
			c.AddEnded("codalab-batch-cpu", 600, b.NewName) // so that the end is read by DescribeJobs
			pilots(t, b)
			p := start(t, b)
			c.Run(p.Name)
			if got := pilots(t, b)[p.Name]; got.Phase != pilot.Active {
				t.Fatalf("the pilot is %+v", got)
			}
			test.end(c, p.Name)
			got := pilots(t, b)[p.Name]
			if got.Phase != pilot.Ended || got.Reason != test.reason || got.Cancelled != test.cancelled {
				t.Errorf("the pilot is %+v", got)
			}
			if got := pilots(t, b); len(got) != 0 {
				t.Errorf("then shown are %v", got)
			}
		})
	}
}

// TestRequestsOfAnIdleManagerAreFewForAnyNumberOfWorkers counts the requests of one look, with the pages of AWS.
func TestRequestsOfAnIdleManagerAreFewForAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ workers, first, then int }{{0, 1, 1}, {10, 1, 1}, {500, 5, 5}, {1000, 10, 5}} {
		c, b := openCloud(t)
		for range test.workers {
			c.Run(start(t, b).Name)
		}
		reader := open(c.URL, "codalab")
		for _, want := range []int{test.first, test.then, test.then} {
			before := c.Requests("")
			if got := pilots(t, reader); len(got) != test.workers {
				t.Errorf("shown are %d, want %d", len(got), test.workers)
			}
			if n := c.Requests("") - before; n != want {
				t.Errorf("%d workers: %d requests, want %d", test.workers, n, want)
			}
		}
	}
}

func TestOnlyTheJobHasTheToken(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	p := start(t, b)
	j := c.Named(p.Name)[0]
	want := map[string]string{"CODALAB_WORKER_TOKEN": token}
	if diff := cmp.Diff(want, j.Environment); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if strings.Contains(strings.Join(j.Command, " "), token) || strings.Contains(c.Registered(0), token) {
		t.Errorf("the token is in %q or %s", j.Command, c.Registered(0))
	}
	wantCommand := []string{
		"cl-worker", "--server", "http://server:2900", "--verbose", "--exit-when-idle", "--idle-seconds", "600", "--work-dir", "/work",
		"--id", "host-" + p.Name, "--network-prefix", "cl_worker_" + p.Name + "_network", "--pass-down-termination", "--gpuset", "NONE",
	}
	if diff := cmp.Diff(wantCommand, j.Command); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWorkersOfServersWithoutTokensReadASecretOfTheService(t *testing.T) {
	t.Parallel()
	c := awstest.New(t, time.Now)
	b := open(c.URL, "codalab")
	if _, err := b.Start(t.Context(), b.NewName(), ""); !errors.Is(err, pilot.ErrNoLogin) || kindOf(err).Uncertain {
		t.Errorf("without a secret: %v", err)
	}
	if n := c.Requests("SubmitJob"); n != 0 {
		t.Errorf("%d jobs were submitted", n)
	}
	b = open(c.URL, "codalab")
	b.Definition.Secret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:codalab-AbCdEf"
	b.Definition.ExecutionRole = "arn:aws:iam::123456789012:role/codalab-worker"
	if life := b.TokenLife(); life != 0 {
		t.Errorf("workers with a secret take tokens for %s", life)
	}
	p, err := b.Start(t.Context(), b.NewName(), "")
	testenv.Must(t, err)
	if environment := c.Named(p.Name)[0].Environment; len(environment) != 0 {
		t.Errorf("the job has %q", environment)
	}
	for _, want := range []string{
		`"name":"CODALAB_USERNAME","valueFrom":"arn:aws:secretsmanager:us-east-1:123456789012:secret:codalab-AbCdEf:username::"`,
		`"name":"CODALAB_PASSWORD","valueFrom":"arn:aws:secretsmanager:us-east-1:123456789012:secret:codalab-AbCdEf:password::"`,
		`"executionRoleArn":"arn:aws:iam::123456789012:role/codalab-worker"`,
	} {
		if !strings.Contains(c.Registered(0), want) {
			t.Errorf("the definition has no %s: %s", want, c.Registered(0))
		}
	}
}

// The manager ends the tokens of ended workers that it sees.
func TestFirstAnswerHasWorkersThatEndedUnseen(t *testing.T) {
	t.Parallel()
	c := awstest.New(t, time.Now)
	p := start(t, open(c.URL, "codalab"))
	c.Run(p.Name)
	c.End(p.Name, 0)
	next := open(c.URL, "codalab")
	if got := pilots(t, next)[p.Name]; got.Phase != pilot.Ended {
		t.Errorf("the pilot is %+v", got)
	}
}

func TestMarksOfManagersAreOnePartOfJobNames(t *testing.T) {
	t.Parallel()
	for mark, want := range map[string]bool{"codalab": true, "a-2_b": true, "": false, "a b": false, "é": false, strings.Repeat("a", 65): false} {
		if awsbatch.ValidMark(mark) != want {
			t.Errorf("%q: %t", mark, !want)
		}
	}
	c, b := openCloud(t)
	upper := open(c.URL, "CODALAB")
	names := []string{start(t, b).Name, start(t, upper).Name}
	if got := pilots(t, b); len(got) != 1 || got[names[0]].Name == "" {
		t.Errorf("the manager of small letters sees %v", got)
	}
	longest := open(c.URL, strings.Repeat("a", 64))
	if p := start(t, longest); len(p.Name) > 128 || !slices.Contains([]pilot.Phase{pilot.Pending}, pilots(t, longest)[p.Name].Phase) {
		t.Errorf("the pilot is %+v", p)
	}
}
