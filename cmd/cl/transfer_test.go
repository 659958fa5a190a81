package main

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
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
func newTransferSite(t *testing.T, quota int64) *transferSite {
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
	real := server.New(server.Config{
		Store: data, Now: time.Now, PasswordCost: cost, FetchPrivate: server.FetchPrivate{Hosts: []string{"127.0.0.1"}},
	})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = real.Run(ctx) }()
	next := real.Handler()
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

// result is how a call of cl has ended.
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

// left returns the names of the files in a directory of the test.
func (s *transferSite) left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
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

// breakAfter breaks the connection after n bytes of an answer.
func breakAfter(n int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Del("Accept-Encoding") // so that n counts
		next.ServeHTTP(&breakingWriter{w, n}, r)
	}
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

func TestFailedUploadLeavesNoBundle(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		handle       func(http.ResponseWriter, *http.Request, http.Handler)
		code         int
		says         string
	}{
		"disk full":          {"PUT", "/blob/", answer(500, "Upload failed: [Errno 28] No space left on device"), 3, "ServerError: Upload failed: [Errno 28] No space left on device\n"},
		"insufficient":       {"PUT", "/blob/", answer(507, "the disk is full"), 3, "ServerError: the disk is full\n"},
		"refusal":            {"PUT", "/blob/", answer(400, "Upload failed: no"), 1, "UsageError: Upload failed: no\n"},
		"page of a proxy":    {"PUT", "/blob/", answer(502, "<html><body>\nBad Gateway"), 3, "ServerError: 502 Bad Gateway (a web page, not the answer of a CodaLab server; check the address"},
		"too large for it":   {"PUT", "/blob/", answer(413, "<html>"), 1, "UsageError: 413 Request Entity Too Large (a web page"},
		"broken connection":  {"PUT", "/blob/", func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, 3, "cannot reach the server at"},
		"creation in doubt":  {"POST", "/rest/bundles", lose, 3, "cannot reach the server at"},
		"creation forbidden": {"POST", "/rest/bundles", answer(403, "no"), 1, "PermissionError: no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			doubt := name == "page of a proxy" || name == "broken connection" // the server may still be at it
			if doubt {
				s.now = leaping()
			}
			s.on(test.method, test.path, test.handle)
			r := s.ends(t, test.code, "upload", s.file(t, "a.txt", random(100)))
			wantText(t, "standard error", r.stderr, test.says)
			if r.stdout != "" {
				t.Errorf("printed %s", r.stdout)
			}
			if told := strings.Contains(r.stderr, "It is not known whether bundle 0x"); told != doubt {
				t.Errorf("told of a doubt: %v\n%s", told, r.stderr)
			}
			if left := s.bundles(t); !doubt && len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// lose has a request done, and loses its answer.
func lose(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
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

func TestLostAnswerOfAnUploadIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on("PUT", "/blob/", lose)
	if r := s.ends(t, 0, "upload", s.file(t, "a.txt", random(100))); !strings.HasPrefix(r.stdout, "0x") || r.stderr != "" {
		t.Errorf("got %+v", r)
	}
	if diff := cmp.Diff([]string{"a.txt ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
}

func TestBundleThatCannotBeRemovedIsNamed(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on("PUT", "/blob/", answer(400, "Upload failed: no"))
	s.on("DELETE", "/bundles", answer(403, "not you"))
	r := s.ends(t, 1, "upload", s.file(t, "a.txt", nil))
	wantText(t, "standard error", r.stderr, "remains without its contents, since it could not be removed: PermissionError: not you. Remove it with: cl rm 0x")
}

func TestInterruptedUploadLeavesNoBundle(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"POST /rest/bundles", "PUT /blob/"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			ctx, interrupt := context.WithCancel(t.Context())
			method, path, _ := strings.Cut(at, " ")
			s.on(method, path, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				interrupt()
				next.ServeHTTP(w, r)
			})
			in, never := io.Pipe()
			defer never.Close() //nolint:errcheck // of no use any more
			r := s.cl(ctx, in, "upload", "-")
			if r.code != program.ExitInterrupted || r.stdout != "" {
				t.Errorf("got %+v", r)
			}
			wantText(t, "standard error", r.stderr, "was removed again")
			if left := s.bundles(t); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

func TestTooLargeUploadIsRefusedBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1000)
	r := s.ends(t, 1, "upload", s.file(t, "a.txt", random(2000)))
	wantText(t, "standard error", r.stderr, "UsageError: The upload needs 2.0k, but only 1000 of your disk quota of 1000 are left.")
	r = s.ends(t, 1, "upload", s.dir)
	wantText(t, "standard error", r.stderr, "UsageError: The upload needs ")
	if calls := s.called("PUT"); len(calls) > 0 {
		t.Errorf("something was sent")
	}
	// What standard input holds is known only while it is sent.
	r = s.cl(t.Context(), bytes.NewReader(random(1<<20)), "upload", "-")
	wantText(t, "standard error", r.stderr, "Can't save bundle, user disk quota exceeded.")
	if left := s.bundles(t); len(left) > 0 || r.code != 1 {
		t.Errorf("exit code %d, left %q", r.code, left)
	}
}

func TestStandardInputBecomesAFileOrItsArchiveADirectory(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	upload := func(stdin string, args ...string) {
		t.Helper()
		if r := s.cl(t.Context(), strings.NewReader(stdin), append([]string{"upload", "-"}, args...)...); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	upload("text")
	if r := s.ends(t, 0, "cat", "stdin"); r.stdout != "text" {
		t.Errorf("got %q", r.stdout)
	}
	archive := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xcb\xcf\x57\xe0\x02\x00" // not whole
	if r := s.cl(t.Context(), strings.NewReader(archive), "upload", "-", "-n", "x.gz"); r.code == 0 {
		t.Error("a broken archive was taken")
	}
	upload(archive, "-n", "x.gz", "-p")
	if diff := cmp.Diff([]string{"stdin ready", "x.gz ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
}

func TestServerFetchesURLs(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	web := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
	t.Cleanup(web.Close)
	s.file(t, "page.html", []byte("page"))
	s.ends(t, 0, "upload", web.URL+"/page.html")
	if r := s.ends(t, 0, "cat", "page.html"); r.stdout != "page" {
		t.Errorf("got %q", r.stdout)
	}
	if r := s.ends(t, 0, "info", "-f", "source_url", "page.html"); r.stdout != "['"+web.URL+"/page.html']\n" {
		t.Errorf("got %q", r.stdout)
	}
	r := s.ends(t, 1, "upload", web.URL+"/nosuch", "-n", "missing")
	wantText(t, "standard error", r.stderr, "404 Not Found")
	if diff := cmp.Diff([]string{"page.html ready"}, s.bundles(t)); diff != "" {
		t.Error(diff)
	}
	var query string
	s.on("PUT", "/blob/", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		query = r.URL.RawQuery
		answer(400, "no")(w, r, nil)
	})
	s.ends(t, 1, "upload", "-g", "https://example.org/x.git", "-a", "--store", "far")
	want := "finalize_on_failure=1&finalize_on_success=1&git=1&state_on_success=ready&store=far&unpack=1&urls=https%3A%2F%2Fexample.org%2Fx.git&use_azure_blob_beta=1"
	if diff := cmp.Diff(want, query); diff != "" {
		t.Error(diff)
	}
}

// uploaded returns the uuid of a bundle with these contents.
func (s *transferSite) uploaded(t *testing.T, name string, data []byte) string {
	t.Helper()
	return strings.TrimSpace(s.ends(t, 0, "upload", s.file(t, "from/"+name, data)).stdout)
}

func TestBrokenDownloadGoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	data := random(300_000)
	uuid := s.uploaded(t, "big", data)
	s.heal()
	s.on("GET", "/blob/", once(breakAfter(200_000)))
	to := filepath.Join(s.dir, "to", "big")
	s.file(t, "to/other", nil)
	r := s.ends(t, 0, "download", uuid, "-o", to, "--json")
	wantText(t, "standard error", r.stderr, "the connection broke: unexpected EOF: trying again.")
	wantText(t, "standard output", r.stdout, `"size": 300000`)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what arrived differs (%v)", err)
	}
	if diff := cmp.Diff([]string{"", "bytes=134464-199999", "bytes=200000-299999"}, s.called("GET")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"big", "other"}, s.left(t, "to")); diff != "" {
		t.Error(diff)
	}
}

// TestKeptPartIsUsedForItsContentsOnly breaks a download for good, and calls cl again.
func TestKeptPartIsUsedForItsContentsOnly(t *testing.T) {
	t.Parallel()
	data := random(300_000)
	for name, test := range map[string]struct {
		change func(t *testing.T, s *transferSite, part string)
		want   []string // the ranges that cl asks for
	}{
		"as it was": {func(*testing.T, *transferSite, string) {}, []string{"bytes=134464-199999", "bytes=200000-299999"}},
		"damaged by a crash": {func(t *testing.T, _ *transferSite, part string) {
			t.Helper()
			if err := errors.Join(os.Truncate(part, 150_000), os.Truncate(part, 200_000)); err != nil {
				t.Error(err)
			}
		}, []string{"bytes=134464-199999", ""}},
		"behind a proxy without ranges": {func(_ *testing.T, s *transferSite, _ string) {
			s.on("GET", "/blob/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				r.Header.Del("Range")
				next.ServeHTTP(w, r)
			})
		}, []string{"bytes=134464-199999", ""}},
		"of another bundle": {func(t *testing.T, _ *transferSite, part string) {
			t.Helper()
			if err := os.Rename(part, strings.TrimRight(part, "0123456789abcdef")+"0123456789abcdef"); err != nil {
				t.Error(err)
			}
		}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			uuid := s.uploaded(t, "big", data)
			s.on("GET", "/blob/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Header.Get("Range") != "" {
					answer(503, "soon")(w, r, next)
					return
				}
				breakAfter(200_000)(w, r, next)
			})
			s.now = leaping()
			to := filepath.Join(s.dir, "to", "big")
			s.file(t, "to/other", nil)
			r := s.ends(t, 3, "download", uuid, "-o", to)
			wantText(t, "standard error", r.stderr, ": the same command goes on from there.\n")
			left := s.left(t, "to")
			if len(left) != 2 || !strings.HasPrefix(left[0], ".big.part-") {
				t.Fatalf("left %q", left)
			}
			s.heal()
			test.change(t, s, filepath.Join(s.dir, "to", left[0]))
			s.ends(t, 0, "download", uuid, "-o", to)
			if diff := cmp.Diff(test.want, s.called("GET")); diff != "" {
				t.Error(diff)
			}
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
				t.Errorf("what arrived differs (%v)", err)
			}
		})
	}
}

