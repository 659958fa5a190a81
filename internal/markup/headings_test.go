package markup

import (
	"html/template"
	"strings"
	"testing"
)

func TestHeadingsOfTextsAreInOrder(t *testing.T) {
	t.Parallel()
	for texts, want := range map[string]string{
		"<p>a</p>":                        "<p>a</p>",
		"<h1>a</h1>":                      "<h2>a</h2>",
		"<h4>a</h4>":                      "<h2>a</h2>",
		"<h1>a</h1><h3>b</h3>|<h2>c</h2>": "<h2>a</h2><h3>b</h3><h3>c</h3>",
		"<h3>a</h3><h1>b</h1><h2>c</h2>":  "<h2>a</h2><h2>b</h2><h3>c</h3>",
		"<h1 title=\"x\">a</h1><hr>":      "<h2 title=\"x\">a</h2><hr>",
		"<h1>a</h1>|<p>b</p>|<h2>c</h2>":  "<h2>a</h2><p>b</p><h3>c</h3>",
		"<h1>1</h1><h2>2</h2><h3>3</h3><h4>4</h4><h5>5</h5><h6>6</h6>": "<h2>1</h2><h3>2</h3><h4>3</h4><h5>4</h5><h6>5</h6><h6>6</h6>",
	} {
		var levels Headings
		var got strings.Builder
		for text := range strings.SplitSeq(texts, "|") {
			got.WriteString(string(levels.Below(template.HTML(text))))
		}
		if got.String() != want {
			t.Errorf("%s becomes %s instead of %s", texts, got.String(), want)
		}
	}
}
