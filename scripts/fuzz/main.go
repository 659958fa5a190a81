// Command fuzz runs all fuzz targets of the tree, one after the other, and divides a time among them. `make fuzz`
// calls it. It prints each input that makes a target fail. Go has saved that input below testdata/fuzz, where it
// becomes a test: commit it with the mend.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	root := flags.String("root", ".", "the `directory` with the targets")
	whole := flags.Duration("time", 10*time.Minute, "the `time` for all targets together, without the time to compile them")
	only := flags.String("only", "", "run the targets whose names this `pattern` matches")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	targets, err := find(*root)
	if err != nil {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t target) bool { return !pattern.MatchString(t.name) })
	if len(targets) == 0 {
		return errors.New("there are no targets")
	}
	each := share(*whole, len(targets))
	say(out, "%d targets, %s each\n", len(targets), each)
	var failed []string
	for _, t := range targets {
		say(out, "== %s %s\n", t.dir, t.name)
		if err := t.fuzz(ctx, each, out); err != nil {
			say(out, "%s has failed: %v\n", t.name, err)
			failed = append(failed, t.name)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("these targets have failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// say prints to a terminal, or to a test.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

// share is the time of one of n targets.
func share(whole time.Duration, n int) time.Duration {
	return max(whole/time.Duration(n), time.Second).Truncate(time.Second)
}

// target is a fuzz target of the package in a directory.
type target struct{ dir, name string }

// find returns the targets below a directory, also those of nested modules.
func find(root string) (targets []target, err error) {
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	tree := os.DirFS(root)
	err = fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return fmt.Errorf("read tests: %w", err)
		}
		for _, name := range declared.FindAllStringSubmatch(string(text), -1) {
			targets = append(targets, target{filepath.Join(root, filepath.Dir(path)), name[1]})
		}
		return nil
	})
	return targets, err
}

// fuzz runs a target for a time, and prints the inputs that it finds.
func (t target) fuzz(ctx context.Context, each time.Duration, out io.Writer) error {
	known, err := t.inputs()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(), ".")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.dir, out, out
	failed := cmd.Run()
	now, err := t.inputs()
	for _, input := range now {
		if slices.Contains(known, input) {
			continue
		}
		text, readErr := os.ReadFile(input)
		err = errors.Join(err, readErr)
		say(out, "-- new input %s\n%s", input, text)
	}
	return errors.Join(failed, err)
}

// inputs are the files with the target's inputs in the tree.
func (t target) inputs() ([]string, error) {
	names, err := filepath.Glob(filepath.Join(t.dir, "testdata", "fuzz", t.name, "*"))
	if err != nil {
		return nil, fmt.Errorf("list the inputs of %s: %w", t.name, err)
	}
	return names, nil
}
