package slurmbatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// tokens is a source of numbered tokens.
type tokens struct {
	given int
	err   error
}

func (s *tokens) issue(context.Context, string) (string, error) {
	s.given++
	return fmt.Sprintf("token-%d", s.given), s.err
}

// withTokens returns a backend whose pilots have tokens of their own, and a clock of its own.
func withTokens(t *testing.T, s *slurm) (b *slurmbatch.Backend, given *tokens, now *time.Time) {
	t.Helper()
	b, given = newBackend(t, s), &tokens{}
	b.Worker.TakesToken = true
	at := time.Now()
	b.Now = func() time.Time { return at }
	return b, given, &at
}

// start starts a pilot as the loop does.
func start(t *testing.T, b *slurmbatch.Backend, given *tokens) (name string) {
	t.Helper()
	name = b.NewName()
	token := ""
	if b.TokenLife() > 0 {
		token, _ = given.issue(t.Context(), name) // the caller has set its error
	}
	if _, err := b.Start(t.Context(), name, token); err != nil {
		t.Fatal(err)
	}
	return name
}

// look lets the backend see its jobs, and tidy up. It returns the phase of a pilot; empty if the pilot is not shown.
func look(t *testing.T, b *slurmbatch.Backend, given *tokens, name string) (phase pilot.Phase) {
	t.Helper()
	pilots, err := b.Pilots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pilots {
		if p.Name == name {
			phase = p.Phase
		}
	}
	if err := b.Tidy(t.Context(), given.issue); !errors.Is(err, given.err) {
		t.Fatal(err)
	}
	return phase
}

func tokenOf(t *testing.T, b *slurmbatch.Backend, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.WorkDir, name, "token"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestTokenOfAPilotIsInNoJob(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, _ := withTokens(t, s)
	if life := b.TokenLife(); life != 49*time.Hour {
		t.Errorf("a token of a job of an hour is valid for %s", life)
	}
	for i := range 2 {
		name := start(t, b, given)
		file := filepath.Join(b.WorkDir, name, "token")
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		token := tokenOf(t, b, name)
		if want := fmt.Sprintf("token-%d", i+1); token != want {
			t.Errorf("the token is %q, want %q", token, want)
		}
		r := s.requests[i]
		if !strings.Contains(r.Script, "'--token-file' '"+file+"'") || strings.Contains(r.Script, "password") {
			t.Errorf("the script is %s", r.Script)
		}
		if text := r.Script + strings.Join(r.Args(), " "); strings.Contains(text, token) {
			t.Errorf("the token is in the job: %s", text)
		}
	}
}

func TestPilotsGetThePasswordFileWhereTokensAreNot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(b *slurmbatch.Backend)
		takes  bool
	}{
		"the server has none":        {func(*slurmbatch.Backend) {}, true},
		"the worker takes none":      {func(b *slurmbatch.Backend) { b.Worker.TakesToken = false }, false},
		"the job has no time limit":  {func(b *slurmbatch.Backend) { b.Job.Time = 0 }, false},
		"the job runs for six weeks": {func(b *slurmbatch.Backend) { b.Job.Time = 42 * 24 * time.Hour }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slurm{}
			b, _, _ := withTokens(t, s)
			var log strings.Builder
			b.Logger = slog.New(slog.NewTextHandler(&log, nil))
			test.change(b)
			if life := b.TokenLife(); life > 0 != test.takes {
				t.Errorf("tokens are valid for %s", life)
			}
			for range 2 {
				pilotName := b.NewName()
				if _, err := b.Start(t.Context(), pilotName, ""); err != nil || tokenOf(t, b, pilotName) != "" {
					t.Errorf("%v, token %q", err, tokenOf(t, b, pilotName))
				}
			}
			if !strings.Contains(s.requests[0].Script, "'--password-file' '/home/ann/password'") {
				t.Errorf("%s", s.requests[0].Script)
			}
			if said := strings.Count(log.String(), "workers log in with the password file"); said != 1 {
				t.Errorf("that is said %d times: %s", said, log.String())
			}
		})
	}
}

// The manager ends the tokens of ended pilots before it calls Tidy.
func TestTokenFileGoesWithItsPilot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *slurm)
		after  time.Duration
		ends   bool
	}{
		"pending":          {func(*slurm) {}, time.Minute, false},
		"running":          {func(s *slurm) { s.jobs[0].State = sbatch.StateRunning }, 100 * time.Hour, false},
		"completing":       {func(s *slurm) { s.jobs[0].State = sbatch.StateCompleting }, time.Hour, false},
		"completed":        {func(s *slurm) { s.jobs[0].State = sbatch.StateCompleted }, time.Second, true},
		"cancelled":        {func(s *slurm) { s.jobs[0].State = sbatch.StateCancelled }, time.Second, true},
		"not shown yet":    {func(s *slurm) { s.jobs = nil }, time.Minute, false},
		"purged":           {func(s *slurm) { s.jobs = nil }, time.Hour, true},
		"of another's job": {func(s *slurm) { s.jobs = []sbatch.Job{{Name: "x", State: sbatch.StateRunning}} }, time.Hour, true},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the manager was started again: %v", name, again), func(t *testing.T) {
				t.Parallel()
				s := &slurm{}
				b, given, now := withTokens(t, s)
				pilotName := start(t, b, given)
				test.change(s)
				*now = now.Add(test.after)
				if again {
					next := newBackend(t, s)
					next.WorkDir, next.Now, b = b.WorkDir, b.Now, next
				}
				phase := look(t, b, given, pilotName)
				if ended := tokenOf(t, b, pilotName) == ""; ended != test.ends || ended != (phase == pilot.Ended) {
					t.Errorf("the file is removed: %v; the pilot is %s", ended, phase)
				}
			})
		}
	}
}

func TestTokenOfAJobThatWaitsForLongIsRenewed(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, now := withTokens(t, s)
	name := start(t, b, given)
	for range 4 {
		*now = now.Add(13 * time.Hour)
		look(t, b, given, name)
	}
	if token := tokenOf(t, b, name); token != "token-3" {
		t.Errorf("the file has %s", token)
	}
	*now = now.Add(25 * time.Hour)
	given.err = errors.New("no answer")
	look(t, b, given, name)
	given.err = nil
	look(t, b, given, name)
	if token := tokenOf(t, b, name); token != "token-5" {
		t.Errorf("after a failure the file has %s", token)
	}
}
