package server_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// siteThatFetches is a site that fetches from 127.0.0.1.
func siteThatFetches(t *testing.T) *site {
	t.Helper()
	allow, err := outbound.Parse([]string{"127.0.0.1"})
	must(t, err)
	return newSite(t, func(c *server.Config) { c.FetchPrivate = allow })
}

func gitQuery(where string) string { return "git=1&urls=" + url.QueryEscape(where) }

// noise are bytes that cannot be compressed.
func noise(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}

// processes are the running processes whose arguments contain a text.
func processes(tb testing.TB, text string) (found []string) {
	tb.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(tb, err)
	for _, path := range all {
		if args, err := os.ReadFile(path); err == nil && strings.Contains(string(args), text) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// leavesNothing fails if an upload has left something in the store.
func (s *site) leavesNothing() {
	s.t.Helper()
	if used := s.diskUsed(); used != 0 {
		s.t.Errorf("%d bytes used", used)
	}
	if n, err := s.store.Sweep(s.t.Context()); n != 0 || err != nil {
		s.t.Errorf("%d directories were left over, %v", n, err)
	}
}

func TestUploadOfAGitRepository(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepository(t)
	repo.Write("old", "gone")
	repo.Commit()
	must(t, os.Remove(filepath.Join(repo.Dir, "old")))
	repo.Write(".gitattributes", "secret export-ignore\nversion export-subst\n*.bat text eol=crlf\n*.bin filter=lfs\n")
	repo.Write("secret", "kept")
	repo.Write("noise", noise(700_000))
	repo.Write("version", "$Format:%H$")
	repo.Write("dir/f.bat", "one\ntwo\n")
	repo.Write("dir/program", "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(repo.Dir, "dir/program"), 0o755))
	must(t, os.Symlink("f.bat", filepath.Join(repo.Dir, "dir/link")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(repo.Dir, "dir/out")))
	repo.Write("model.bin", "version https://git-lfs.github.com/spec/v1\n")
	repo.Git("add", ".")
	repo.Git("update-index", "--add", "--cacheinfo", "160000,"+strings.TrimSpace(repo.Git("rev-parse", "HEAD"))+",module")
	repo.Git("commit", "-q", "-m", "all kinds")
	checkedOut := filepath.Join(t.TempDir(), "clone")
	repo.Git("clone", "-q", repo.Dir, checkedOut)

	var seen []string
	git := repo.Handler()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "pass:/@word" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "sign in", http.StatusUnauthorized)
			return
		}
		seen = append(processes(t, "pass:"), processes(t, "pass%3A")...)
		git.ServeHTTP(w, r)
	}))
	defer web.Close()
	s := siteThatFetches(t)
	s.setQuota(1<<20, 1<<40) // less than what git fetches and the files together
	uuid := s.dataset("repo")
	s.put(uuid, gitQuery(strings.Replace(web.URL, "http://", "http://ann:pass%3A%2F%40word@", 1)+"/repo/.git"), "").ok()
	if len(seen) > 0 {
		t.Errorf("everybody on the machine sees the password: %q", seen)
	}
	got := s.bundlePath(uuid)
	same := func(path string) {
		t.Helper()
		want, err := os.Lstat(filepath.Join(checkedOut, path))
		must(t, err)
		have, err := os.Lstat(filepath.Join(got, path))
		must(t, err)
		if want.Mode().Type() != have.Mode().Type() || want.Mode().IsRegular() && want.Mode()&0o100 != have.Mode()&0o100 {
			t.Errorf("%s is %s, want %s", path, have.Mode(), want.Mode())
		}
		switch {
		case want.Mode().IsRegular():
			a, err := os.ReadFile(filepath.Join(checkedOut, path))
			must(t, err)
			b, err := os.ReadFile(filepath.Join(got, path))
			must(t, err)
			if string(a) != string(b) {
				t.Errorf("%s has %q, want %q", path, b, a)
			}
		case want.Mode()&os.ModeSymlink != 0:
			a, _ := os.Readlink(filepath.Join(checkedOut, path))
			if b, _ := os.Readlink(filepath.Join(got, path)); a != b {
				t.Errorf("%s leads to %s, want %s", path, b, a)
			}
		}
	}
	want := ". .gitattributes dir dir/f.bat dir/link dir/out dir/program model.bin module noise secret version"
	if names := strings.Join(pathsBelow(t, got), " "); names != want {
		t.Errorf("the bundle has %s, want %s", names, want)
	}
	for path := range strings.FieldsSeq(want) {
		same(path)
	}
	if b := s.bundle("alice", uuid); b.State != codalab.StateReady || s.diskUsed() == 0 || b.Metadata.Int("data_size")+12*codalab.BlockSize != s.diskUsed() {
		t.Errorf("%s %v, %d bytes used", b.State, b.Metadata, s.diskUsed())
	}
	if left, err := os.ReadDir(filepath.Dir(got)); len(left) != 1 {
		t.Errorf("beside the contents are %v, %v", left, err)
	}
}

