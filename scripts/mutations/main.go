// Command mutations takes the guards of the promises out of the code, one at a
// time, and shows which test notices: a promise whose guard can be removed in
// silence is not one.
//
//	mutations             all of them
//	mutations -only I3    those of one promise, or of one name
//	mutations -sim 0      without the simulation
//
// The code in the checkout is not touched: the changed file is an overlay of
// the go command's (go help build, -overlay). Each line of its output is
//
//	mutation: PROMISE NAME test=PACKAGE.TEST sim=WHAT,SEEDS
//
// with "-" for what notices nothing. It ends with status 1 when there is one
// that no test notices.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("mutations", flag.ContinueOnError)
	only := flags.String("only", "", "those of this `promise` or name")
	seeds := flags.Int("sim", 20_000, "how many `seeds` of the simulation to run at most")
	repeat := flags.Bool("repeat", false, "show the command line that repeats what the simulation found")
	if err := flags.Parse(args); err != nil {
		return err //nolint:wrapcheck // it says what is wrong
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover has no meaning
	all, unnoticed := 0, 0
	for _, m := range mutations() {
		if *only != "" && *only != m.promise && *only != m.name {
			continue
		}
		found, err := m.try(ctx, root, tmp, *seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		all++
		if found.test == "" {
			unnoticed++
		}
		say(out, "mutation: %s %s test=%s sim=%s\n", m.promise, m.name, dash(found.test), dash(found.sim))
		if *repeat && found.repeat != "" {
			say(out, "  %s\n", found.repeat)
		}
	}
	say(out, "mutations: %d, unnoticed by tests %d\n", all, unnoticed)
	if unnoticed > 0 {
		return errors.New("a guard can be removed in silence")
	}
	return nil
}

// say prints for people; who closed the output wants no more of it.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// finding is what noticed a mutation.
type finding struct {
	test, sim, repeat string
}

// try applies the mutation in an overlay and runs the tests and the simulation.
func (m mutation) try(ctx context.Context, root, tmp string, seeds int) (finding, error) {
	overlay, err := m.overlay(root, tmp)
	if err != nil {
		return finding{}, err
	}
	var f finding
	if f.test, err = m.test(ctx, root, overlay); err != nil {
		return finding{}, err
	}
	if seeds > 0 && !m.beyondSim {
		f.sim, f.repeat, err = simulate(ctx, root, tmp, overlay, seeds)
	}
	return f, err
}

// overlay writes the changed file and the go command's overlay that names it.
func (m mutation) overlay(root, tmp string) (string, error) {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the code: %w", err)
	}
	if n := strings.Count(string(text), m.guard); n != 1 {
		return "", fmt.Errorf("%s has the guard %d times", m.file, n)
	}
	changed := filepath.Join(tmp, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), m.guard, m.without, 1)), 0o600); err != nil { //nolint:gosec // of our own list
		return "", fmt.Errorf("write the changed code: %w", err)
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	overlay := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return overlay, nil
}

var failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// test runs the tests of the packages that may notice, and returns the name of
// one that failed, of the promise where there is one.
func (m mutation) test(ctx context.Context, root, overlay string) (string, error) {
	for _, pkg := range m.packages {
		cmd := exec.CommandContext(ctx, "go", "test", "-short", "-vet=off", "-timeout=3m", "-overlay="+overlay, "./"+pkg) //nolint:gosec // of our own list
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		failed := failedTest.FindAllSubmatch(out, -1)
		if len(failed) == 0 && bytes.Contains(out, []byte("panic: test timed out")) {
			return pkg + ".(hangs)", nil
		}
		if len(failed) == 0 {
			return "", fmt.Errorf("test %s: %w\n%s", pkg, err, out)
		}
		return pkg + "." + m.telling(failed), nil
	}
	return "", nil
}

// telling is the most telling of the tests that failed: one of the promise's
// own, else a scenario, else whichever was first.
func (m mutation) telling(failed [][][]byte) string {
	for _, prefix := range []string{"Test" + m.promise, "TestScenarios/"} {
		for _, f := range failed {
			if strings.HasPrefix(string(f[1]), prefix) {
				return string(f[1])
			}
		}
	}
	return string(failed[0][1])
}

var (
	brokenLine = regexp.MustCompile(`(?m)^broken: (\S+) `)
	repeatLine = regexp.MustCompile(`(?m)^repeat: (.*)$`)
	seedsCount = regexp.MustCompile(`(?m)^sim: seeds=(\d+)`)
)

// simulate runs seeds until one breaks a promise.
func simulate(ctx context.Context, root, tmp, overlay string, seeds int) (what, repeat string, err error) {
	program := filepath.Join(tmp, "sim")
	build := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "-o", program, "./scripts/sim") //nolint:gosec // of our own
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	run := exec.CommandContext(ctx, program, "-seeds", strconv.Itoa(seeds), "-show", "1", "-until-broken", "-tell-every", "0") //nolint:gosec // of our own
	out, err := run.CombinedOutput()
	broken, count := brokenLine.FindSubmatch(out), seedsCount.FindSubmatch(out)
	switch {
	case count == nil:
		return "", "", fmt.Errorf("run the simulation: %w\n%s", err, out)
	case broken == nil:
		return "", "", nil
	}
	if r := repeatLine.FindSubmatch(out); r != nil {
		repeat = string(r[1])
	}
	return string(broken[1]) + "," + string(count[1]), repeat, nil
}
