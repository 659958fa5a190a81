package staging_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
)

// codalabSite is a real server and a real registry, whose bytes are counted.
type codalabSite struct {
	t       *testing.T
	client  *client.Client
	address string
	image   string
	home    string // worksheet
	// sent counts the bytes of contents, and resolved the requests for the image's tag.
	sent, resolved atomic.Int64
	// down makes the server answer each request with 503.
	down atomic.Bool
	// The next connection breaks after cut bytes of contents. After hold bytes of all connections the
	// server sends nothing until its clients leave. 0 does neither.
	cut, hold atomic.Int64
}

var ok = testenv.Must

func startCodaLab(t *testing.T) *codalabSite {
	t.Helper()
	testenv.Containers(t)
	s := &codalabSite{t: t}
	data, err := store.Open(context.Background(), t.TempDir())
	ok(t, err)
	t.Cleanup(func() { ok(t, data.Close()) })
	hashed := server.HashPassword("alice", server.PasswordCost{Passes: 1, KiB: 8})
	ok(t, data.AddUser(context.Background(), store.User{ID: "0x" + strings.Repeat("a", 32), Name: "alice", Password: hashed, TimeQuota: 1 << 40, DiskQuota: 1 << 40, ParallelRunQuota: 9}))
	service := server.New(server.Config{Store: data, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}})
	handler := service.Handler()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			http.Error(w, "the database is down", http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/contents/blob/") {
			w = &counter{ResponseWriter: w, site: s, left: s.cut.Swap(0), gone: r.Context().Done()}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s.address, s.client = web.URL, dial(t, web.URL)
	home, err := s.client.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	ok(t, err)
	s.home = home.UUID
	s.image = s.startRegistry()
	return s
}

func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(address, client.Options{Credentials: alice})
	ok(t, err)
	return c
}

func alice(context.Context) (user, password string, err error) { return "alice", "alice", nil }

// counter counts the sent bytes, and breaks the connection after that many.
type counter struct {
	http.ResponseWriter
	site *codalabSite
	left int64
	gone <-chan struct{}
}

func (c *counter) Write(b []byte) (int, error) {
	if most := c.site.hold.Load(); most > 0 && c.site.sent.Load() >= most {
		<-c.gone
		return 0, http.ErrAbortHandler
	}
	breaks := c.left > 0 && int64(len(b)) >= c.left
	if breaks {
		b = b[:c.left]
	}
	n, err := c.ResponseWriter.Write(b)
	c.site.sent.Add(int64(n))
	if c.left > 0 {
		c.left -= int64(n)
	}
	if breaks {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (s *codalabSite) startRegistry() (image string) {
	s.t.Helper()
	registry := imagetest.Start(s.t)
	registry.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/manifests/latest") {
			s.resolved.Add(1)
		}
		return false
	}
	return registry.Push(s.t, "tiny:latest", imagetest.Tiny(s.t, "x"))
}

// upload makes a dataset of a directory or a file.
func (s *codalabSite) upload(path string) string {
	s.t.Helper()
	metadata := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys("dataset") {
		if !k.Generated {
			metadata[k.Key] = k.Default
		}
	}
	metadata["name"] = "corpus"
	b, err := s.client.CreateBundle(s.t.Context(), client.NewBundle{Worksheet: s.home, Type: "dataset", Metadata: metadata, WaitForUpload: true})
	ok(s.t, err)
	info, err := os.Stat(path)
	ok(s.t, err)
	if !info.IsDir() {
		f, err := os.Open(path)
		ok(s.t, err)
		defer func() { _ = f.Close() }()
		ok(s.t, s.client.UploadContents(s.t.Context(), b.UUID, client.UploadOptions{Filename: "data", Finalize: true}, f))
		return b.UUID
	}
	root, err := os.OpenRoot(path)
	ok(s.t, err)
	defer func() { _ = root.Close() }()
	var packed bytes.Buffer
	ok(s.t, tarstream.Pack(s.t.Context(), &packed, root, ".", tarstream.PackOptions{}))
	ok(s.t, s.client.UploadContents(s.t.Context(), b.UUID, client.UploadOptions{Filename: "d.tar.gz", Unpack: true, Finalize: true}, &packed))
	return b.UUID
}

// stager stages to a cache, which other stagers may share.
func stager(t *testing.T, c *client.Client, dir, host string) *staging.Stager {
	t.Helper()
	content, err := cache.Open(dir, cache.Options{Settle: -1, Host: host})
	ok(t, err)
	return &staging.Stager{
		Holder:       func(bundle string) cache.Holder { return cache.Holder("test-" + bundle) },
		Dependencies: &inputs.Dependencies{Contents: c, Cache: content, AtOnce: 4},
		Images: &images.Images{
			Cache: content, Kept: images.Records(filepath.Join(dir, "kept")), References: images.References{Dir: filepath.Join(dir, "names")},
			Remember: time.Minute, AtOnce: 2, Now: time.Now,
			Converter: apptainer.Converter{Source: imagetest.Source()},
		},
	}
}

// wants returns a run with these dependencies.
func wants(deps ...codalab.Dependency) codalab.RunBundle {
	run := codalab.RunBundle{UUID: run1, OwnerID: "0x" + strings.Repeat("a", 32)}
	for _, d := range deps {
		run.Dependencies = append(run.Dependencies, codalab.RunDependency{Dependency: d})
	}
	return run
}

// shows reports whether two trees hold the same files.
func shows(t *testing.T, want, got string) {
	t.Helper()
	if diff := different(t, want, got); diff != "" {
		t.Errorf("%s is not as %s: %s", got, want, diff)
	}
}

func different(t *testing.T, want, got string) string {
	t.Helper()
	diff := ""
	ok(t, filepath.WalkDir(want, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		there, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		here, err := os.ReadFile(filepath.Join(got, strings.TrimPrefix(path, want)))
		if err != nil || !bytes.Equal(here, there) {
			diff = path
		}
		return nil
	}))
	return diff
}
