package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const (
	gitTimeout = time.Hour // for a repository
	gitMemory  = 1 << 30   // address space of each of git's processes
	gitSpeech  = 500       // bytes of git's message that a user sees
)

// storeRepository stores the files of a git repository's newest commit, without .git and submodules
// (codalab/lib/file_util.py: git_clone). What git fetches and the files are on the disk at the same
// time; the larger of the two counts against the quota.
func (s *Fetcher) storeRepository(ctx context.Context, in *store.Upload, u *url.URL, room *reservation) error {
	leave, err := s.repositories.Take(ctx, turns.Party{Owner: room.ownerID})
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, gitTimeout, badContents("the repository did not come within "+gitTimeout.String()))
	defer cancel()
	home, err := in.Spool()
	if err != nil {
		return err
	}
	git := &gitProgram{home: home}
	err = s.clone(ctx, git, u, room)
	if err == nil {
		room.rewind()
		err = git.archive(ctx, in, room)
	}
	return errors.Join(err, os.RemoveAll(home))
}

// clone fetches the newest commit of a repository. It checks nothing out, so that git runs no hooks
// and filters.
func (s *Fetcher) clone(ctx context.Context, git *gitProgram, u *url.URL, room *reservation) error {
	left, err := room.room()
	if err != nil {
		return err
	}
	const own = 1 << 20 // for git's own files
	git.largestFile = left + own
	bare := *u
	if bare.User = nil; u.User != nil { // not in git's arguments, which everybody on this machine can read
		login := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
		if err := os.WriteFile(filepath.Join(git.home, ".git-credentials"), []byte(login.String()+"\n"), 0o600); err != nil {
			return err
		}
	}
	proxy, err := newGitProxy(ctx, s.private, room.takeBytes)
	if err != nil {
		return err
	}
	err = git.run(ctx, nil, []string{"ALL_PROXY=" + proxy.url, "GIT_HTTP_PROXY_AUTHMETHOD=basic"},
		"-c", "http.lowSpeedLimit="+strconv.FormatInt(int64(rest.PaceStep/max(1, s.timeout.Seconds())), 10),
		"-c", "http.lowSpeedTime="+strconv.Itoa(max(1, int(s.timeout.Seconds()))),
		"clone", "--quiet", "--bare", "--depth=1", "--single-branch", "--no-tags", "--template=", "--", bare.String(), git.repository())
	if failed := proxy.close(); err != nil && failed != nil && ctx.Err() == nil {
		return failed // git only sees that the proxy refuses something
	}
	return err
}

// gitProgram runs git with nothing of the machine's configuration and environment.
type gitProgram struct {
	home        string // a directory for this upload alone
	largestFile int64  // that git may write: bytes that come in compressed exceed those that are reserved
}

func (g *gitProgram) repository() string { return filepath.Join(g.home, "repository") }

// archive stores the files of the newest commit as git checks them out. Attributes that leave out files
// of archives, or change them, do not count.
func (g *gitProgram) archive(ctx context.Context, in *store.Upload, room *reservation) error {
	info := filepath.Join(g.repository(), "info")
	err := os.MkdirAll(info, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(info, "attributes"), []byte("* -export-ignore -export-subst\n"), 0o600)
	}
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	var writing errgroup.Group
	writing.Go(func() error {
		err := g.run(ctx, w, nil, "-c", "tar.umask=0022", "--git-dir="+g.repository(), "archive", "--format=tar", "HEAD")
		return w.CloseWithError(err)
	})
	err = in.Archive(ctx, sourceReader{r}, room.limits())
	return errors.Join(err, r.Close(), writing.Wait())
}

// run runs git. All that it starts is gone when it returns.
func (g *gitProgram) run(ctx context.Context, stdout io.Writer, env []string, args ...string) error {
	limits := []string{"prlimit", "--core=0", fmt.Sprintf("--as=%d", gitMemory), fmt.Sprintf("--fsize=%d", g.largestFile)}
	settings := []string{
		"git", "-c", "credential.helper=store", "-c", "fetch.unpackLimit=1", // what comes stays compressed
		// Within gitMemory.
		"-c", "pack.threads=1", "-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=256m", "-c", "core.bigFileThreshold=32m",
	}
	path := "PATH=" + os.Getenv("PATH") //nolint:forbidigo // where command finds prlimit
	err := command.Command{
		Args: append(append(limits, settings...), args...), Dir: g.home, Stdout: stdout, Group: true,
		Env: append(env, path, "HOME="+g.home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=http:https"),
	}.Run(ctx)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (%w)", gitFailure(ctx, err), err)
}

// gitFailure returns an error that tells the user the reason for which git failed.
func gitFailure(ctx context.Context, err error) error {
	const notFound = 127 // prlimit(1) found no such program
	var failed *command.Error
	switch {
	case ctx.Err() != nil:
		return sourceError{context.Cause(ctx)}
	case !errors.As(err, &failed):
		return err
	case !failed.Started(), failed.ExitCode == notFound:
		return badContents("this server has no git program; clone the repository, and upload the directory")
	}
	said := "git failed"
	for line := range strings.Lines(failed.Stderr) {
		if fatal, ok := strings.CutPrefix(line, "fatal: "); ok {
			said = "git: " + strings.TrimSpace(fatal)
		}
	}
	return badContents(termtext.OneLine(strings.ToValidUTF8(said[:min(len(said), gitSpeech)], "")))
}
