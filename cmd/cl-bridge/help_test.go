package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestHelpIsAsWritten compares the output of --help with testdata/help, so that a review
// shows each change of the command line.
func TestHelpIsAsWritten(t *testing.T) {
	t.Parallel()
	for _, verbs := range []string{"", "init", "doctor", "config check", "run", "report", "image", "image pull", "image ls", "image rm", "status", "explain", "logs", "plan", "drain", "resume"} {
		name := strings.ReplaceAll(strings.TrimSpace("cl-bridge "+verbs), " ", "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := command(t, append(strings.Fields(verbs), "--help")...)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "help", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-update writes it): %s", file, diff)
			}
		})
	}
}
