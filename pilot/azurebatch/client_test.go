package azurebatch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
)

// A page's link to the next one must not bring our signature or token to another host.
func TestLinkToAnotherHostIsNotFollowed(t *testing.T) {
	t.Parallel()
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("reached with %q", r.Header) }))
	t.Cleanup(thief.Close)
	for _, link := range []string{thief.URL + "/jobs/j/tasks?page=2", "//" + strings.TrimPrefix(thief.URL, "http://") + "/", "https://x.batch.azure.com/jobs"} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"value":[],"odata.nextLink":"` + link + `"}`))
		}))
		t.Cleanup(service.Close)
		c, err := azurebatch.NewClient(service.URL, azurebatch.Credential{Account: "lab", Key: "a2V5"}, azurebatch.Options{ClientOptions: quick()})
		testenv.Must(t, err)
		if _, err := c.ListTasks(t.Context(), "j", ""); err == nil || !strings.Contains(err.Error(), "the link to the next page is none of this account's") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

// entra is a login at Entra.
type entra struct{ scopes []string }

func (e *entra) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	e.scopes = o.Scopes
	return azcore.AccessToken{Token: "entra-token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestEntraLogsInWithoutAKey(t *testing.T) {
	t.Parallel()
	s := batchtest.New(t, 1)
	s.Bearer = "entra-token"
	e := &entra{}
	c, err := azurebatch.NewClient(s.URL, azurebatch.Credential{Account: s.Account, Entra: e}, azurebatch.Options{ClientOptions: quick()})
	testenv.Must(t, err)
	j, err := c.Job(t.Context(), s.Job)
	if err != nil || j.State != "active" || len(e.scopes) != 1 || e.scopes[0] != "https://batch.core.windows.net/.default" {
		t.Errorf("%+v, %v, %q", j, err, e.scopes)
	}
}

// stranger is a login that Entra refuses, in the words of azidentity.
type stranger struct{}

func (stranger) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, errors.New("DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n\tEnvironmentCredential: missing environment variable AZURE_TENANT_ID\n" +
		"\tManagedIdentityCredential authentication failed. \nGET http://169.254.169.254/x\n----\nRESPONSE 403: 403 Forbidden\n")
}

func TestRefusedLoginAtEntraIsOneSentenceAndCertain(t *testing.T) {
	t.Parallel()
	s := batchtest.New(t, 1)
	c, err := azurebatch.NewClient(s.URL, azurebatch.Credential{Entra: stranger{}}, azurebatch.Options{ClientOptions: quick()})
	testenv.Must(t, err)
	_, err = c.Job(t.Context(), s.Job)
	want := "read job prod-cpu: Azure Batch: there is no key of the account, and no login at Entra succeeds (EnvironmentCredential: missing environment variable AZURE_TENANT_ID; " +
		"ManagedIdentityCredential authentication failed); give a key with --account-key-file, set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or use az login"
	if err == nil || err.Error() != want || transient(err) || len(s.Requests()) != 0 {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestBadAddressesAndKeysAreRefusedBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	key := azurebatch.Credential{Account: "lab", Key: "a2V5"}
	for _, test := range []struct {
		service string
		c       azurebatch.Credential
		want    string
	}{
		{"lab.westeurope.batch.azure.com", key, "is not the URL of a Batch account"},
		{"http://lab.westeurope.batch.azure.com", key, "is not the URL of a Batch account"},
		{"https://u:p@lab.westeurope.batch.azure.com", key, "is not the URL of a Batch account"},
		{"https://lab.westeurope.batch.azure.com", azurebatch.Credential{Account: "lab", Key: "not base64!"}, "the account key is not one of Azure Batch's"},
		{"https://lab.westeurope.batch.azure.com", azurebatch.Credential{Key: "a2V5"}, "needs the name of its account"},
		{"https://lab.westeurope.batch.azure.com", azurebatch.Credential{}, "there is no credential"},
	} {
		if _, err := azurebatch.NewClient(test.service, test.c, azurebatch.Options{}); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "not base64!") {
			t.Errorf("%s: %v, want %s", test.service, err, test.want)
		}
	}
	for _, address := range []string{"", "logs", "https://lab.blob.core.windows.net/?sig=SECRET", "https://lab.blob.core.windows.net/logs", "ftp://x/logs?sig=SECRET", "http://lab.blob.core.windows.net/logs?sig=SECRET"} {
		if _, err := azurebatch.OpenLogContainer(address, policy.ClientOptions{}); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// The signature of the log container is in no error, also if the network fails.
func TestErrorsHaveNoSignature(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	p := s.start(t)
	s.Print(p.Name, "stderr.txt", "one\n")
	s.Finish(p.Name, 0)
	s.RemoveNodes()
	s.Shape.LogContainer = "http://127.0.0.1:1/logs?sp=r&sig=TOPSECRET"
	if _, err := s.log(t, p); err == nil || strings.Contains(err.Error(), "TOPSECRET") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	s.Shape.LogContainer = s.logs.URL + "x"
	if _, err := s.log(t, p); err == nil || strings.Contains(err.Error(), s.logs.Signature) || !strings.Contains(err.Error(), "make a new one if that is past") {
		t.Errorf("%v", err)
	}
	waits := s.start(t)
	s.AddNodes(1)
	s.Fail(waits.Name, "FileUploadMiscError", "PUT https://lab.blob.core.windows.net/logs/x?sp=w&sig=TOPSECRET&se=2030 failed")
	if got := s.pilots(t)[waits.Name]; strings.Contains(got.Reason, "TOPSECRET") || !strings.Contains(got.Reason, "FileUploadMiscError: PUT https://") {
		t.Errorf("%+v", got)
	}
}

func TestNoAnswerNamesTheNextStep(t *testing.T) {
	t.Parallel()
	c, err := azurebatch.NewClient("http://127.0.0.1:1", azurebatch.Credential{Account: "lab", Key: "a2V5"}, azurebatch.Options{ClientOptions: quick()})
	testenv.Must(t, err)
	_, err = c.Job(t.Context(), "prod-cpu")
	if err == nil || !strings.Contains(err.Error(), "read job prod-cpu: Azure Batch: ") || !strings.HasSuffix(err.Error(), "; check --service-url and the network") || !transient(err) {
		t.Errorf("%v", err)
	}
}

// silence is a service that takes requests and does not answer.
func silence(t *testing.T) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	over := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(service.Close)
	t.Cleanup(func() { close(over) })
	return service.URL, requests
}

func TestServiceThatDoesNotAnswerIsAskedFourTimes(t *testing.T) {
	t.Parallel()
	address, requests := silence(t)
	options := quick()
	options.Retry.TryTimeout = 50 * time.Millisecond
	c, err := azurebatch.NewClient(address, azurebatch.Credential{Account: "lab", Key: "a2V5"}, azurebatch.Options{ClientOptions: options})
	testenv.Must(t, err)
	_, err = c.Job(t.Context(), "prod-cpu")
	var doubt pilot.Uncertain
	if err == nil || err.Error() != "read job prod-cpu: Azure Batch: no answer in time; check --service-url and the network" || !transient(err) || !errors.As(err, &doubt) || !doubt.Uncertain() || requests.Load() != 4 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}

// refusing is a transport that reaches no service.
type refusing struct {
	err  error
	sent int
}

func (r *refusing) Do(*http.Request) (*http.Response, error) {
	r.sent++
	return nil, &url.Error{Op: "Get", URL: "https://labb.westeurope.batch.azure.com/jobs", Err: r.err}
}

// Waiting does not help against a wrong address.
func TestWrongAddressIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for want, failure := range map[string]error{
		"read job prod-cpu: Azure Batch: lookup labb.westeurope.batch.azure.com: no such host; check --service-url and the network": &net.OpError{
			Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "labb.westeurope.batch.azure.com", IsNotFound: true},
		},
		"tls: failed to verify certificate: x509: certificate signed by unknown authority; check --service-url and the network": &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	} {
		r, options := &refusing{err: failure}, quick()
		options.Transport = r
		c, err := azurebatch.NewClient("https://labb.westeurope.batch.azure.com", azurebatch.Credential{Account: "labb", Key: "a2V5"}, azurebatch.Options{ClientOptions: options})
		testenv.Must(t, err)
		_, err = c.Job(t.Context(), "prod-cpu")
		var doubt pilot.Uncertain
		if err == nil || !strings.HasSuffix(strings.ReplaceAll(err.Error(), "dial tcp: ", ""), want) || transient(err) || errors.As(err, &doubt) && doubt.Uncertain() || r.sent != 1 {
			t.Errorf("%v after %d requests, want %s", err, r.sent, want)
		}
	}
}
