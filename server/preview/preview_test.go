package preview_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/cl-slurm/cl-slurm/server/preview"
)

func of(t *testing.T, name, text string, size int) preview.File {
	t.Helper()
	return preview.Of(t.Context(), name, int64(size), []byte(text[:min(len(text), int(preview.Most(name)))]), func(s string) template.HTML {
		return template.HTML("<p>" + template.HTMLEscapeString(s) + "</p>")
	})
}

func TestPreviewFitsTheFile(t *testing.T) {
	t.Parallel()
	row := strings.Repeat("1,", 99) + "1\n"
	for name, test := range map[string]struct {
		path, begin string
		more        int
		want        string
	}{
		"text":                   {"a.txt", "a\nb", 0, "text [] 0 "},
		"text goes on":           {"a.txt", "a\nb", 9, "text [] 0 The first 3 bytes of its text are shown."},
		"cut in a character":     {"a.txt", "a\xe2\x82", 9, "text [] 0 The first 1 byte of its text are shown."},
		"no text":                {"a.txt", "a\xff", 0, "other [] 0 "},
		"zero bytes":             {"a.txt", "a\x00", 0, "other [] 0 "},
		"no table, no text":      {"a.csv", "\x1f\x8b\x08\xff,\x00", 0, "other [] 0 "},
		"picture":                {"a.PNG", "", 4, "image [] 0 "},
		"PDF":                    {"a.pdf", "%PDF-1.4", 9000, "pdf [] 0 "},
		"no PDF":                 {"a.pdf", strings.Repeat("x", 1020) + "%PDF-1.4", 0, "text [] 0 The first 1024 bytes of its text are shown."},
		"source":                 {"a.py", "import os\n", 0, "code [] 0 "},
		"table":                  {"a.csv", "a,b\n1,2\n3,4\n", 0, "table [a b] 2 "},
		"quotes":                 {"a.csv", "a,\"b,\nc\"\n\"x\"\"y\",2\n", 0, "table [a b,\nc] 1 "},
		"table goes on":          {"a.csv", "a,b\n1,2\n3,4", 1, "table [a b] 1 Its first 1 row are shown."},
		"a quote goes on":        {"a.csv", "a,b\n1,2\n3,\"4", 1, "table [a b] 0 Its first 0 rows are shown."},
		"tabs":                   {"a.tsv", "a\tb\n1\t2\n", 0, "table [a b] 1 "},
		"no table":               {"a.csv", "a\n1\n", 0, "text [] 0 "},
		"ragged":                 {"a.csv", "a,b\n1\n1,2,3\n", 0, "table [a b] 2 "},
		"many rows":              {"a.csv", "a,b\n" + strings.Repeat("1,2\n", 2000), 0, "table [a b] 500 Its first 500 rows are shown."},
		"many columns":           {"a.csv", row + row, 0, "table 64 1 64 of 100 columns are shown."},
		"a quote that is open":   {"a.csv", "a,b\n\"1,2\n", 0, "text [] 0 "},
		"a quote within a field": {"a.csv", "a,b\n1\" x,2\n", 0, "text [] 0 "},
		"no notebook":            {"a.ipynb", "{\"cells\": 1}", 0, "code [] 0 "},
		"a long notebook":        {"a.ipynb", "{\"cells\": [", 9 << 20, "code [] 0 The first 11 bytes of its text are shown."},
	} {
		f := of(t, test.path, test.begin, len(test.begin)+test.more)
		header := fmt.Sprint(f.Header)
		if len(f.Header) > 9 {
			header = fmt.Sprint(len(f.Header))
		}
		if got := fmt.Sprint(f.Kind, " ", header, " ", len(f.Rows), " ", f.Note); got != test.want {
			t.Errorf("%s: %s instead of %s", name, got, test.want)
		}
	}
	long := of(t, "a.csv", "a,b\n1,"+strings.Repeat("é", 1000)+"\n", 0)
	if cell := long.Rows[0][1]; len(cell) > 510 || !strings.HasSuffix(cell, "é…") {
		t.Errorf("a cell has %d bytes", len(cell))
	}
}

