package shellrc_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/shellrc"
)

// FuzzBlock puts a block into a file's text, again, and takes it out: the second time changes nothing, and the rest stays.
func FuzzBlock(f *testing.F) {
	for _, seed := range []string{
		"", "a", "a\n", "a\r\n", "# >>> cl >>>\n", "# >>> cl >>>\nold\n# <<< cl <<<", "x\n# >>> cl >>>\nold\n# <<< cl <<<\ny", "# <<< cl <<<\n# >>> cl >>>\n",
		" # >>> cl >>>\nold\n# <<< cl <<<\n",
	} {
		f.Add(seed)
	}
	b := shellrc.Block{Name: "cl", Undo: "undone by x", Lines: "new\n"}
	f.Fuzz(func(t *testing.T, text string) {
		once := b.In(text)
		if !b.Has(once) || !strings.Contains(once, "new\n") {
			t.Fatalf("%q has no block in %q", text, once)
		}
		if again := b.In(once); again != once {
			t.Fatalf("%q changes again, to %q", once, again)
		}
		rest, had := b.Without(once)
		if !had {
			t.Fatalf("the block stays in %q", once)
		}
		want, before := b.Without(text)
		if !before && want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if rest != want {
			t.Fatalf("%q becomes %q, not %q", text, rest, want)
		}
	})
}