// bundlePath is where the store has a bundle's contents.
func (s *site) bundlePath(uuid string) string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "bundles", uuid+"-*", "contents"))
	if len(found) != 1 || err != nil {
		s.t.Fatalf("contents: %v, %v", found, err)
	}
	return found[0]
}

func pathsBelow(t *testing.T, dir string) (paths []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		below, _ := filepath.Rel(dir, path)
		paths = append(paths, below)
		return err
	}))
	return paths
}

func TestGitRepositoryThatCannotBeStoredLeavesNothing(t *testing.T) {
	t.Parallel()
	large, bomb, empty := testenv.NewRepository(t), testenv.NewRepository(t), testenv.NewRepository(t)
	large.Write("noise", noise(2<<20))
	large.Commit()
	bomb.Write("f", strings.Repeat("x", 4<<20)) // 4 KiB as it comes
	bomb.Commit()
	stored := testenv.NewRepository(t)
	stored.Git("config", "core.compression", "0")
	stored.Write("f", strings.Repeat("x", 4<<20))
	stored.Commit()
	pushed := filepath.Join(t.TempDir(), "pushed")
	mux := http.NewServeMux()
	mux.Handle("/large/", http.StripPrefix("/large", large.Handler()))
	mux.Handle("/bomb/", http.StripPrefix("/bomb", bomb.Handler()))
	git := http.StripPrefix("/gzip", stored.Handler())
	mux.HandleFunc("/gzip/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			git.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zw := gzip.NewWriter(w)
		git.ServeHTTP(compressedWriter{w, zw}, r)
		_ = zw.Close()
	})
	mux.Handle("/empty/", http.StripPrefix("/empty", empty.Handler()))
	mux.HandleFunc("/away/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://[::1]:1/info/refs?"+r.URL.RawQuery, http.StatusFound)
	})
	mux.HandleFunc("/tunnel/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://[::1]:1/info/refs?"+r.URL.RawQuery, http.StatusFound)
	})
	mux.HandleFunc("/file/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file://"+large.Dir+"/.git/info/refs", http.StatusFound)
	})
	mux.HandleFunc("/rude/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		const banner = "\x1b[2J"
		said := banner + strings.Repeat("x", 2000)
		_, _ = fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04xERR %s", len(said)+8, said)
	})
	web := httptest.NewServer(mux)
	defer web.Close()
	s := siteThatFetches(t)
	s.setQuota(1<<20, 1<<40)
	for where, want := range map[string]string{
		web.URL + "/large/repo/.git":       "user disk quota exceeded",
		web.URL + "/bomb/repo/.git":        "user disk quota exceeded",
		web.URL + "/gzip/repo/.git":        "git: ", // for one file of git's is too large, before the quota is
		web.URL + "/empty/repo/.git":       "git: not a valid object name: HEAD",
		web.URL + "/away":                  "not a public address: ::1",
		web.URL + "/tunnel":                "not a public address: ::1",
		web.URL + "/file":                  "git: ",
		web.URL + "/nosuch":                "nosuch/' not found",
		web.URL + "/rude":                  "git: remote error: ?[2Jxxx",
		"http://localhost:1/private.git":   "not a public address",
		"https://10.0.0.1/private.git":     "not a public address: 10.0.0.1",
		"ssh://git@127.0.0.1/repo":         "only http and https",
		"file://" + large.Dir:              "only http and https",
		large.Dir:                          "only http and https",
		"ext::sh -c touch% " + pushed:      "only http and https",
		"--upload-pack=touch " + pushed:    "only http and https",
		"http://-oProxyCommand=touch%20x/": "cannot be read",
	} {
		uuid := s.dataset("repo")
		a := s.put(uuid, gitQuery(where), "")
		a.says(http.StatusBadRequest, want)
		if b := s.bundle("alice", uuid); b.State != codalab.StateFailed || len(a.body) > 1000 {
			t.Errorf("%s: %s, %s", where, b.State, a.body)
		}
	}
	if _, err := os.Stat(pushed); err == nil {
		t.Error("a URL has run a program")
	}
	s.leavesNothing()
}

