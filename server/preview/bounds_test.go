package preview

import (
	"encoding/json"
	"html/template"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/markup"
)

// Each of several lists of cells counts, and only lexers that files have colour code.
func TestNotebookWithManyListsIsBounded(t *testing.T) {
	t.Parallel()
	list := `"cells":[` + strings.TrimSuffix(strings.Repeat(`{"cell_type":"markdown","source":"a"},`, 400), ",") + `],`
	data := []byte("{" + strings.TrimSuffix(strings.Repeat(list, 20), ",") + "}")
	f := Of(t.Context(), "a.ipynb", int64(len(data)), data, func(s string) template.HTML { return template.HTML(template.HTMLEscapeString(s)) })
	if len(f.Cells) != mostCells || f.Note == "" {
		t.Errorf("%d cells, %q", len(f.Cells), f.Note)
	}
	for name, want := range map[string]bool{"python": true, "r": true, "devicetree": false, "": false} {
		if isLexer(name) != want {
			t.Errorf("%q colours: %v", name, !want)
		}
	}
}

// The cells of a notebook share the bounds of what becomes longer when it is shown: Markdown and coloured code.
func TestHTMLOfAllCellsIsBounded(t *testing.T) {
	t.Parallel()
	references := "[a]: http://x/" + strings.Repeat("b", 150) + "\n\n" + strings.Repeat("[a]", 30)
	for kind, text := range map[string]string{"markdown": references, "code": strings.Repeat("1=", 1000)} {
		one, err := json.Marshal(map[string]any{"cell_type": kind, "source": text, "outputs": []any{}})
		if err != nil {
			t.Fatal(err)
		}
		data := []byte(`{"cells":[` + strings.TrimSuffix(strings.Repeat(string(one)+",", mostCells), ",") + `]}`)
		total := 0
		for _, c := range Of(t.Context(), "a.ipynb", int64(len(data)), data, markup.New().Page().HTML).Cells {
			total += len(c.Markdown) + len(c.Code)
		}
		if most := 20*mostMarkdown + 20*mostInColour; total > most || total < len(text) {
			t.Errorf("%s of %d bytes becomes %d", kind, len(data), total)
		}
	}
}
