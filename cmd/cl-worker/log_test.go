package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The first line of a worker whose server is away is one that a program can read, and has no secret.
func TestLogOfAWorkerIsJSONOnRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	testenv.Must(t, os.WriteFile(file, []byte("ann\nhunter2\n"), 0o600))
	log, stderr := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := run(ctx, program.Process{
			Args:  []string{"--log-format", "json", "--server", "http://127.0.0.1:1", "--password-file", file, "--id", "w", "--work-dir", dir},
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, Getenv: func(string) string { return "" }, Now: time.Now,
		})
		_ = stderr.Close()
		done <- err
	}()
	line, err := bufio.NewReader(log).ReadBytes('\n')
	testenv.Must(t, err)
	stop()
	go func() { _, _ = io.Copy(io.Discard, log) }()
	t.Log(<-done) // it was stopped
	var found map[string]any
	if err := json.Unmarshal(line, &found); err != nil || found["msg"] != "the server does not answer; the worker tries again" || !strings.Contains(found["error"].(string), "127.0.0.1:1") {
		t.Errorf("%v: %s", err, line)
	}
	if strings.Contains(string(line), "hunter2") {
		t.Errorf("the password is in the log: %s", line)
	}
}
