package testenv

import (
	"io"
	"log"
	"net/http"
	"net/http/cgi" //nolint:gosec // of Go 1.6.3 and before
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repository is a repository of real git with a work tree. Handler serves it over HTTP, with the path
// /repo/.git.
type Repository struct {
	Dir string

	tb   testing.TB
	root string
}

// NewRepository makes an empty repository by "git init" with more options.
func NewRepository(tb testing.TB, options ...string) *Repository {
	tb.Helper()
	root := tb.TempDir()
	r := &Repository{filepath.Join(root, "repo"), tb, root}
	r.check(os.Mkdir(r.Dir, 0o700))
	r.Git(append([]string{"init", "-q"}, options...)...)
	return r
}

func (r *Repository) check(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatal(err)
	}
}

// environment keeps git from the configuration of the machine and of its user.
func (r *Repository) environment() []string {
	env := []string{"HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1", "PATH=" + os.Getenv("PATH")}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		env = append(env, "GIT_"+who+"_NAME=ann", "GIT_"+who+"_EMAIL=ann@example.org")
	}
	return env
}

// Git runs git in the work tree and returns its output.
func (r *Repository) Git(args ...string) string {
	r.tb.Helper()
	var said strings.Builder
	c := exec.CommandContext(r.tb.Context(), "git", args...)
	c.Dir, c.Env, c.Stderr = r.Dir, r.environment(), &said
	out, err := c.Output()
	if err != nil {
		r.tb.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, &said)
	}
	return string(out)
}

// Write writes a file of the work tree.
func (r *Repository) Write(name, content string) {
	r.tb.Helper()
	path := filepath.Join(r.Dir, name)
	r.check(os.MkdirAll(filepath.Dir(path), 0o700))
	r.check(os.WriteFile(path, []byte(content), 0o600))
}

// Commit commits all of the work tree.
func (r *Repository) Commit() {
	r.tb.Helper()
	r.Git("add", "--all")
	r.Git("commit", "-q", "-m", "a commit")
}

// Handler serves the repository by git http-backend(1).
func (r *Repository) Handler() http.Handler {
	r.tb.Helper()
	dir := strings.TrimSpace(r.Git("--exec-path"))
	return &cgi.Handler{
		Path: filepath.Join(dir, "git-http-backend"),
		Env:  append(r.environment(), "GIT_PROJECT_ROOT="+r.root, "GIT_HTTP_EXPORT_ALL=1"), Stderr: io.Discard, Logger: log.New(io.Discard, "", 0),
	}
}
