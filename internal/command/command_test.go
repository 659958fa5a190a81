package command_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestProgramGetsOnlyTheGivenEnvironment(t *testing.T) {
	testenv.UsesMachine()
	t.Setenv("CL_SLURM_SECRET", "leaked")
	out, err := command.Command{Args: []string{"/usr/bin/env"}, Env: []string{"A=1"}}.Output(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != "A=1\n" {
		t.Errorf("environment = %q, want only A=1", got)
	}
}

func TestFailureCarriesExitCodeAndLastWords(t *testing.T) {
	t.Parallel()
	err := command.Command{Args: []string{"/bin/sh", "-c", "echo first >&2; echo no such queue >&2; exit 3"}}.Run(t.Context())
	var e *command.Error
	if !errors.As(err, &e) {
		t.Fatalf("error = %v, want *command.Error", err)
	}
	if e.ExitCode != 3 || !strings.HasSuffix(e.Stderr, "no such queue") || !e.Started() {
		t.Errorf("got exit %d, stderr %q, started %v", e.ExitCode, e.Stderr, e.Started())
	}
}

func TestStderrIsKeptFromItsEnd(t *testing.T) {
	t.Parallel()
	err := command.Command{Args: []string{"/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x >&2; echo END >&2; exit 1"}}.Run(t.Context())
	var e *command.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if len(e.Stderr) > 4096 || !strings.HasSuffix(e.Stderr, "END") {
		t.Errorf("kept %d bytes ending %q", len(e.Stderr), e.Stderr[max(0, len(e.Stderr)-5):])
	}
}

func TestKilledProgramIsReportedAsKilled(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]bool{"kill -KILL $$": true, "kill -TERM $$": false, "exit 137": false} {
		err := command.Command{Args: []string{"/bin/sh", "-c", script}}.Run(t.Context())
		var failed *command.Error
		if !errors.As(err, &failed) || failed.Killed() != want {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestMissingProgramIsNotStarted(t *testing.T) {
	t.Parallel()
	err := command.Command{Args: []string{"/nonexistent/sbatch"}}.Run(t.Context())
	var e *command.Error
	if !errors.As(err, &e) || e.Started() {
		t.Errorf("error %v: want one that says the program was not started", err)
	}
}

func TestCancelledProgramEndsAndSaysWhy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := command.Command{Args: []string{"/bin/sleep", "60"}}.Run(ctx)
	var e *command.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || !e.Started() {
		t.Errorf("error = %v, want a started program ended by the deadline", err)
	}
}

func TestGroupLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"cancelled": "sleep 1000 & echo $!; wait",
		"left":      "sleep 1000 & echo $!", // with the standard error
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		ended := make(chan error)
		go func() {
			ended <- command.Command{Args: []string{"/bin/sh", "-c", script}, Stdout: w, Group: true}.Run(ctx)
		}()
		var pid int
		if _, err := fmt.Fscanln(r, &pid); err != nil {
			t.Fatal(err)
		}
		if name == "cancelled" {
			cancel()
		}
		if err := <-ended; err == nil || name == "cancelled" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if !endsSoon(pid) {
			t.Errorf("%s: the program's child goes on", name)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// endsSoon waits until a process has ended, if only its parent has not noticed it yet.
func endsSoon(pid int) bool {
	return testenv.Poll(func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
