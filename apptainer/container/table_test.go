package container_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// difference is a row of the table in docs/containers.md: a command, and its output with each
// runtime.
type difference struct {
	command string
	prints  map[string]string
}

// differences reads the table with "in the container" at the head of its first column.
func differences(t *testing.T) (rows []difference) {
	t.Helper()
	text, err := os.ReadFile("../../docs/containers.md")
	must(t, err)
	var names []string
	for line := range strings.Lines(string(text)) {
		cells := cellsOf(line)
		switch {
		case len(cells) > 1 && cells[0] == "in the container":
			names = cells[1:]
		case names != nil && len(cells) == 0:
			return rows
		case names != nil && strings.HasPrefix(cells[0], "`"):
			command, _, _ := strings.Cut(cells[0][1:], "`")
			row := difference{command: command, prints: map[string]string{}}
			for i, name := range names {
				row.prints[name] = strings.Trim(cells[i+1], "`")
			}
			rows = append(rows, row)
		}
	}
	t.Fatal("docs/containers.md has no table that begins with: in the container")
	return nil
}

// cellsOf returns the cells of a line of a table.
func cellsOf(line string) []string {
	line, is := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !is {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func TestTableOfDifferencesIsTrue(t *testing.T) {
	t.Parallel()
	rows := differences(t)
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		_, name, _ := strings.Cut(t.Name(), "/")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "-shared"), "-kept") // the same inside
		if w.bubblewrap {
			name = "builtin-one-id"
		}
		for _, row := range rows {
			want, ok := row.prints[name]
			if !ok {
				t.Fatalf("the table has no column %s", name)
			}
			if strings.Contains(row.command, "mv /etc") && name == "docker" && !strings.HasPrefix(w.call(t, "info", "--format", "{{.Driver}}"), "overlay") {
				continue // the kernel's overlay refuses it, and other drivers have none
			}
			c := w.shellImage(t)
			c.ShmBytes = 3 << 20
			c.ShellCommand = row.command
			if w.bubblewrap && row.command == "cat /proc/1/comm" {
				want = "bwrap" // the text below the table says so
			}
			if got := strings.Join(strings.Fields(w.shell(t, c)), " "); got != want {
				t.Errorf("%s prints %q, and the table has %q", row.command, got, want)
			}
		}
		if !slices.ContainsFunc(rows, func(d difference) bool { return strings.Contains(d.command, "id -u") }) {
			t.Error("the table was not read")
		}
	})
}