func TestPDFBeginsInItsFirstBytes(t *testing.T) {
	t.Parallel()
	for begin, want := range map[string]bool{
		"%PDF-1.4": true, "\xef\xbb\xbf%PDF-": true, strings.Repeat("x", 1019) + "%PDF-1.4": true,
		"": false, "%PDF": false, "%pdf-1.4": false, strings.Repeat("x", 1020) + "%PDF-1.4": false,
	} {
		if got := preview.IsPDF([]byte(begin)); got != want {
			t.Errorf("%.20q, %d bytes: %v", begin, len(begin), got)
		}
	}
}

func TestSourceIsColoured(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.py":       `<span class="code-keyword">def </span><span class="code-name">f</span>(): <span class="code-keyword">return </span><span class="code-string">&#34;&lt;b&gt;&#34; </span><span class="code-comment"># x`,
		"Dockerfile": "&lt;b&gt;", "a.unknown": "",
	} {
		const text = "def f(): return \"<b>\" # x\n"
		if got := string(of(t, name, text, len(text)).Code); !strings.Contains(got, want) || strings.Contains(got, "<b>") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Whatever a lexer does to a text, the page has that text.
func TestColouredTextIsTheText(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.py", "a.c", "a.html", "a.md", "a.json", "a.yaml", "a.tex", "Makefile"} {
		for _, text := range []string{
			strings.Repeat("(", 2000), strings.Repeat("\"\"\"", 1000), strings.Repeat("<a ", 1000), strings.Repeat("a", 100_000), strings.Repeat("\\", 2000),
			"a\r\nb\rc\n\n", "\ufeffx = 1\r\n", "```python\nx\n```\n", strings.Repeat("/*", 1000), strings.Repeat("é\u202e", 500), "<script>alert(1)</script>", "",
		} {
			if got := textOf(t, string(of(t, name, text, len(text)).Code)); got != text {
				t.Errorf("%s: %.40q has become %.40q", name, text, got)
			}
		}
	}
}

// textOf returns the text of HTML, which may have spans of one class alone.
func textOf(t *testing.T, page string) string {
	t.Helper()
	var text strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(page))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return text.String()
		case html.TextToken:
			text.WriteString(html.UnescapeString(string(tokens.Raw())))
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
			if raw := string(tokens.Raw()); raw != "</span>" && !strings.HasPrefix(raw, `<span class="code-`) {
				t.Fatalf("the page has %s", raw)
			}
		}
	}
}

// cell is a code cell with outputs.
func cell(outputs ...map[string]any) map[string]any {
	return map[string]any{"cell_type": "code", "source": []string{"import os\n", "print(1)"}, "execution_count": 3, "outputs": outputs}
}

func book(t *testing.T, cells ...any) preview.File {
	t.Helper()
	text, err := json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{"language_info": map[string]string{"name": "python"}}, "nbformat": 4})
	if err != nil {
		t.Fatal(err)
	}
	return of(t, "a.ipynb", string(text), len(text))
}

