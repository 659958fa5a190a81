package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuardsAreInTheCode keeps the list true: a guard that was reworded has to
// be reworded here too.
func TestGuardsAreInTheCode(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range mutations() {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.guard); n != 1 {
			t.Errorf("%s: %s has %q %d times, want once", m.name, m.file, m.guard, n)
		}
		if names[m.name] || m.guard == m.without || len(m.packages) == 0 {
			t.Errorf("%s is there twice, or changes nothing, or is not tested", m.name)
		}
		names[m.name] = true
	}
}
