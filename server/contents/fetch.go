package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	answerTimeout = time.Minute
	maxRedirects  = 10
)

// newClient returns the HTTP client for uploads by URL. It uses no proxy, and no connection twice.
func newClient(private outbound.Places) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: private.DialContext, DisableCompression: true, DisableKeepAlives: true,
			TLSHandshakeTimeout: outbound.DialTimeout, ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirections", maxRedirects)
			}
			return checkScheme(r.URL)
		},
	}
}

func checkScheme(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return badContents("only http and https URLs can be fetched")
	}
	return nil
}

// urlName is the name of a file that is fetched from a URL, by which the server knows its packing
// (codalab/lib/upload_manager.py: _interpret_source).
func urlName(u *url.URL) string { return path.Base(path.Clean("/" + u.Path)) }

// parseURL reads the URL of an upload.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, badContents("the URL cannot be read")
	}
	return u, checkScheme(u)
}

// fetch opens the contents of a URL, as they come, without decoding them. The
// caller closes the stream, which ends with an error if no 64 KiB come within the Fetcher's timeout.
func (s *Fetcher) fetch(ctx context.Context, u *url.URL) (stream io.ReadCloser, name string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, "", badContents("the URL cannot be read")
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "cl-server")
	answer, err := s.client.Do(r) //nolint:bodyclose // fetchedBody closes it
	if err != nil {
		cancel()
		return nil, "", fetchFailed(err)
	}
	body := &fetchedBody{ReadCloser: answer.Body, cancel: cancel, every: s.timeout, timer: time.AfterFunc(s.timeout, cancel)}
	if answer.StatusCode != http.StatusOK {
		return nil, "", errors.Join(badContents("the URL's server answers "+termtext.OneLine(answer.Status)), body.Close())
	}
	return body, urlName(u), nil
}

// fetchFailed returns an error that tells the user the reason for which a URL could not be fetched.
func fetchFailed(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // the rest is the URL, which may have a password
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return badContents("the URL cannot be fetched: this is not a public address: " + refused.Place)
	}
	return badContents("the URL cannot be fetched: " + termtext.OneLine(err.Error()))
}

// fetchedBody is the body of an answer, which must come in time.
type fetchedBody struct {
	io.ReadCloser
	cancel func()
	timer  *time.Timer
	every  time.Duration
	step   int
}

// Read reads on, and fails if the body comes too slowly.
func (b *fetchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.step += n; b.step >= rest.PaceStep {
		b.step = 0
		b.timer.Reset(b.every)
	}
	return n, err
}

// Close ends the transfer.
func (b *fetchedBody) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.ReadCloser.Close()
}