// compressedWriter compresses an answer.
type compressedWriter struct {
	http.ResponseWriter
	body io.Writer
}

func (w compressedWriter) Write(b []byte) (int, error) { return w.body.Write(b) }

func TestServerWithoutGitSaysSo(t *testing.T) {
	prlimit, err := exec.LookPath("prlimit")
	must(t, err)
	s := siteThatFetches(t)
	path := t.TempDir()
	t.Setenv("PATH", path)
	for range 2 { // the second time, with prlimit
		uuid := s.dataset("repo")
		s.put(uuid, gitQuery("http://127.0.0.1/repo"), "").says(http.StatusBadRequest, "this server has no git program; clone the repository, and upload the directory")
		_ = os.Symlink(prlimit, filepath.Join(path, "prlimit"))
	}
	s.leavesNothing()
}

func TestGitEndsWithTheClientsRequest(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	slow, finish := context.WithCancel(t.Context())
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case begun <- struct{}{}:
		case <-slow.Done():
		}
		<-slow.Done()
	}))
	defer web.Close()
	defer finish()
	s := siteThatFetches(t)
	client, leave := context.WithCancel(t.Context())
	uuid := s.dataset("repo")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := s.request("alice", http.MethodPut, "/bundles/"+uuid+"/contents/blob/?"+gitQuery(web.URL), nil).WithContext(client)
		s.send(r)
	}()
	<-begun
	if len(processes(t, web.URL)) == 0 {
		t.Error("no git is seen")
	}
	leave()
	testenv.Receive(t, "git ends without the client", ended)
	s.awaitNoProcess(web.URL)
	s.leavesNothing()
}

// awaitNoProcess waits until no process has a text in its arguments.
func (s *site) awaitNoProcess(text string) {
	s.t.Helper()
	var left []string
	testenv.Await(s.t, "no process has "+text+" in its arguments", func() bool {
		left = processes(s.t, text)
		return len(left) == 0
	}, &left)
}

func TestGitRepositoriesOfOneOwnerDoNotHoldUpAnothers(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepository(t)
	repo.Write("f", "text")
	repo.Commit()
	const each = 6
	begun := make(chan struct{}, 10*each) // git asks more than once
	slow, finish := context.WithCancel(t.Context())
	mux := http.NewServeMux()
	mux.Handle("/repo/", repo.Handler())
	mux.HandleFunc("/slow/", func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-slow.Done()
	})
	web := httptest.NewServer(mux)
	defer web.Close()
	defer finish()
	s := siteThatFetches(t)
	answered := make(chan answer)
	for range each {
		uuid := s.dataset("slow")
		go func() { answered <- s.put(uuid, gitQuery(web.URL+"/slow"), "") }()
	}
	for range 2 { // as many as she may have at once
		<-begun
	}
	bobs := s.call("bob", http.MethodPost, "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "repo", nil)})).ok().text("data", 0, "id")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	s.send(s.request("bob", http.MethodPut, "/bundles/"+bobs+"/contents/blob/?"+gitQuery(web.URL+"/repo/.git"), nil).WithContext(ctx)).ok()
	finish()
	for range each {
		<-answered
	}
}
