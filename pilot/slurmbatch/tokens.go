package slurmbatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Tokens makes tokens for single workers. *client.Client implements it.
type Tokens interface {
	// WorkerToken returns a token with which only the worker of this id can log in, valid for life. It fails
	// with errors.ErrUnsupported if the server has no such tokens.
	WorkerToken(ctx context.Context, workerID string, life time.Duration) (token string, err error)
	// RevokeToken ends a token. It is no error if the token has ended.
	RevokeToken(ctx context.Context, token string) error
	// EndWorkerTokens ends all tokens of a worker, also those that it has renewed. It is no error if there are none.
	EndWorkerTokens(ctx context.Context, workerID string) error
}

// A token is valid for the time limit of the pilot's job and the time that the job may wait in Slurm's queue.
// A job that still waits after half of that time gets a new token.
const (
	queueTime    = 48 * time.Hour
	longestToken = 35 * 24 * time.Hour // the server's bound
	// settling is the time for which a job may be missing in Slurm's answers after a submission without an
	// answer.
	settling = 5 * time.Minute
)

// tokenFile returns the path of the file with a pilot's token.
func (b *Backend) tokenFile(name string) string { return filepath.Join(b.WorkDir, name, "token") }

// logIn returns the arguments by which a pilot logs in: the path of a file with its own token, which logIn makes;
// or else those of Credentials.
func (b *Backend) logIn(ctx context.Context, name string) ([]string, error) {
	why := ""
	switch {
	case b.Tokens == nil:
		return b.Credentials(ctx)
	case !b.Worker.TakesToken:
		why = "the worker's program has no --token-file"
	case b.Job.Time == 0 || b.Job.Time+queueTime > longestToken:
		why = "the jobs have no time limit, or a longer one than tokens may have"
	default:
		err := b.issueToken(ctx, name)
		if !errors.Is(err, errors.ErrUnsupported) {
			return []string{"--token-file", b.tokenFile(name)}, err
		}
		why = "the server has no worker tokens"
	}
	if b.whyNoToken != why {
		b.whyNoToken = why
		b.log().InfoContext(ctx, "workers log in with the password file", slog.String("reason", why))
	}
	return b.Credentials(ctx)
}

func (b *Backend) log() *slog.Logger {
	if b.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Logger
}

// issueToken writes a new token into a pilot's file.
func (b *Backend) issueToken(ctx context.Context, name string) error {
	token, err := b.Tokens.WorkerToken(ctx, pilot.WorkerID(name), b.Job.Time+queueTime)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(b.tokenFile(name), []byte(token+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("keep the token of worker %s: %w", name, err), b.Tokens.RevokeToken(ctx, token))
	}
	if b.issued != nil {
		b.issued[name] = b.Now()
	}
	return nil
}

// dropToken ends a pilot's tokens and removes the file of the first one. It does nothing if the pilot has none.
func (b *Backend) dropToken(ctx context.Context, name string) error {
	if _, err := os.Stat(b.tokenFile(name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := b.Tokens.EndWorkerTokens(ctx, pilot.WorkerID(name))
	if err == nil {
		err = os.Remove(b.tokenFile(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the token of worker %s: %w", name, err)
	}
	return nil
}

// renewToken gives a pilot a new token. The worker reads the file again if it has just read the old one.
func (b *Backend) renewToken(ctx context.Context, name string) error {
	old, err := os.ReadFile(b.tokenFile(name))
	if err != nil {
		return fmt.Errorf("renew the token of worker %s: %w", name, err)
	}
	if err := b.issueToken(ctx, name); err != nil {
		return err
	}
	return b.Tokens.RevokeToken(ctx, strings.TrimSpace(string(old)))
}

// findTokens reads the times of the token files in the work directory, once.
func (b *Backend) findTokens() error {
	if b.issued != nil {
		return nil
	}
	files, err := filepath.Glob(b.tokenFile("*"))
	if err != nil {
		return fmt.Errorf("find tokens: %w", err)
	}
	b.issued = map[string]time.Time{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if info, err := os.Stat(file); err == nil && b.IsPilot(name) {
			b.issued[name] = info.ModTime()
		}
	}
	return nil
}

// Tidy revokes and removes the tokens of pilots that have ended, and renews those of pilots that have waited for long.
// It follows the last answer of Pilots, and does nothing before the first.
func (b *Backend) Tidy(ctx context.Context) error {
	if b.Tokens == nil || !b.answered {
		return nil
	}
	if err := b.findTokens(); err != nil {
		return err
	}
	shown := map[string]pilot.Pilot{}
	for _, j := range b.jobs {
		if p := pilotOf(j); shown[j.Name].Phase == "" || p.Phase != pilot.Ended {
			shown[j.Name] = p
		}
	}
	now := b.Now()
	var failed error
	for name, issued := range b.issued {
		p, known := shown[name]
		age := now.Sub(issued)
		switch {
		case known && p.Phase == pilot.Ended, !known && age > settling:
			err := b.dropToken(ctx, name)
			if err == nil {
				delete(b.issued, name)
			}
			failed = errors.Join(failed, err)
		case p.Phase == pilot.Pending && age > queueTime/2:
			failed = errors.Join(failed, b.renewToken(ctx, name))
		}
	}
	return failed
}
