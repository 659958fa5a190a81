package slurmbatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// tokens gives out numbered tokens, and stores the valid ones, with their workers and lives.
type tokens struct {
	given int
	valid map[string]string
	err   error
}

func (s *tokens) WorkerToken(_ context.Context, worker string, life time.Duration) (string, error) {
	if s.err != nil {
		return "", s.err
	}
	s.given++
	token := fmt.Sprintf("token-%d", s.given)
	s.valid[token] = fmt.Sprintf("%s for %v", worker, life)
	return token, nil
}

func (s *tokens) RevokeToken(_ context.Context, token string) error {
	if s.err == nil {
		delete(s.valid, token)
	}
	return s.err
}

func (s *tokens) EndWorkerTokens(_ context.Context, worker string) error {
	if s.err == nil {
		maps.DeleteFunc(s.valid, func(_, of string) bool { return strings.HasPrefix(of, worker+" for ") })
	}
	return s.err
}

// withTokens returns a backend whose pilots have tokens of their own, and a clock of its own.
func withTokens(t *testing.T, s *slurm) (b *slurmbatch.Backend, given *tokens, now *time.Time) {
	t.Helper()
	b, given = newBackend(t, s), &tokens{valid: map[string]string{}}
	b.Tokens, b.Worker.TakesToken = given, true
	at := time.Now()
	b.Now = func() time.Time { return at }
	return b, given, &at
}

func start(t *testing.T, b *slurmbatch.Backend) (name string) {
	t.Helper()
	name = b.NewName()
	if _, err := b.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

// look lets the backend see its jobs, and tidy up.
func look(t *testing.T, b *slurmbatch.Backend) {
	t.Helper()
	if err := tidy(t, b); err != nil {
		t.Fatal(err)
	}
}

func tidy(t *testing.T, b *slurmbatch.Backend) error {
	t.Helper()
	if _, err := b.Pilots(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b.Tidy(t.Context())
}

func tokenOf(t *testing.T, b *slurmbatch.Backend, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.WorkDir, name, "token"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestEachPilotHasATokenOfItsOwnWhichIsInNoJob(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, _ := withTokens(t, s)
	for i := range 2 {
		name := start(t, b)
		file := filepath.Join(b.WorkDir, name, "token")
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		token := tokenOf(t, b, name)
		if want := pilot.WorkerID(name) + " for 49h0m0s"; given.valid[token] != want {
			t.Errorf("the token is valid for %q, want %q", given.valid[token], want)
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
	for name, change := range map[string]func(b *slurmbatch.Backend, given *tokens){
		"the server has none":         func(_ *slurmbatch.Backend, given *tokens) { given.err = fmt.Errorf("404: %w", errors.ErrUnsupported) },
		"the worker takes none":       func(b *slurmbatch.Backend, _ *tokens) { b.Worker.TakesToken = false },
		"the job has no time limit":   func(b *slurmbatch.Backend, _ *tokens) { b.Job.Time = 0 },
		"the job runs for six weeks":  func(b *slurmbatch.Backend, _ *tokens) { b.Job.Time = 42 * 24 * time.Hour },
		"the manager makes no tokens": func(b *slurmbatch.Backend, _ *tokens) { b.Tokens = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slurm{}
			b, given, _ := withTokens(t, s)
			var log strings.Builder
			b.Logger = slog.New(slog.NewTextHandler(&log, nil))
			change(b, given)
			for range 2 {
				pilotName := start(t, b)
				if tokenOf(t, b, pilotName) != "" {
					t.Error("there is a token file")
				}
			}
			if !strings.Contains(s.requests[0].Script, "'--password-file' '/home/ann/password'") || given.given > 0 {
				t.Errorf("%s", s.requests[0].Script)
			}
			if said := strings.Count(log.String(), "workers log in with the password file"); said != 1 && b.Tokens != nil {
				t.Errorf("that is said %d times: %s", said, log.String())
			}
		})
	}
}

// A server that does not answer must not put the password onto the disk.
func TestNoPilotStartsWhileTheServerGivesNoToken(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, _ := withTokens(t, s)
	given.err = errors.New("no answer")
	name := b.NewName()
	if _, err := b.Start(t.Context(), name); !errors.Is(err, given.err) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.WorkDir, name)); !errors.Is(err, os.ErrNotExist) || len(s.requests) > 0 {
		t.Errorf("%v, %d submissions", err, len(s.requests))
	}
}

func TestTokenEndsWithItsPilot(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &slurm{}
			b, given, now := withTokens(t, s)
			pilotName := start(t, b)
			given.valid["renewed"] = pilot.WorkerID(pilotName) + " for the worker itself"
			given.valid["other"] = pilot.WorkerID(b.NewName()) + " for another worker"
			test.change(s)
			*now = now.Add(test.after)
			again := *b // the manager was started again
			for _, b := range []*slurmbatch.Backend{b, &again} {
				look(t, b)
			}
			if ended := tokenOf(t, b, pilotName) == "" && len(given.valid) == 1; ended != test.ends {
				t.Errorf("ended: %v; valid are %v", ended, given.valid)
			}
			if given.valid["other"] == "" {
				t.Error("the token of another pilot has ended, too")
			}
		})
	}
}

func TestTokenIsRevokedOnceTheServerAnswers(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, _ := withTokens(t, s)
	name := start(t, b)
	s.jobs[0].State = sbatch.StateCompleted
	given.err = errors.New("no answer")
	for range 2 {
		if err := tidy(t, b); !errors.Is(err, given.err) || tokenOf(t, b, name) == "" {
			t.Error(err)
		}
	}
	given.err = nil
	look(t, b)
	if tokenOf(t, b, name) != "" || len(given.valid) > 0 {
		t.Errorf("%v", given.valid)
	}
}

func TestTokenOfAJobThatWaitsForLongIsRenewed(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, now := withTokens(t, s)
	name := start(t, b)
	for range 4 {
		*now = now.Add(13 * time.Hour)
		look(t, b)
	}
	if diff := cmp.Diff(map[string]string{"token-3": pilot.WorkerID(name) + " for 49h0m0s"}, given.valid); diff != "" || tokenOf(t, b, name) != "token-3" {
		t.Errorf("%s; the file has %s", diff, tokenOf(t, b, name))
	}
}

// refusing is a Slurm that refuses a submission, or gives no answer to it.
type refusing struct {
	slurm
	refused bool
}

func (r *refusing) Submit(context.Context, sbatch.Request) (sbatch.JobID, error) {
	return 0, &sbatch.Error{Err: errors.New("no"), Refused: r.refused}
}

func TestTokenOfARefusedJobEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{true, false} {
		b, given, _ := withTokens(t, nil)
		b.Slurm = &refusing{refused: refused}
		if _, err := b.Start(t.Context(), b.NewName()); err == nil {
			t.Fatal("the submission is no error")
		}
		if ended := len(given.valid) == 0; ended != refused {
			t.Errorf("refused: %v; valid are %v", refused, given.valid)
		}
	}
}

func TestWhoOnlyLooksEndsNoTokens(t *testing.T) {
	t.Parallel()
	s := &slurm{}
	b, given, _ := withTokens(t, s)
	name := start(t, b)
	s.jobs[0].State = sbatch.StateCompleted
	b.Tokens = nil
	look(t, b)
	if tokenOf(t, b, name) == "" || len(given.valid) != 1 {
		t.Errorf("%v", given.valid)
	}
}
