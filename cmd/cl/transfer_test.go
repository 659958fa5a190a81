package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// transferSite is a server behind a proxy that a test makes fail.
type transferSite struct {
	address string
	dir     string // for the files of the test
	api     *client.Client

	mu sync.Mutex
	// handle serves a request in place of the server, if it returns true. The server is next.
	handle func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	calls  []string
	now    func() time.Time
}

// newTransferSite serves a user with this disk quota.
func newTransferSite(t *testing.T, quota int64, change ...func(*server.Config)) *transferSite {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	data, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cost := server.PasswordCost{Passes: 1, KiB: 8}
	err = data.AddUser(ctx, store.User{
		ID: codalab.NewUUID(), Name: userName, Password: server.HashPassword(password, cost), Joined: store.Time{Time: time.Now()},
		TimeQuota: 1 << 40, DiskQuota: quota, ParallelRunQuota: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &transferSite{dir: t.TempDir(), now: time.Now}
	config := server.Config{
		Store: data, Now: time.Now, PasswordCost: cost, FetchPrivate: outbound.Places{Hosts: []string{"127.0.0.1"}},
	}
	for _, c := range change {
		c(&config)
	}
	product := server.New(config)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = product.Run(ctx) }()
	next := product.Handler()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.Path+" "+r.Header.Get("Range"))
		handle := s.handle
		s.mu.Unlock()
		if handle == nil || !handle(w, r, next) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		stop()
		site.CloseClientConnections()
		site.Close()
		<-ended
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	s.address = site.URL
	s.api, err = client.New(s.address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return userName, password, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// on serves the requests whose method and path contain these texts.
func (s *transferSite) on(method, path string, handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.handle
	s.handle = func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method == method && strings.Contains(r.URL.Path, path) {
			handle(w, r, next)
			return true
		}
		return before != nil && before(w, r, next)
	}
}

// heal makes the proxy work.
func (s *transferSite) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle, s.calls = nil, nil
}

// called returns the calls of the contents since the last heal.
func (s *transferSite) called(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, c := range s.calls {
		if strings.HasPrefix(c, method) && strings.Contains(c, "/contents/blob/") {
			list = append(list, c[strings.LastIndex(c, " ")+1:])
		}
	}
	return list
}

// awaitCalls waits for some more calls of a path.
func (s *transferSite) awaitCalls(t *testing.T, path string, more int) {
	t.Helper()
	number := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.calls {
			if strings.Contains(c, path) {
				n++
			}
		}
		return n
	}
	before := number()
	testenv.Await(t, "calls of "+path, func() bool { return number() >= before+more })
}

// result is the end of a call of cl.
type result struct {
	code           int
	err            error
	stdout, stderr string
}

func (s *transferSite) cl(ctx context.Context, stdin io.Reader, args ...string) result {
	var stdout, stderr bytes.Buffer
	environment := map[string]string{
		"CL_SERVER": s.address, "CODALAB_USERNAME": userName, "CODALAB_PASSWORD": password, "CODALAB_HOME": filepath.Join(s.dir, "home"),
	}
	err := run(ctx, program.Process{
		Args: args, Stdin: stdin, Stdout: &stdout, Stderr: &stderr, Now: s.now,
		Getenv: func(name string) string { return environment[name] },
	})
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	return result{program.Code(ctx, err), err, stdout.String(), stderr.String()}
}

// ends runs cl, which must end with this exit code.
func (s *transferSite) ends(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := s.cl(t.Context(), strings.NewReader(""), args...)
	if r.code != code {
		t.Fatalf("cl %q: exit code %d, want %d\n%s%s", args, r.code, code, r.stdout, r.stderr)
	}
	return r
}

// file writes a file of the test, and returns its path.
func (s *transferSite) file(t *testing.T, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// bundles returns the names of the bundles on the server.
func (s *transferSite) bundles(t *testing.T) []string {
	t.Helper()
	s.heal()
	sheet, err := s.api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err != nil {
		t.Fatal(err)
	}
	if sheet, err = s.api.WorksheetBundles(t.Context(), sheet.UUID); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, b := range sheet.Bundles {
		names = append(names, b.Metadata.String("name")+" "+string(b.State))
	}
	return names
}

// left returns the names of the files in the directory for downloads.
func (s *transferSite) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "to"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func wantText(t *testing.T, what, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%s lacks %q:\n%s", what, want, text)
	}
}

// random returns n bytes that do not compress.
func random(n int) []byte {
	data := make([]byte, n)
	state := uint64(n) + 1
	for i := range data {
		state = state*6364136223846793005 + 1442695040888963407
		data[i] = byte(state >> 56)
	}
	return data
}

// breaks breaks the connection after 200,000 bytes of an answer.
func breaks(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r.Header.Del("Accept-Encoding") // so that they are those of the file
	next.ServeHTTP(&breakingWriter{w, 200_000}, r)
}

type breakingWriter struct {
	http.ResponseWriter
	left int
}

func (b *breakingWriter) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	_, _ = b.ResponseWriter.Write(p[:n])
	if b.left == 0 {
		_ = http.NewResponseController(b.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

// once handles the first request, and leaves the others to the server.
func once(handle func(http.ResponseWriter, *http.Request, http.Handler)) func(http.ResponseWriter, *http.Request, http.Handler) {
	first := &sync.Once{}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mine := false
		first.Do(func() { mine = true })
		if mine {
			handle(w, r, next)
		} else {
			next.ServeHTTP(w, r)
		}
	}
}

func answer(status int, text string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, text, status)
	}
}

// leaping is a clock that is ten minutes later at each look.
func leaping() func() time.Time {
	var mu sync.Mutex
	now := time.Now()
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(10*time.Minute + 1)
		return now
	}
}
