package awsbatch_test

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/batch"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

// TestFailuresAreOneSentence is the table of AWS's refusals. Each says what failed, AWS's words, and the remedy.
func TestFailuresAreOneSentence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status              int
		code, message, want string
	}{
		{403, "ExpiredTokenException", "The security token included in the request is expired", "ExpiredTokenException: The security token included in the request is expired; the session of AWS has ended: log in again (aws sso login), or renew the keys"},
		{403, "UnrecognizedClientException", "The security token included in the request is invalid.", "UnrecognizedClientException: The security token included in the request is invalid; AWS does not know this access key: check AWS_PROFILE and the keys"},
		{403, "InvalidSignatureException", "Signature expired: 20261127T220000Z is now earlier than 20261127T230000Z", "InvalidSignatureException: Signature expired: 20261127T220000Z is now earlier than 20261127T230000Z; set this machine's clock"},
		{403, "InvalidSignatureException", "The request signature we calculated does not match the signature you provided.", "InvalidSignatureException: The request signature we calculated does not match the signature you provided; check the secret access key"},
		{403, "AccessDeniedException", "User: ann is not authorized to perform: batch:ListJobs", "AccessDeniedException: User: ann is not authorized to perform: batch:ListJobs; docs/aws-batch.md lists the permissions that a manager needs"},
		{403, "InvalidSignatureException", "Signature not yet current: 20261127T230000Z is still later than 20261127T220000Z", "InvalidSignatureException: Signature not yet current: 20261127T230000Z is still later than 20261127T220000Z; set this machine's clock"},
		{403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.", "RequestTimeTooSkewed: The difference between the request time and the current time is too large; set this machine's clock"},
		{400, "ClientException", "JobQueue codalab-batch-cpu not found.", "ClientException: JobQueue codalab-batch-cpu not found; check --job-queue and --region us-east-1"},
	} {
		c, b := openCloud(t)
		c.Refuse("ListJobs", test.status, test.code, test.message)
		_, err := b.Pilots(t.Context())
		if want := "list the workers in the job queue codalab-batch-cpu: " + test.want; err == nil || err.Error() != want {
			t.Errorf("the error is\n%v, want\n%s", err, want)
		}
		if got := kindOf(err); got.Transient {
			t.Errorf("%s is transient", test.code)
		}
	}
}

// TestWrongClockIsCorrectedByAWSsLibrary has a clock that is an hour behind AWS's. The library learns the difference from a
// refused request, also for SubmitJob, which is sent once.
func TestWrongClockIsCorrectedByAWSsLibrary(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		c := awstest.New(t, func() time.Time { return time.Now().Add(ahead) })
		b := open(c.URL, "codalab")
		if got := pilots(t, b); len(got) != 0 {
			t.Errorf("shown are %v", got)
		}
		p := start(t, b)
		if n := c.Requests("SubmitJob"); n != 1 {
			t.Errorf("%d jobs were submitted", n)
		}
		testenv.Must(t, b.Stop(t.Context(), p))
	}
}

// TestOutagesEndAfterThreeRequests counts the requests of one question to a service that always fails.
func TestOutagesEndAfterThreeRequests(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(c *awstest.Cloud, operation string){
		"5xx": func(c *awstest.Cloud, o string) { c.Refuse(o, 503, "ServerException", "Service Unavailable") },
		"429": func(c *awstest.Cloud, o string) { c.Refuse(o, 429, "TooManyRequestsException", "Too Many Requests") },
	} {
		for _, operation := range []string{"ListJobs", "TerminateJob", "DescribeJobDefinitions", "RegisterJobDefinition", "DescribeJobs"} {
			t.Run(name+" of "+operation, func(t *testing.T) {
				t.Parallel()
				c, b := openCloud(t)
				for range 10 {
					refuse(c, operation)
				}
				var err error
				switch operation {
				case "ListJobs":
					_, err = b.Pilots(t.Context())
				case "TerminateJob":
					err = b.Stop(t.Context(), pilot.Pilot{Job: "1"})
				case "DescribeJobs":
					err = b.Locate(t.Context(), []pilot.Pilot{{Job: "1", Phase: pilot.Active}})
				default:
					_, err = b.Start(t.Context(), b.NewName(), token)
				}
				if n := c.Requests(operation); err == nil || !kindOf(err).Transient || n != 3 || strings.Contains(err.Error(), "\n") {
					t.Errorf("%d requests: %v, %+v", n, err, kindOf(err))
				}
				if n := c.Requests("SubmitJob"); n != 0 {
					t.Errorf("%d jobs were submitted", n)
				}
			})
		}
	}
}

