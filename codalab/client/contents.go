package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Range is a section of a file. A section beyond the file's end is empty.
type Range struct {
	Offset, Length int64
}

// Contents is the stream of a target's contents. The caller closes it. A stream that breaks
// off ends in an error, never in io.EOF.
type Contents struct {
	io.ReadCloser
	// Type is TargetFile: the stream is the file's bytes; or TargetDirectory: the stream is a
	// gzip-compressed tar archive.
	Type codalab.TargetType
	// Size is the size that the server states, -1 if it states none. The size of a directory
	// is not that of its archive.
	Size int64
}

// ContentsInfo describes a target, with depth levels of a directory's entries. A missing
// target is a *codalab.Error with status 404.
func (c *Client) ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error) {
	var answer struct {
		Data codalab.TargetInfo `json:"data"`
	}
	err := c.do(ctx, call{
		method: "GET", path: contentsPath("info", t), within: relayWithin,
		query: url.Values{"depth": {strconv.Itoa(depth)}},
	}, &answer)
	return answer.Data, err
}

// ContentsPage describes a target, and if it is a directory, the first entries by name of those after a name. CodaLab's own
// server describes all entries.
func (c *Client) ContentsPage(ctx context.Context, t codalab.Target, first int, after string) (codalab.TargetInfo, error) {
	var answer struct {
		Data codalab.TargetInfo `json:"data"`
	}
	err := c.do(ctx, call{
		method: "GET", path: contentsPath("info", t), within: relayWithin,
		query: url.Values{"depth": {"1"}, "first": {strconv.Itoa(first)}, "after": {after}},
	}, &answer)
	return answer.Data, err
}

// OpenContents opens a target, or a section of a file if r is not nil.
func (c *Client) OpenContents(ctx context.Context, t codalab.Target, r *Range) (*Contents, error) {
	header := map[string]string{}
	if r != nil {
		header["Range"] = fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)
	}
	return c.openBlob(ctx, t, header, nil)
}

// OpenLines opens the first head and the last tail lines of a file; 0 leaves a part out.
func (c *Client) OpenLines(ctx context.Context, t codalab.Target, head, tail int) (*Contents, error) {
	query := url.Values{}
	if head > 0 {
		query.Set("head", strconv.Itoa(head))
	}
	if tail > 0 {
		query.Set("tail", strconv.Itoa(tail))
	}
	return c.openBlob(ctx, t, map[string]string{}, query)
}

// openBlob opens a target. CodaLab's own commands send a parameter that lets the server redirect them to a
// cloud store. openBlob does not send it, because such an answer lacks the type.
func (c *Client) openBlob(ctx context.Context, t codalab.Target, header map[string]string, query url.Values) (*Contents, error) {
	header["Accept-Encoding"] = "identity"
	if c.compress {
		header["Accept-Encoding"] = "gzip"
	}
	in := call{method: "GET", path: contentsPath("blob", t), header: header, query: query, within: relayWithin}
	resp, err := c.open(ctx, in)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Target-Type") == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		_ = resp.Body.Close() // a proxy's page
		return nil, c.noServer(in, resp.StatusCode, nil)
	}
	contents, err := newContents(resp)
	if err != nil {
		_ = resp.Body.Close() // the error at hand says more
		return nil, c.unanswered(in, err)
	}
	return contents, nil
}

func newContents(resp *http.Response) (*Contents, error) {
	contents := &Contents{ReadCloser: resp.Body, Type: codalab.TargetFile, Size: -1}
	if resp.Header.Get("Target-Type") == string(codalab.TargetDirectory) {
		contents.Type = codalab.TargetDirectory
	}
	if n, err := strconv.ParseInt(resp.Header.Get("X-Codalab-Target-Size"), 10, 64); err == nil {
		contents.Size = n
	}
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		if contents.Type == codalab.TargetDirectory {
			break // the archive itself is compressed
		}
		plain, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("decompress the answer: %w", err)
		}
		contents.ReadCloser = &gunzipped{Reader: plain, body: resp.Body}
	default:
		return nil, fmt.Errorf("the server sent the unknown content encoding %q", encoding)
	}
	return contents, nil
}