func TestBrokenDownloadOfADirectoryBeginsAnew(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	file := s.file(t, "from/d/f", random(300_000))
	s.ends(t, 0, "upload", filepath.Dir(file))
	s.on("GET", "/blob/", once(breakAfter(200_000)))
	to := filepath.Join(s.dir, "to", "d")
	s.file(t, "to/other", nil)
	s.ends(t, 0, "download", "d", "-o", to)
	if got, err := os.ReadFile(filepath.Join(to, "f")); err != nil || !bytes.Equal(got, random(300_000)) {
		t.Errorf("what arrived differs (%v)", err)
	}
	s.on("GET", "/blob/", breakAfter(200_000))
	s.now = leaping()
	r := s.ends(t, 3, "download", "d", "-o", to+"2")
	wantText(t, "standard error", r.stderr, "the connection broke")
	if diff := cmp.Diff([]string{"d", "other"}, s.left(t, "to")); diff != "" {
		t.Error(diff)
	}
}

func TestInterruptedDownloadKeepsOnlyWhatCanGoOn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"file", "directory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			what := s.file(t, "from/d/f", random(300_000))
			if name == "directory" {
				what = filepath.Dir(what)
			}
			uuid := strings.TrimSpace(s.ends(t, 0, "upload", what).stdout)
			to := filepath.Join(s.dir, "to", "x")
			s.file(t, "to/other", nil)
			// Some of the file is there already.
			s.on("GET", "/blob/", breakAfter(200_000))
			s.now = leaping()
			s.ends(t, 3, "download", uuid, "-o", to)
			ctx, interrupt := context.WithCancel(t.Context())
			s.on("GET", "/blob/", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
				interrupt()
				<-r.Context().Done()
			})
			r := s.cl(ctx, nil, "download", uuid, "-o", to)
			if r.code != program.ExitInterrupted {
				t.Errorf("got %+v", r)
			}
			kept := len(s.left(t, "to")) == 2
			if said := strings.Contains(r.stderr, "are kept in"); kept != said || kept != (name == "file") {
				t.Errorf("kept a part: %v; said so: %v", kept, said)
			}
		})
	}
}

func TestDownloadNamesWhatIsWrongHere(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	uuid := s.uploaded(t, "f", []byte("x"))
	r := s.ends(t, 1, "download", uuid, "-o", filepath.Join(s.dir, "nosuch", "f"))
	wantText(t, "standard error", r.stderr, "nosuch/.f.part-")
	wantText(t, "standard error", r.stderr, ": no such file or directory\n")
	d := download{final: filepath.Join(s.dir, "f")}
	if err := d.checkDisk(1 << 62); err == nil || !strings.Contains(err.Error(), "4194304t more are needed, but the disk of "+s.dir+" has only ") {
		t.Errorf("got %v", err)
	}
}

