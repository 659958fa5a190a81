package awsbatch

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// Backend runs pilots in jobs of AWS Batch. The exported fields are set before the first use.
type Backend struct {
	Client
	// Queue is the name or the ARN of the job queue.
	Queue string
	// Mark is the manager's name. It is in the names of the pilots.
	Mark string
	// Filter, if not nil, matches the whole names of further jobs of the queue, which count as workers.
	Filter     *regexp.Regexp
	Definition Definition
	// Worker is the command line of the worker.
	Worker pilot.Worker
	Now    func() time.Time
	// FollowEvery is the interval at which a followed log is read; 0 means 2 s.
	FollowEvery time.Duration

	revision string          // the ARN of the registered definition; empty before the first start
	live     map[string]*job // the jobs that have not ended, by name; nil before the first answer
	byState  bool            // listing by name would take more requests than listing by state
	cause    string          // the last answer about the queue
	caused   time.Time       // its time

	otherPending, otherActive int // the further jobs that Filter matches
}

var (
	_ pilot.Backend = (*Backend)(nil)
	_ pilot.Locator = (*Backend)(nil)
	_ pilot.Sharer  = (*Backend)(nil)

	_ pilot.TokenNeeder = (*Backend)(nil)
)

// job is a job that had not ended in the last answer.
type job struct {
	id string
	// started is the time of its SubmitJob. It is zero once AWS has shown the job.
	started time.Time
}

// Client is AWS as the backend uses it.
type Client struct {
	Region string
	Batch  *batch.Client
	Logs   *cloudwatchlogs.Client
}

// requestWithin bounds one request. AWS answers within seconds, and its library would wait for ever.
const requestWithin = 30 * time.Second

// Connect returns a client for a region, with the credentials and settings that AWS's own programs would use. It sends
// nothing yet.
func Connect(ctx context.Context, region string) (Client, error) {
	settings, err := config.LoadDefaultConfig(ctx, config.WithRegion(region),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(requestWithin)))
	if err != nil {
		return Client{}, fmt.Errorf("read the settings of AWS: %w", err)
	}
	c := Client{Region: region, Batch: batch.NewFromConfig(settings), Logs: cloudwatchlogs.NewFromConfig(settings)}
	for _, endpoint := range []*string{c.Batch.Options().BaseEndpoint, c.Logs.Options().BaseEndpoint} {
		address, err := url.Parse(aws.ToString(endpoint))
		if endpoint != nil && (err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https") {
			return Client{}, fmt.Errorf("AWS_ENDPOINT_URL %q, or endpoint_url in the settings of AWS: want an address such as https://batch.%s.amazonaws.com", *endpoint, region)
		}
	}
	return c, nil
}

// ValidMark reports whether a manager's name may be in the names of jobs.
func ValidMark(mark string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(mark)
}

func (b *Backend) prefix() string { return "cl_worker_" + b.Mark + "_" }

// NewName returns the name of a new pilot and its job.
func (b *Backend) NewName() string { return b.prefix() + pilot.NewID() }

// isPilot reports whether a job of this name is a pilot of this manager.
func (b *Backend) isPilot(name string) bool {
	digits, ok := strings.CutPrefix(name, b.prefix())
	return ok && pilot.IsID(digits)
}

// loginVariable is the variable of our cl-worker's token. The other two are read by CodaLab's worker, too.
const (
	loginVariable    = "CODALAB_WORKER_TOKEN"
	userVariable     = "CODALAB_USERNAME"
	passwordVariable = "CODALAB_PASSWORD"
)

// errNoSecret is the refusal of a start on a server that has no worker tokens.
var errNoSecret = fmt.Errorf("%w, and a password must not stand in a job: put the user's name and password into a secret of AWS Secrets Manager, with the keys username and password, and name it with --worker-secret", pilot.ErrNoLogin)

// TokenLife is that of all clouds, or 0 if workers log in with a secret.
func (b *Backend) TokenLife() time.Duration {
	if b.Definition.Secret != "" {
		return 0
	}
	return pilot.CloudTokenLife
}

// NeedsToken fails without a secret: there is no other safe way to give a worker a login.
func (b *Backend) NeedsToken() error {
	if b.Definition.Secret == "" {
		return errNoSecret
	}
	return nil
}

// Start submits a pilot's job.
func (b *Backend) Start(ctx context.Context, name, token string) (pilot.Pilot, error) {
	if token == "" {
		if err := b.NeedsToken(); err != nil {
			return pilot.Pilot{}, err
		}
	}
	if err := b.register(ctx); err != nil {
		return pilot.Pilot{}, err
	}
	out, err := b.Batch.SubmitJob(ctx, b.Job(name, token), func(o *batch.Options) { o.RetryMaxAttempts = 1 })
	if err != nil {
		failed := b.failure("start a worker", err)
		if !failed.Uncertain() {
			b.revision = "" // somebody may have removed it
		}
		return pilot.Pilot{}, failed
	}
	now := b.Now()
	b.remember(name, &job{id: aws.ToString(out.JobId), started: now})
	return pilot.Pilot{Name: name, Phase: pilot.Pending, Job: aws.ToString(out.JobId), State: string(types.JobStatusSubmitted), Since: now}, nil
}

func (b *Backend) remember(name string, j *job) {
	if b.live == nil {
		b.live = map[string]*job{}
	}
	b.live[name] = j
}

// Job returns the submission of a pilot. An empty token means that the definition names a secret.
func (b *Backend) Job(name, token string) *batch.SubmitJobInput {
	gpus := "NONE"
	if b.Definition.GPUs > 0 {
		gpus = "ALL" // those that ECS shows to the container
	}
	environment := []types.KeyValuePair{}
	if token != "" {
		environment = append(environment, types.KeyValuePair{Name: aws.String(loginVariable), Value: &token})
	}
	return &batch.SubmitJobInput{
		JobName: &name, JobQueue: &b.Queue, JobDefinition: aws.String(b.revision),
		ContainerOverrides: &types.ContainerOverrides{
			Command: append(b.Worker.Command(name), "--gpuset", gpus), Environment: environment,
		},
	}
}

// stopReason is the reason that TerminateJob gets. AWS shows it as the job's.
const stopReason = "ended by cl-worker-manager"

// Stop ends a pilot's job: the worker gets TERM, and 30 seconds later KILL. A job without a container is cancelled.
func (b *Backend) Stop(ctx context.Context, p pilot.Pilot) error {
	id, err := b.jobID(ctx, p)
	if err != nil || id == "" {
		return err
	}
	if _, err := b.Batch.TerminateJob(ctx, &batch.TerminateJobInput{JobId: &id, Reason: aws.String(stopReason)}); err != nil {
		return b.failure("end worker "+pilot.WorkerID(p.Name), err)
	}
	return nil
}

// jobID returns the id of a pilot's job. If the answer of its submission was lost, jobID looks for the name; the id is
// empty if there is no job.
func (b *Backend) jobID(ctx context.Context, p pilot.Pilot) (string, error) {
	if p.Job != "" {
		return p.Job, nil
	}
	found, _, err := b.named(ctx, p.Name)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return aws.ToString(found[0].JobId), nil
}

// Tidy does nothing: AWS removes what is left of jobs.
func (b *Backend) Tidy(context.Context, pilot.NewToken) error { return nil }
