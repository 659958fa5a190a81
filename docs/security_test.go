package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
)

// The lines around the table of docs/security.md that is made of package walls.
const (
	wallsBegin = "<!-- from package walls, by go test ./docs -update -->\n"
	wallsEnd   = "<!-- end of package walls -->\n"
)

func TestTableOfWallsIsUpToDate(t *testing.T) {
	t.Parallel()
	name := filepath.Join(root, "docs", "security.md")
	before, rest, begins := strings.Cut(read(t, name), wallsBegin)
	table, after, ends := strings.Cut(rest, wallsEnd)
	if !begins || !ends {
		t.Fatal("docs/security.md has no place for the table of package walls")
	}
	if *update {
		if err := os.WriteFile(name, []byte(before+wallsBegin+walls.Table()+wallsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != walls.Table() {
		t.Error("docs/security.md is not what package walls says; write it with: go test ./docs -update")
	}
}
