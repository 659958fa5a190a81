package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A site's table of variables may not replace it.
func TestCommandKnowsTheNumberOfItsAttempt(t *testing.T) {
	t.Parallel()
	var env []string
	look := func(ctx context.Context, c container.Container) (container.Exit, error) {
		env = c.Env
		return succeeds(ctx, c)
	}
	onSite(t, look, func(s *spool.Spec) {
		s.Attempt, s.Environment = 7, []string{"CODALAB_ATTEMPT=99"}
	}, func(t *testing.T, s site, w Worker) {
		s.run(t, w)
		last := ""
		for _, v := range env {
			if len(v) > 16 && v[:16] == "CODALAB_ATTEMPT=" {
				last = v
			}
		}
		if last != "CODALAB_ATTEMPT=7" {
			t.Errorf("environment %q", env)
		}
	})
}

func TestResumedAttemptGoesOnWithItsFiles(t *testing.T) {
	t.Parallel()
	says := func(_ context.Context, c container.Container) (container.Exit, error) {
		_, err := c.Stdout.WriteString("second\n")
		return container.Exit{}, err
	}
	resumed := func(s *spool.Spec) {
		s.Resumed = true
		s.Dependencies = []spool.Dependency{{ChildPath: "data", Source: "/shared/d"}, {ChildPath: "sub/model", Source: "/shared/m"}, {ChildPath: "own", Source: "/shared/o"}}
		for i := range s.Dependencies {
			s.Dependencies[i].Source = filepath.Dir(s.RunDir) // any directory
		}
	}
	for name, c := range map[string]struct {
		before func(dir string) error
		stdout string
	}{
		"as it was": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/stdout", []byte("first\n"), 0o644), os.WriteFile(dir+"/own", []byte("in the place of a dependency"), 0o600))
		}, "first\nsecond\n"},
		"a closed file":        {func(dir string) error { return os.WriteFile(dir+"/stdout", []byte("first\n"), 0o400) }, "first\nsecond\n"},
		"a link to a device":   {func(dir string) error { return os.Symlink("/dev/full", dir+"/stdout") }, "second\n"},
		"a link out":           {func(dir string) error { return os.Symlink("/etc/passwd", dir+"/stdout") }, "second\n"},
		"a pipe":               {func(dir string) error { return syscall.Mkfifo(dir+"/stdout", 0o600) }, "second\n"},
		"a directory":          {func(dir string) error { return os.MkdirAll(dir+"/stdout/x/y", 0o700) }, "second\n"},
		"a file above a link":  {func(dir string) error { return os.WriteFile(dir+"/sub", nil, 0o600) }, "second\n"},
		"a link above a link":  {func(dir string) error { return os.Symlink("/etc", dir+"/sub") }, "second\n"},
		"a link to elsewhere":  {func(dir string) error { return os.Symlink("/etc", dir+"/data") }, "second\n"},
		"a directory for data": {func(dir string) error { return os.Mkdir(dir+"/data", 0o700) }, "second\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSite(t, says, resumed, func(t *testing.T, s site, w Worker) {
				must(t, c.before(s.spec.RunDir))
				if e := s.run(t, w); e.Cause != spool.CauseSucceeded {
					t.Fatalf("recorded %+v", e)
				}
				if got, err := os.ReadFile(s.spec.RunDir + "/stdout"); err != nil || string(got) != c.stdout {
					t.Errorf("stdout %q, %v", got, err)
				}
			})
		})
	}
	// In a first attempt the same is a mistake of the request.
	onSite(t, says, func(s *spool.Spec) { resumed(s); s.Resumed = false }, func(t *testing.T, s site, w Worker) {
		must(t, os.WriteFile(s.spec.RunDir+"/own", nil, 0o600))
		if e := s.run(t, w); e.Cause != spool.CauseUser {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestSignalComesAheadOfTheTimeLimit(t *testing.T) {
	t.Parallel()
	ahead := func(s *spool.Spec) { s.Seconds, s.SignalSeconds, s.KillGraceSeconds = 600, 120, 120 }
	saves := func(ctx context.Context, c container.Container) (container.Exit, error) {
		c.OnStart(container.Running{PID: 1})
		<-ctx.Done() // TERM
		time.Sleep(30 * time.Second)
		if c.KillGrace != 2*time.Minute {
			return container.Exit{}, errors.New("another grace")
		}
		return container.Exit{Code: 0}, nil
	}
	onSite(t, saves, ahead, func(t *testing.T, s site, w Worker) {
		began := time.Now()
		e := s.run(t, w)
		want := "Time limit exceeded. (TERM at container uptime 8m0s, 2m0s before the time limit 10m0s) Ask for more with --request-time."
		if e.Cause != spool.CauseLimit || !e.TimedOut || e.Failure != want || e.Terminated {
			t.Errorf("recorded %+v", e)
		}
		if took := time.Since(began).Round(time.Second); took != 8*time.Minute+30*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// Only the time limit is one after which a run goes on.
func TestOnlyTheTimeLimitIsRecordedAsSuch(t *testing.T) {
	t.Parallel()
	for sentence, want := range map[*limitError]bool{{sentence: "Time.", timedOut: true}: true, {sentence: "Memory."}: false} {
		e := ending{overLimit: sentence, exit: container.Exit{Code: 143}}.verdict(spool.Spec{})
		if e.TimedOut != want || e.Cause != spool.CauseLimit {
			t.Errorf("%s %+v", sentence, e)
		}
	}
	if e := (ending{exit: container.Exit{Code: 3}}).verdict(spool.Spec{}); e.TimedOut {
		t.Errorf("a plain exit status: %+v", e)
	}
}
