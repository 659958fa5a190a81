package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestAllTargetsAreFound(t *testing.T) {
	t.Parallel()
	targets, err := find("../..")
	testenv.Must(t, err)
	found := map[string]bool{}
	for _, one := range targets {
		found[one.dir+" "+one.name] = true
	}
	for _, want := range []string{"../../internal/tarstream FuzzUnpack", "../../server FuzzBody", "../../sbatch FuzzQueue"} {
		if !found[want] {
			t.Errorf("%s is not found", want)
		}
	}
	if each := share(10*time.Minute, 40); each != 15*time.Second {
		t.Errorf("each of 40 targets gets %s", each)
	}
}

// TestInputThatFailsIsPrinted runs the targets of a module of its own: one holds, and one fails at once.
func TestInputThatFailsIsPrinted(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	if testing.Short() {
		t.Skip("compiles the standard library for fuzzing")
	}
	dir := t.TempDir()
	testenv.Must(t, errors.Join(
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/fuzzed\n\ngo 1.26\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package fuzzed

import "testing"

func FuzzHolds(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }

func FuzzFails(f *testing.F) {
	f.Add("seed")
	f.Fuzz(func(t *testing.T, text string) {
		if text != "seed" {
			t.Error("not the seed")
		}
	})
}
`), 0o600)))
	var out strings.Builder
	err := run(t.Context(), []string{"-root", dir, "-time", "2s"}, &out)
	if err == nil || err.Error() != "these targets have failed: FuzzFails" {
		t.Errorf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "2 targets, 1s each\n") || !strings.Contains(out.String(), "-- new input "+filepath.Join(dir, "testdata", "fuzz", "FuzzFails")) ||
		!strings.Contains(out.String(), "go test fuzz v1\nstring(") {
		t.Errorf("%s", &out)
	}
	if err := run(t.Context(), []string{"-root", dir, "-only", "Nothing"}, &out); err == nil || err.Error() != "there are no targets" {
		t.Errorf("%v", err)
	}
}
