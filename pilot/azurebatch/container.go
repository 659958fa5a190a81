package azurebatch

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// LogContainer is a container of Azure Storage, named by an address with a SAS. It reads blobs by plain
// requests: with a SAS they need no further login, and the SDK's azblob would add more to the program than the rest of
// this package.
type LogContainer struct {
	address *url.URL
	retry   policy.RetryOptions
	pipe    runtime.Pipeline
}

// errNoBlob means that a container has no such blob.
var errNoBlob = errors.New("the log container has no such blob")

// OpenLogContainer returns the container at an address. It sends nothing yet.
func OpenLogContainer(address string, o policy.ClientOptions) (*LogContainer, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && !isLocal(u) || strings.Trim(u.Path, "/") == "" || u.User != nil {
		// The address is a secret: the error does not show it.
		return nil, errors.New("--log-container-url is not the URL of a container, such as https://mylab.blob.core.windows.net/logs?sv=…&sig=…")
	}
	if u.Query().Get("sig") == "" {
		return nil, errors.New("--log-container-url has no signature (SAS): Azure Batch writes the logs with it")
	}
	o.Retry = bounded(o.Retry)
	return &LogContainer{address: u, retry: o.Retry, pipe: runtime.NewPipeline("cl-worker-manager", "v1", runtime.PipelineOptions{PerRetry: []policy.Policy{once{}}}, &o)}, nil
}

// Name returns the address without the SAS.
func (c *LogContainer) Name() string {
	return (&url.URL{Scheme: c.address.Scheme, Host: c.address.Host, Path: c.address.Path}).String()
}

// Expires returns the end of the SAS; zero if it has none in it, because a policy of the container has it.
func (c *LogContainer) Expires() time.Time {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z", time.DateOnly} {
		if end, err := time.Parse(form, c.address.Query().Get("se")); err == nil {
			return end
		}
	}
	return time.Time{}
}

// Read copies a blob from this offset on to w, and returns the number of bytes. It fails with errNoBlob if there is none.
func (c *LogContainer) Read(ctx context.Context, w io.Writer, blob string, offset int64) (int64, error) {
	answer, err := c.send(streaming(ctx, c.retry), blob, offset)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return 0, nil
	}
	n, err := io.Copy(w, answer.Body)
	if err != nil {
		return n, fmt.Errorf("read blob %s of the log container: %w", blob, withoutURL(err))
	}
	return n, nil
}

// storageVersion is the version of the interface of Azure Storage, without which a request has the one of the SAS.
const storageVersion = "2023-11-03"

// send returns the answer to a request for a blob, whose body the caller closes. The status of the answer is below 400, or
// 416.
func (c *LogContainer) send(ctx context.Context, blob string, offset int64) (*http.Response, error) {
	u := *c.address
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + blob
	what := "read blob " + blob + " of the log container " + c.Name()
	req, err := runtime.NewRequest(ctx, http.MethodGet, u.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, withoutURL(err))
	}
	req.Raw().Header.Set("x-ms-version", storageVersion)
	req.Raw().Header.Set("x-ms-range", fmt.Sprintf("bytes=%d-", offset))
	runtime.SkipBodyDownload(req)
	answer, err := c.pipe.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, withoutURL(err))
	}
	if answer.StatusCode < http.StatusBadRequest || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return answer, nil
	}
	return nil, c.refusal(what, answer)
}

// refusal returns the error of an answer, and closes its body.
func (c *LogContainer) refusal(what string, answer *http.Response) error {
	defer func() { _ = answer.Body.Close() }() // only read
	var said struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, mostError))
	_ = xml.Unmarshal(body, &said) // else the status has to do
	code := said.Code
	if code == "" {
		code = answer.Header.Get("x-ms-error-code")
	}
	message, _, _ := strings.Cut(said.Message, "\n")
	text := fmt.Sprintf("%s: Azure Storage: %s", what, strings.TrimSpace(strings.TrimSuffix(code+": "+withoutSignature(strings.TrimSuffix(message, ".")), ": ")))
	switch {
	case code == "BlobNotFound":
		return fmt.Errorf("%s: %w", text, errNoBlob)
	case code == "" && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%sstatus 404: %w", text, errNoBlob)
	case code == "":
		return fmt.Errorf("%sstatus %d", text, answer.StatusCode)
	case code == "ContainerNotFound":
		return fmt.Errorf("%s; make the container that --log-container-url names", text)
	case code == "AuthorizationPermissionMismatch":
		return fmt.Errorf("%s; the SAS of --log-container-url needs the permissions read, create and write", text)
	case answer.StatusCode == http.StatusForbidden && !c.Expires().IsZero():
		return fmt.Errorf("%s; the SAS of --log-container-url ends at %s: make a new one if that is past", text, c.Expires().Format(time.RFC3339))
	case answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s; make a new SAS for --log-container-url", text)
	}
	return errors.New(text)
}
