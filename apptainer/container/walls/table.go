package walls

import (
	"fmt"
	"strings"
)

// Table returns the walls as a table in Markdown: a row for each wall, a column for each way. A cell has
// what the wall is made of. A weaker wall has a number, and the list below the table the reason.
func Table() string {
	var text, notes strings.Builder
	text.WriteString("| wall | the command cannot |")
	for _, way := range Ways() {
		text.WriteString(" " + string(way) + " |")
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(Ways())) + "\n")
	n := 0
	for _, w := range All() {
		fmt.Fprintf(&text, "| %s | %s |", w.Name, w.Keeps)
		before := ""
		for _, way := range Ways() {
			made := w.MadeOf(way)
			cell := made
			if made == before {
				cell = "the same"
			}
			before = made
			if weakness, weaker := w.Weaker[way]; weaker {
				n++
				cell += fmt.Sprintf("; **weaker** (%d)", n)
				fmt.Fprintf(&notes, "%d. %s, %s: the command %s", n, way, w.Name, weakness.Clause)
				if weakness.If != "" {
					notes.WriteString(", " + weakness.If)
				}
				notes.WriteString(".\n")
			}
			text.WriteString(" " + cell + " |")
		}
		text.WriteString("\n")
	}
	if n > 0 {
		text.WriteString("\n" + notes.String())
	}
	text.WriteString("\nThe tests of the other walls:\n\n| wall | test |\n|---|---|\n")
	for _, w := range All() {
		if len(w.Tests) > 0 {
			fmt.Fprintf(&text, "| %s | `%s` |\n", w.Name, strings.Join(w.Tests, "`, `"))
		}
	}
	return text.String()
}
