package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
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

// TestEachAttackHasAWallAndATest reads the table of attacks. TestTestsThatAreNamedExist looks for the tests in the tree. A
// script is named so: script `NAME`.
func TestEachAttackHasAWallAndATest(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "security.md"), "\n| attack | wall | test |\n|---|---|---|\n")
	table, _, ends := strings.Cut(table, "\n<!-- end of attacks -->\n")
	rows := strings.Split(table, "\n")
	if !ends || len(rows) < 20 {
		t.Fatalf("docs/security.md has a table of %d attacks", len(rows))
	}
	named, script := regexp.MustCompile("`(?:[a-z/-]+: )?(?:Test|Fuzz)[A-Z]\\w*(?:/[\\w-]+)?`"), regexp.MustCompile("scripts? `([\\w-]+)`")
	attacks := map[string]bool{}
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 3 || cells[0] == "" || cells[1] == "" || attacks[cells[0]] {
			t.Errorf("this row is no attack with its wall and its test, or is there twice: %s", row)
			continue
		}
		attacks[cells[0]] = true
		scripts := script.FindAllStringSubmatch(cells[2], -1)
		if len(scripts) == 0 && !named.MatchString(cells[2]) {
			t.Errorf("this attack names no test: %s", row)
		}
		for _, one := range scripts {
			if found, err := filepath.Glob(filepath.Join(root, "cmd", "*", "testdata", "script*", one[1]+".txt*")); err != nil || len(found) == 0 {
				t.Errorf("the script %s does not exist, %v: %s", one[1], err, row)
			}
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
