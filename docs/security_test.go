package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
)

// The lines around a table that is made of package walls.
const (
	wallsBegin = "<!-- from package walls, by go test ./docs -update -->\n"
	wallsEnd   = "<!-- end of package walls -->\n"
)

func TestTablesOfWallsAndPromisesAreUpToDate(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{"security.md": walls.Table(), "containers.md": walls.BehaviourTable()} {
		name := filepath.Join(root, "docs", page)
		before, rest, begins := strings.Cut(read(t, name), wallsBegin)
		table, after, ends := strings.Cut(rest, wallsEnd)
		if !begins || !ends {
			t.Fatalf("docs/%s has no place for the table of package walls", page)
		}
		if *update {
			if err := os.WriteFile(name, []byte(before+wallsBegin+want+wallsEnd+after), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if table != want {
			t.Errorf("docs/%s is not what package walls says; write it with: go test ./docs -update", page)
		}
	}
}

// TestPromisesHaveAllTestsOfTheSuite compares the list of promises with the tests of package container.
func TestPromisesHaveAllTestsOfTheSuite(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, b := range walls.Behaviours() {
		for _, test := range b.Tests {
			listed[test] = true
		}
	}
	for _, test := range tests(t)["apptainer/container"] {
		if strings.HasPrefix(test, "TestFidelity") && !listed[test] {
			t.Errorf("package walls does not list %s", test)
		}
	}
}
