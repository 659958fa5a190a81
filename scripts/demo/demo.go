package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// demo is a site, and the output for the story. After the first error its methods do
// nothing.
type demo struct {
	site  *testsite.Site
	lake  string // a directory with data that is used in place
	out   io.Writer
	err   error
	began time.Time

	bundle, job  string
	first, ready float64
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format+"\n", args...) // a person's terminal
}

// check keeps the first error.
func (d *demo) check(err error) {
	if d.err == nil {
		d.err = err
	}
}

// show runs a command of the researcher's and prints it with its answer.
func (d *demo) show(ctx context.Context, args ...string) (string, error) {
	d.say("$ cl %s", quoted(args))
	answer, err := d.site.CL(ctx, args...)
	if answer != "" {
		d.say("%s", answer)
	}
	if failed, ok := errors.AsType[*command.Error](err); ok && failed.Stderr != "" {
		d.say("%s", failed.Stderr)
	}
	return answer, err
}

// cl shows a command that has to succeed, and returns its answer.
func (d *demo) cl(ctx context.Context, args ...string) string {
	if d.err != nil {
		return ""
	}
	answer, err := d.show(ctx, args...)
	d.check(err)
	return answer
}

// runExpecting runs a command whose output must contain a text.
func (d *demo) runExpecting(ctx context.Context, want string, args ...string) {
	if got := d.cl(ctx, args...); !strings.Contains(got, want) {
		d.check(fmt.Errorf("cl %s printed %q, which lacks %q", quoted(args), got, want))
	}
}

// fails shows a command that has to fail.
func (d *demo) fails(ctx context.Context, args ...string) {
	if d.err != nil {
		return
	}
	if _, err := d.show(ctx, args...); err == nil {
		d.check(fmt.Errorf("cl %s succeeded", quoted(args)))
	}
}

// run shows a run that has to succeed, up to its end, and returns its bundle.
func (d *demo) run(ctx context.Context, name, queue string, args ...string) string {
	bundle := d.cl(ctx, append([]string{"run"}, append(args, "-n", name, "--request-queue", queue)...)...)
	d.cl(ctx, "wait", name)
	return bundle
}

// other runs another program as the researcher, without showing it.
func (d *demo) other(ctx context.Context, args ...string) string {
	if d.err != nil {
		return ""
	}
	out, err := d.site.Run(ctx, args...)
	d.check(err)
	return out
}

func (d *demo) cacheList(ctx context.Context, options ...string) string {
	program := filepath.Join(testsite.Base, "bin", "cl-bridge")
	return d.other(ctx, append([]string{program, "cache", "ls", "--config", d.site.BridgeConfig()}, options...)...)
}

// until calls look every half second until it returns true.
func (d *demo) until(ctx context.Context, look func() bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for d.err == nil && !look() {
		if err := pause.For(ctx, 500*time.Millisecond); err != nil {
			d.check(fmt.Errorf("not seen within a minute: %w", err))
		}
	}
}

func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if strings.ContainsAny(a, " ;|&<>$*'\"") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// stamped prefixes each line with the time since it began.
type stamped struct {
	out   io.Writer
	began time.Time
	lines int
}

func (s *stamped) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		s.lines++
		if _, err := fmt.Fprintf(s.out, "[%4.1f s] %s", time.Since(s.began).Seconds(), line); err != nil {
			return 0, fmt.Errorf("show output: %w", err)
		}
	}
	return len(p), nil
}
