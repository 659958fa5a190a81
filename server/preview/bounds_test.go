package preview

import (
	"html/template"
	"strings"
	"testing"
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
