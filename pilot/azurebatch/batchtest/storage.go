package batchtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// upload sends the files of an ended task to their containers, as its outputFiles say. It returns the failure of the
// task if that is refused. The caller holds mu; uploads are to other servers.
func (s *Service) upload(t *task) object {
	list, _ := t.body["outputFiles"].([]any)
	for _, element := range list {
		o, _ := element.(object)
		destination, _ := o["destination"].(object)
		container, _ := destination["container"].(object)
		pattern, _ := o["filePattern"].(string)
		address, _ := container["containerUrl"].(string)
		blob, _ := container["path"].(string)
		file := t.files[strings.TrimPrefix(pattern, "../")]
		if file == nil {
			continue
		}
		if err := s.put(address, blob, file.Bytes()); err != nil {
			return object{"category": "usererror", "code": "FileUploadAccessDenied", "message": "Access denied uploading one of the output files: " + err.Error()}
		}
	}
	return nil
}

func (s *Service) put(address, blob string, content []byte) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	u.Path += "/" + blob
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPut, u.String(), bytes.NewReader(content))
	if err != nil {
		return err
	}
	r.Header.Set("X-Ms-Blob-Type", "BlockBlob")
	r.Header.Set("X-Ms-Version", "2023-11-03")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// Container is a container of Azure Storage with a SAS. It knows block blobs of one request.
type Container struct {
	// URL has the SAS in it, Signature is the secret part of that.
	URL, Signature string

	mu          sync.Mutex
	permissions string
	blobs       map[string][]byte
}

// NewContainer starts a container. It ends with the test.
func NewContainer(tb testing.TB) *Container {
	tb.Helper()
	c := &Container{Signature: pilot.NewID(), permissions: "rcw", blobs: map[string][]byte{}}
	web := httptest.NewServer(c)
	tb.Cleanup(web.Close)
	c.URL = web.URL + "/logs?sv=2023-11-03&se=2036-01-01T00%3A00%3A00Z&sr=c&sp=rcw&sig=" + c.Signature
	return c
}

// Permit sets the permissions of the SAS: r, c and w.
func (c *Container) Permit(permissions string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.permissions = permissions
}

// Blob returns the content of a blob; nil if there is none.
func (c *Container) Blob(name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blobs[name]
}

// ServeHTTP answers a request.
func (c *Container) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/logs/")
	needs := map[string]string{http.MethodGet: "r", http.MethodPut: "w"}[r.Method]
	content, there := c.blobs[name]
	from, _ := strconv.Atoi(strings.Trim(r.Header.Get("X-Ms-Range"), "bytes=-"))
	switch {
	case r.URL.Query().Get("sig") != c.Signature:
		refuseBlob(w, http.StatusForbidden, "AuthenticationFailed", "Server failed to authenticate the request.")
	case !strings.Contains(c.permissions, needs):
		refuseBlob(w, http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.")
	case r.Method == http.MethodPut && r.Header.Get("X-Ms-Blob-Type") == "BlockBlob":
		c.blobs[name], _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut:
		refuseBlob(w, http.StatusBadRequest, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.")
	case !there:
		refuseBlob(w, http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	case r.Header.Get("X-Ms-Range") != "" && from >= len(content):
		refuseBlob(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
	default:
		_, _ = w.Write(content[from:])
	}
}

func refuseBlob(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Ms-Error-Code", code)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>%s\nRequestId:0\nTime:0</Message></Error>", code, message)
}