func TestNotebook(t *testing.T) {
	t.Parallel()
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\nx"))
	f := book(t, map[string]any{"cell_type": "markdown", "source": "# A <b>title</b>"}, map[string]any{"cell_type": "raw", "source": "raw"}, cell(
		map[string]any{"output_type": "stream", "text": []string{"\x1b[31m1\x1b[0m\n", "2"}},
		map[string]any{"data": map[string]any{"image/png": png[:4] + "\n" + png[4:], "text/plain": "<Figure>"}},
		map[string]any{"data": map[string]any{"text/html": "<script>alert(1)</script>", "text/plain": []string{"a table"}}},
		map[string]any{"data": map[string]any{"text/html": "<script>alert(1)</script>"}},
		map[string]any{"data": map[string]any{"image/svg+xml": "<svg onload=x>"}},
		map[string]any{"data": map[string]any{"image/png": "\"><script>alert(1)</script>", "text/plain": "no picture"}},
		map[string]any{"output_type": "error", "ename": "ValueError", "evalue": "x", "traceback": []string{"\x1b[0;31mValueError\x1b[0m: x"}},
	))
	if f.Kind != preview.Notebook || len(f.Cells) != 3 || f.Note != "" {
		t.Fatalf("%s of %d cells: %s", f.Kind, len(f.Cells), f.Note)
	}
	if f.Cells[0].Markdown != "<p># A &lt;b&gt;title&lt;/b&gt;</p>" || f.Cells[1].Raw != "raw" || f.Cells[2].Number != "3" || !strings.Contains(string(f.Cells[2].Code), `<span class="code-keyword">import </span>os`) {
		t.Errorf("%+v", f.Cells)
	}
	want := []preview.Output{
		{Text: "1\n2"},
		{Picture: template.URL("data:image/png;base64," + png)},
		{Text: "a table"},
		{Text: "<script>alert(1)</script>"},
		{Text: "<svg onload=x>"},
		{Text: "no picture"},
		{Text: "ValueError: x", Failed: true},
	}
	if got := fmt.Sprintf("%+v", f.Cells[2].Outputs); got != fmt.Sprintf("%+v", want) {
		t.Errorf("the outputs are %s", got)
	}
}

// A notebook with more than a page has room for is cut, and one with values of other kinds than text is none of ours to judge.
func TestHostileNotebooksAreBounded(t *testing.T) {
	t.Parallel()
	long := map[string]any{"cell_type": "raw", "source": strings.Repeat("a", 2<<20)}
	if f := book(t, long, long); len(f.Cells[0].Raw) != 1<<20 || f.Cells[1].Raw != "" || f.Note == "" {
		t.Errorf("%d and %d bytes: %s", len(f.Cells[0].Raw), len(f.Cells[1].Raw), f.Note)
	}
	picture := map[string]any{"data": map[string]any{"image/png": strings.Repeat("A", 5<<20)}}
	if f := book(t, cell(picture)); f.Cells[0].Outputs[0].Picture != "" || f.Note == "" {
		t.Errorf("a picture of 5 MiB: %.40s", f.Cells[0].Outputs[0].Picture)
	}
	for name, text := range map[string]string{
		"cells":   `{"cells": [` + strings.Repeat("{},", 500_000) + `{}]}`,
		"outputs": `{"cells": [{"cell_type": "code", "outputs": [` + strings.Repeat("{},", 500_000) + `{}]}]}`,
	} {
		if f := of(t, "a.ipynb", text, len(text)); f.Kind != preview.Notebook || len(f.Cells) > 500 || len(f.Cells[0].Outputs) > 50 || f.Note == "" {
			t.Errorf("many %s: %s of %d cells: %s", name, f.Kind, len(f.Cells), f.Note)
		}
	}
	for _, text := range []string{
		strings.Repeat(`{"cells":[`, 100_000), `{"cells": [{"cell_type": 1}]}`, `{"cells": [{"cell_type": "code", "outputs": {"a": 1}}]}`, `{"cells": [{"source": {"a": 1}}]}`, `{"cells": [{"cell_type": "code", "outputs": [1]}]}`,
		`[]`, `{`, `{"metadata": {"language_info": 1}, "cells": [{}]}`, `{"cells": [` + strings.Repeat("[", 20_000),
	} {
		if f := of(t, "a.ipynb", text, len(text)); f.Kind != preview.Code && f.Kind != preview.Notebook {
			t.Errorf("%.60s is %s", text, f.Kind)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, text := range []string{"a,b\n1,2\n", `{"cells": [{"cell_type": "code", "source": "x", "outputs": [{"text": "y"}]}]}`, "def f(): pass\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"a.csv", "a.tsv", "a.ipynb", "a.py", "a.html"} {
			_ = of(t, name, text, len(text))
			_ = of(t, name, text, len(text)+1)
		}
	})
}
