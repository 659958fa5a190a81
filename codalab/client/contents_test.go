package client_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func zip(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.Bytes()
}

// bodyOf is the body of an answer that waits in its second Read for release, whether it is closed or not.
type bodyOf struct {
	io.Reader

	reads            int
	waiting, release chan struct{}
}

func (b *bodyOf) Read(p []byte) (int, error) {
	if b.reads++; b.reads == 2 {
		close(b.waiting)
		<-b.release
	}
	return b.Reader.Read(p)
}

func (*bodyOf) Close() error { return nil }

// opened opens contents whose answer has this body.
func opened(t *testing.T, body io.ReadCloser) (*client.Contents, error) {
	t.Helper()
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {"gzip"}, "Target-Type": {"file"}}, Body: body, Request: r}, nil
	})
	c, err := client.New("http://localhost", client.Options{HTTP: &http.Client{Transport: transport}, Compress: true})
	if err != nil {
		t.Fatal(err)
	}
	return c.OpenContents(t.Context(), codalab.Target{BundleUUID: uuid}, nil)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestContentsMayBeClosedDuringARead closes contents that an upload reads still, as an interrupted cl copy does.
func TestContentsMayBeClosedDuringARead(t *testing.T) {
	t.Parallel()
	body := &bodyOf{bytes.NewReader(zip(strings.Repeat("some text\n", 1<<20))), 0, make(chan struct{}), make(chan struct{})}
	c, err := opened(t, body)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan any)
	go func() {
		defer func() { read <- recover() }()
		_, _ = io.Copy(io.Discard, c)
	}()
	<-body.waiting
	closed(t, c)
	close(body.release)
	if panicked := <-read; panicked != nil {
		t.Errorf("the read panicked: %v", panicked)
	}
}

// TestAnswerWithoutBytesIsNoEmptyFile: a compressed file that has no bytes broke off.
func TestAnswerWithoutBytesIsNoEmptyFile(t *testing.T) {
	t.Parallel()
	if c, err := opened(t, http.NoBody); err == nil {
		closed(t, c)
		t.Error("an answer without bytes was taken")
	}
}

func TestContentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		header   map[string]string
		body     []byte
		want     string
		wantType codalab.TargetType
		wantErr  bool
	}{
		{"plain file", map[string]string{"Target-Type": "file"}, []byte("hello"), "hello", codalab.TargetFile, false},
		{"gzip file", map[string]string{"Target-Type": "file", "Content-Encoding": "gzip"}, zip("hello"), "hello", codalab.TargetFile, false},
		{"broken gzip file", map[string]string{"Target-Type": "file", "Content-Encoding": "gzip"}, zip("hello")[:20], "", codalab.TargetFile, true},
		{"directory", map[string]string{"Target-Type": "directory", "Content-Encoding": "identity"}, zip("tar"), string(zip("tar")), codalab.TargetDirectory, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				if want := "/rest/bundles/" + uuid + "/contents/blob/a/b%20c"; r.RequestURI != want {
					t.Errorf("called %s, want %s", r.RequestURI, want)
				}
				if got := r.Header.Get("Range"); got != "bytes=10-24" {
					t.Errorf("range %q", got)
				}
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("X-Codalab-Target-Size", "5")
				_, _ = w.Write(test.body)
			})
			c := s.client(t, func(o *client.Options) { o.Compress = true })
			contents, err := c.OpenContents(t.Context(),
				codalab.Target{BundleUUID: uuid, Subpath: "a/b c"}, &client.Range{Offset: 10, Length: 15})
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, contents)
			got, err := io.ReadAll(contents)
			if (err != nil) != test.wantErr {
				t.Fatal(err)
			}
			if err == nil && (string(got) != test.want || contents.Type != test.wantType || contents.Size != 5) {
				t.Errorf("got %q of type %s and size %d", got, contents.Type, contents.Size)
			}
		})
	}
}

func TestBrokenOffStreamIsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	contents, err := s.client(t, nil).OpenContents(t.Context(), codalab.Target{BundleUUID: uuid}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, contents)
	if _, err := io.ReadAll(contents); err == nil {
		t.Error("half a stream was taken for a whole one")
	}
}

func TestPageOfAProxyIsNoFile(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>Please sign in")
	})
	_, err := s.client(t, nil).OpenContents(t.Context(), codalab.Target{BundleUUID: uuid}, nil)
	if err == nil || !strings.Contains(err.Error(), s.URL) {
		t.Errorf("got %v", err)
	}
}

func TestMissingTargetIs404(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/rest/bundles/" + uuid + "/contents/info/?depth=1"; r.RequestURI != want {
			t.Errorf("called %s, want %s", r.RequestURI, want)
		}
		http.Error(w, "Path '' in bundle "+uuid+" not found", http.StatusNotFound)
	})
	_, err := s.client(t, nil).ContentsInfo(t.Context(), codalab.Target{BundleUUID: uuid}, 1)
	if refused := wantStatus(t, err, http.StatusNotFound); refused.Message != "Path '' in bundle "+uuid+" not found" {
		t.Errorf("got message %q", refused.Message)
	}
}

func TestUploadIsStreamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.ContentLength != -1 {
			t.Errorf("length %d was sent, want chunks", r.ContentLength)
		}
		want := "filename=d.tar.gz&finalize_on_failure=1&finalize_on_success=1&state_on_success=ready&store=&unpack=1&use_azure_blob_beta=0"
		if r.URL.RawQuery != want {
			t.Errorf("query %s, want %s", r.URL.RawQuery, want)
		}
		body, _ := io.ReadAll(r.Body)
		if string(body) != "archive" {
			t.Errorf("got %q", body)
		}
	})
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{
		Filename: "d.tar.gz", Unpack: true, Finalize: true,
	}, strings.NewReader("archive"))
	if err != nil {
		t.Error(err)
	}
}

func TestServerFetchesAURL(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		want := "finalize_on_failure=1&finalize_on_success=1&git=0&state_on_success=ready&store=far&unpack=0&urls=https%3A%2F%2Fexample.org%2Fx%3Fy&use_azure_blob_beta=1"
		if r.ContentLength != 0 || r.URL.RawQuery != want {
			t.Errorf("length %d, query %s, want %s", r.ContentLength, r.URL.RawQuery, want)
		}
	})
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{
		URL: "https://example.org/x?y", Finalize: true, Azure: true, Store: "far",
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestRefusedUploadReadsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Contents cannot be modified, bundle already finalized.", http.StatusForbidden)
	})
	body := iotest.ErrReader(errors.New("was read"))
	patient := func(o *client.Options) { // however busy the machine is
		o.HTTP = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	}
	err := s.client(t, patient).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, body)
	_ = wantStatus(t, err, http.StatusForbidden)
}

func TestUploadReturnsItsSourcesError(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("half a body was taken for a whole one")
		}
	})
	broken := errors.New("read /data/x: input/output error")
	body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
	err := s.client(t, nil).UploadContents(t.Context(), uuid, client.UploadOptions{Filename: "f"}, body)
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
