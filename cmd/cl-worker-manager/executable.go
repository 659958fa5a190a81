package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// executable finds the worker's program, and reports whether it is a script.
func (s *slurmBatch) executable() (path string, scripted bool, err error) {
	path = s.worker.executable
	if !strings.Contains(path, "/") {
		if path = s.lookUp(path); path == "" {
			return "", false, program.Usage(fmt.Errorf("there is no %s in the directory of cl-worker-manager or in PATH; name it with --worker-executable", s.worker.executable))
		}
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", false, err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", false, program.Usage(fmt.Errorf("--worker-executable: %w", err))
	}
	defer func() { _ = file.Close() }() // only read
	var start [2]byte
	_, err = file.Read(start[:])
	return path, string(start[:]) == "#!", err
}

// checkProgram refuses a worker's program that others can write or replace. It reports whether jobs have to check the
// program's content: one of the user's own lies on a disk that the nodes share. Root's may be installed on each node
// apart, and a program of another user is that user's to change.
func checkProgram(path string) (checked bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, program.Usage(fmt.Errorf("--worker-executable: %w", err))
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if own := ok && int(stat.Uid) == os.Geteuid(); own || ok && stat.Uid == 0 {
		if err := strictmodes.Current().Check(path); err != nil {
			return false, program.Usage(fmt.Errorf("--worker-executable: %w", err))
		}
		return own, nil
	}
	return false, nil
}

// tokenFlag is the flag of a worker that logs in with a token.
const tokenFlag = "--token-file"

// takesToken reports whether a worker's program has the flag --token-file: our cl-worker has it, CodaLab's own has
// not. takesToken reads the program's --help, because the program may be a wrapper script.
func (s *slurmBatch) takesToken(ctx context.Context, executable string) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var help bytes.Buffer
	c := command.Command{Args: []string{executable, "--help"}, Env: s.Environ, Stdout: &help, Group: true}
	if err := c.Run(ctx); err != nil {
		s.logger().DebugContext(ctx, "the worker's program does not print its flags", slog.Any("error", err))
		return false
	}
	return strings.Contains(help.String(), tokenFlag)
}

// lookUp searches a program in this program's directory, and then in PATH.
func (s *slurmBatch) lookUp(name string) string {
	dirs := filepath.SplitList(s.Getenv("PATH"))
	if self, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Dir(self)}, dirs...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
