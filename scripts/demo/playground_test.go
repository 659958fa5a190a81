package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The site answers a person's commands, is not started twice, and leaves nothing.
func TestPlaygroundIsUpUntilItIsEnded(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	testenv.Containers(t)
	u := testenv.Researcher(t)
	path := filepath.Join(testenv.SharedDir(t), "playground")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var out testenv.Output
	ended := make(chan error, 1)
	go func() { ended <- keepUp(ctx, &out, path, "") }()
	testenv.Await(t, "the playground is up", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("it is not up: %v\n%s", err, &out)
		default:
		}
		return strings.Contains(out.String(), "Ctrl-C")
	}, out.String)
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line, ok := strings.CutPrefix(line, "  "); ok {
			lines = append(lines, line)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines to try:\n%s", len(lines), &out)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-ec", strings.Join(lines, "")+"dirname $CODALAB_HOME")
	shell.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + filepath.Dir(path)}
	shell.Dir = "/"
	shell.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	said, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "hello from n") || strings.Count(string(said), "/dev/nvidia") != 2 {
		t.Errorf("%v:\n%s", err, said)
	}
	printed := strings.TrimSpace(string(said))
	dir := filepath.Dir(printed[strings.LastIndexByte(printed, '\n')+1:])
	if filepath.Dir(dir) != testsite.Base {
		t.Errorf("the site is in %s", dir)
	}

	var second strings.Builder
	if err := keepUp(t.Context(), &second, path, ""); err != nil || !strings.Contains(second.String(), "up already") || !strings.Contains(second.String(), path) {
		t.Errorf("started twice: %v\n%s", err, &second)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, gone := range []string{path, dir} {
		if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}