func TestAddressThatIsNoneIsNamed(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, value := range []string{"nonsense", "ftp://x", "http://", ":"} {
		t.Setenv("AWS_ENDPOINT_URL", value)
		if _, err := awsbatch.Connect(t.Context(), "eu-west-1"); err == nil || !strings.Contains(err.Error(), `AWS_ENDPOINT_URL "`+value+`"`) {
			t.Errorf("%q: the error is %v", value, err)
		}
	}
}

func TestServiceThatDoesNotAnswerIsTransient(t *testing.T) {
	t.Parallel()
	b := open("http://127.0.0.1:1", "codalab")
	b.Batch = batch.New(b.Batch.Options(), func(o *batch.Options) { o.Retryer = aws.NopRetryer{} })
	_, err := b.Pilots(t.Context())
	if want := `list the workers in the job queue codalab-batch-cpu: AWS does not answer: Post "http://127.0.0.1:1/v1/listjobs": dial tcp 127.0.0.1:1: connect: connection refused`; err == nil || err.Error() != want || !kindOf(err).Transient {
		t.Errorf("the error is %v", err)
	}
}

func TestServiceThatHangsIsTransientAndTheStartUncertain(t *testing.T) {
	t.Parallel()
	client, err := awsbatch.Connect(t.Context(), "us-east-1")
	testenv.Must(t, err)
	bounded, ok := client.Batch.Options().HTTPClient.(interface{ GetTimeout() time.Duration })
	if !ok || bounded.GetTimeout() != 30*time.Second {
		t.Errorf("requests are not bounded")
	}
	c, b := openCloud(t)
	start(t, b) // so that the definition is known
	defer c.Hold("SubmitJob")()
	b.Batch = batch.New(b.Batch.Options(), func(o *batch.Options) {
		o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(10 * time.Millisecond)
	})
	_, err = b.Start(t.Context(), b.NewName(), token)
	if got := kindOf(err); got != (kind{true, true}) || !strings.Contains(err.Error(), "AWS does not answer") {
		t.Errorf("%v is %+v", err, got)
	}
}

// unknownHost is a network without the host of a region.
type unknownHost struct{}

func (unknownHost) Do(r *http.Request) (*http.Response, error) {
	lookup := &net.DNSError{Err: "no such host", Name: "batch.us-nowhere-1.amazonaws.com", IsNotFound: true}
	return nil, &url.Error{Op: "Post", URL: r.URL.String(), Err: &net.OpError{Op: "dial", Net: "tcp", Err: lookup}}
}

func TestWrongRegionIsNamedAndNotTransient(t *testing.T) {
	t.Parallel()
	b := open("", "codalab")
	b.Region = "us-nowhere-1"
	b.Batch = batch.New(b.Batch.Options(), func(o *batch.Options) { o.BaseEndpoint, o.Region, o.HTTPClient = nil, "us-nowhere-1", unknownHost{} })
	_, err := b.Pilots(t.Context())
	want := "list the workers in the job queue codalab-batch-cpu: there is no host batch.us-nowhere-1.amazonaws.com; check --region us-nowhere-1, and this machine's network"
	if err == nil || err.Error() != want || kindOf(err) != (kind{}) {
		t.Errorf("the error is\n%v, %+v, want\n%s", err, kindOf(err), want)
	}
}

func TestMissingCredentialsAreNamed(t *testing.T) { //nolint:paralleltest // it sets the environment
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
	client, err := awsbatch.Connect(t.Context(), "eu-west-1")
	testenv.Must(t, err)
	b := open("", "codalab")
	b.Client = client
	_, err = b.Pilots(t.Context())
	want := "list the workers in the job queue codalab-batch-cpu: no credentials of AWS work here: access disabled to EC2 IMDS via client option, or \"AWS_EC2_METADATA_DISABLED\" environment variable; run aws configure or aws sso login, set AWS_PROFILE, or give this machine a role"
	if err == nil || err.Error() != want || kindOf(err) != (kind{}) {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
}
