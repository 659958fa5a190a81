package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

var update = flag.Bool("update", false, "write the golden files")

// TestHelpIsAsWritten compares the output of --help with testdata/help, so that a review
// shows each change of the command line.
func TestHelpIsAsWritten(t *testing.T) {
	t.Parallel()
	names := []string{"cl"}
	for _, cmd := range (&cli{}).root().Commands() {
		if !cmd.Hidden {
			names = append(names, cmd.Name())
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := []string{name, "--help"}
			if name == "cl" {
				args = args[1:]
			}
			err := run(t.Context(), program.Process{
				Args: args, Stdin: &out, Stdout: &out, Stderr: &out, Now: time.Now,
				Getenv: func(string) string { return "" },
			})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", "help", name+".txt"), out.Bytes())
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-update writes it): %s", file, diff)
	}
}
