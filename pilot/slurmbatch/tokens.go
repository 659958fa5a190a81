package slurmbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/pilot"
)

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

// TokenLife is 0 if the workers have to log in with the arguments of Login.
func (b *Backend) TokenLife() time.Duration {
	if b.whyNoToken() != "" {
		return 0
	}
	return b.Job.Time + queueTime
}

// whyNoToken returns the reason for which pilots can take no tokens; empty if they can.
func (b *Backend) whyNoToken() string {
	switch {
	case !b.Worker.TakesToken:
		return "the worker's program has no --token-file"
	case b.Job.Time == 0 || b.Job.Time+queueTime > longestToken:
		return "the jobs have no time limit, or a longer one than tokens may have"
	}
	return ""
}

// logIn returns the arguments by which a pilot logs in: the path of a file with its token, which logIn writes; or else
// those of Login.
func (b *Backend) logIn(ctx context.Context, name, token string) ([]string, error) {
	if token != "" {
		return []string{"--token-file", b.tokenFile(name)}, b.keepToken(name, token)
	}
	if why := cmp.Or(b.whyNoToken(), "the server has no worker tokens"); b.said != why && b.Logger != nil {
		b.said = why
		b.Logger.InfoContext(ctx, "workers log in with the password file", slog.String("reason", why))
	}
	return b.Login()
}

// keepToken writes a token into a pilot's file. A worker reads the file again if it has just read another token.
func (b *Backend) keepToken(name, token string) error {
	if err := atomicfile.Write(b.tokenFile(name), []byte(token+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the token of worker %s: %w", name, err)
	}
	if b.issued != nil {
		b.issued[name] = b.Now()
	}
	return nil
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

// Tidy removes the token files of pilots that have ended, and renews those of pilots that have waited for long. It follows
// the last answer of Pilots. The old token of a renewed file is in no file, and ends with the pilot.
func (b *Backend) Tidy(ctx context.Context, newToken pilot.NewToken) error {
	var failed error
	for name, issued := range b.issued {
		switch phase := b.shown[name]; {
		case phase == pilot.Ended:
			err := os.Remove(b.tokenFile(name))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				delete(b.issued, name)
				continue
			}
			failed = errors.Join(failed, fmt.Errorf("remove the token of worker %s: %w", name, err))
		case phase == pilot.Pending && b.Now().Sub(issued) > queueTime/2:
			token, err := newToken(ctx, name)
			if err == nil && token != "" {
				err = b.keepToken(name, token)
			}
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
