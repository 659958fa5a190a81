package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchTop measures the share of a processor that cl top needs for 1,000 bundles, on a terminal of the kernel.
func benchTop(ctx context.Context, dir string) {
	const (
		shown = 1000
		watch = 30 * time.Second
		bar   = 3 // per cent
	)
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, ofSize(10_000))
	s := startServer(ctx, data)
	defer s.end()
	r := researcher{s.address, storetest.UserName(member), dir}
	found, _, err := signedIn(s.address, token).SearchBundles(ctx, "", []string{fmt.Sprint(".limit=", shown)})
	check(err)
	if len(found) != shown {
		check(fmt.Errorf("the server found %d of %d bundles", len(found), shown))
	}
	r.repeat(ctx, 1, "work", "-u") // it signs in
	cmd := r.own(ctx, "top", ".last", fmt.Sprint(".limit=", shown))
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	start := time.Now()
	terminal := must(pty.StartWithSize(cmd, &pty.Winsize{Cols: 160, Rows: 50}))
	background.Detach(func() { _, _ = io.Copy(io.Discard, terminal) }) // it fails when cl ends
	check(pause.For(ctx, watch))
	check(cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); !errors.As(err, new(*exec.ExitError)) || cmd.ProcessState.ExitCode() != 130 {
		check(fmt.Errorf("cl top: %w", err))
	}
	check(terminal.Close())
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	figure{name: fmt.Sprint("cl/top_", shown), value: 100 * used.Seconds() / time.Since(start).Seconds(), unit: "% of a core", bar: bar}.print()
}