// gunzipped closes the connection under a decompressed stream.
type gunzipped struct {
	*gzip.Reader
	body io.Closer
}

// Close closes the answer's body.
func (g *gunzipped) Close() error {
	return g.body.Close()
}

// UploadOptions are the options of an upload.
type UploadOptions struct {
	// Filename is a file name; its extension shows the server whether the upload is an archive. With an
	// empty Filename and no URL the server stores nothing, and changes only the bundle's state.
	Filename string
	// URL is an address from which the server fetches the contents, in place of a body. With Git it is a
	// git repository, which the server clones; otherwise the URL's extension is that of the file.
	URL string
	Git bool
	// Store is the name of the bundle store that gets the contents; Azure means the server's
	// store in Azure.
	Store string
	Azure bool
	// Unpack makes the server unpack an archive.
	Unpack bool
	// Finalize makes the bundle ready, or failed when the upload fails. CodaLab's own server
	// makes it failed in any case when an upload breaks off.
	Finalize bool
	// State is the bundle's state after a successful upload that finalizes it; empty means ready.
	State codalab.State
	// Retry keeps the bundle's state when an upload that finalizes it fails, so that it can be tried again.
	// CodaLab's own server makes the bundle failed nevertheless if it cannot read the upload.
	Retry bool
	// Confirm is for the results of a run that its worker still reports. The client reads the
	// bundle before and after the upload, and fails unless the server has kept the contents.
	Confirm bool
	// AtLeast is the least that the contents have; zero if that is not known. Our own server refuses contents that
	// exceed the quota by it before they come, and CodaLab's own ignores it.
	AtLeast codalab.Extent
}

// UploadContents replaces a bundle's contents by the bytes of body. It streams them over a
// connection of its own, once. After an error the server has all of the contents or none. An
// error of body itself is returned unchanged.
func (c *Client) UploadContents(ctx context.Context, uuid string, o UploadOptions, body io.Reader) error {
	if !o.Confirm {
		return c.putContents(ctx, uuid, o, body)
	}
	if err := c.checkBeforeUpload(ctx, uuid); err != nil {
		return err
	}
	if err := c.putContents(ctx, uuid, o, body); err != nil {
		return err
	}
	return c.checkAfterUpload(ctx, uuid)
}

func (c *Client) putContents(ctx context.Context, uuid string, o UploadOptions, body io.Reader) error {
	query := url.Values{
		"unpack":              {boolParam(o.Unpack)},
		"finalize_on_success": {boolParam(o.Finalize)},
		"finalize_on_failure": {boolParam(o.Finalize && !o.Retry)},
		"use_azure_blob_beta": {boolParam(o.Azure)},
		"store":               {o.Store},
	}
	if o.Filename != "" {
		query.Set("filename", o.Filename)
	}
	if o.AtLeast != (codalab.Extent{}) {
		query.Set("size", strconv.FormatInt(o.AtLeast.Bytes, 10))
		query.Set("entries", strconv.FormatInt(o.AtLeast.Entries, 10))
	}
	if o.URL != "" {
		query.Set("urls", o.URL)
		query.Set("git", boolParam(o.Git))
	}
	if o.Finalize {
		query.Set("state_on_success", string(cmp.Or(o.State, codalab.StateReady)))
	}
	in := call{method: "PUT", path: contentsPath("blob", codalab.Target{BundleUUID: uuid}), query: query}
	if body != nil {
		in.stream = newUploadBody(body)
		// A server that refuses the upload answers before anything is sent.
		in.header = map[string]string{"Expect": "100-continue"}
	}
	return c.do(ctx, in, nil)
}

// contentsPath ends in a slash for a bundle's root, as the server's routes do.
func contentsPath(kind string, t codalab.Target) string {
	p := path("bundles", t.BundleUUID, "contents", kind) + "/"
	if t.Subpath == "" {
		return p
	}
	return p + strings.TrimPrefix(path(strings.Split(t.Subpath, "/")...), "/")
}

// boolParam is a truth value as a query parameter.
func boolParam(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
