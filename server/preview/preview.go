package preview

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// Kind is the form in which a file is shown.
type Kind string

// The kinds. A file that is no text in UTF-8 is Other.
const (
	Text     Kind = "text"
	Code     Kind = "code"
	Table    Kind = "table"
	Notebook Kind = "notebook"
	Image    Kind = "image"
	PDF      Kind = "pdf"
	Other    Kind = "other"
)

// File is a view of a file for a page. It has the fields that belong to its kind.
type File struct {
	Kind Kind
	// Text is that of Text, as a terminal shows it, and Code the coloured text of Code.
	Text string
	Code template.HTML
	// Header and Rows are those of a Table. A row may have fewer cells than the header.
	Header []string
	Rows   [][]string
	// Cells are those of a Notebook.
	Cells []Cell
	// Note is a sentence about what is not shown; empty if all is.
	Note string
}

// The number of bytes that are read of a file, and of a notebook, in which pictures are.
const (
	mostBytes    = 256 << 10
	mostNotebook = 8 << 20
)

// Most returns the number of bytes of a file's beginning that Of needs.
func Most(name string) int64 {
	switch kindOf(name) {
	case Image:
		return 0
	case PDF:
		return pdfHead
	case Notebook:
		return mostNotebook
	case Text, Code, Table, Other:
	}
	return mostBytes
}

// pdfHead is the number of bytes in which a PDF begins (ISO 32000-1, annex H, note 13).
const pdfHead = 1024

// IsPDF reports whether a file with this beginning is a PDF. It needs 1024 bytes, or all that there are.
func IsPDF(begin []byte) bool {
	return bytes.Contains(begin[:min(len(begin), pdfHead)], []byte("%PDF-"))
}

// Markup writes Markdown as HTML without anything that runs, loads or looks like a part of the page.
type Markup func(text string) template.HTML

// kindOf returns the kind that a file has by its name.
func kindOf(name string) Kind {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg", ".bmp":
		return Image // browsers run no scripts of an image, also of an SVG one
	case ".pdf":
		return PDF
	case ".ipynb":
		return Notebook
	case ".csv", ".tsv":
		return Table
	}
	if lexerName(name) != "" {
		return Code
	}
	return Text
}

// colourWithin is the time for which text is coloured. What is left then has no colours.
const colourWithin = 300 * time.Millisecond

// Of returns what is shown of a file of a size. begin has its first bytes, Most of them or all.
func Of(ctx context.Context, name string, size int64, begin []byte, markup Markup) File {
	ctx, cancel := context.WithTimeout(ctx, colourWithin)
	defer cancel()
	kind := kindOf(name)
	if kind == Image || kind == PDF && IsPDF(begin) {
		return File{Kind: kind}
	}
	cut := size > int64(len(begin))
	if kind == Notebook && !cut {
		if f, ok := notebook(ctx, begin, markup); ok {
			return f
		}
	}
	if len(begin) > mostBytes {
		begin, cut = begin[:mostBytes], true
	}
	if cut {
		begin = wholeRunes(begin)
	}
	if !utf8.Valid(begin) || bytes.IndexByte(begin, 0) >= 0 {
		return File{Kind: Other}
	}
	text := string(begin)
	if kind == Table {
		if f, ok := table(text, strings.EqualFold(path.Ext(name), ".tsv"), cut); ok {
			return f
		}
	}
	f := File{Kind: Text, Text: termtext.Screen(text)}
	if kind == Code || kind == Notebook {
		f = File{Kind: Code, Code: highlight(ctx, lexerName(name), text, mostColoured)}
	}
	if cut {
		f.Note = fmt.Sprintf("The first %s of its text are shown.", termtext.Count(len(begin), "byte"))
	}
	return f
}

// wholeRunes leaves out the last character if it may be incomplete.
func wholeRunes(begin []byte) []byte {
	for range utf8.UTFMax - 1 {
		if r, n := utf8.DecodeLastRune(begin); r != utf8.RuneError || n != 1 {
			break
		}
		begin = begin[:len(begin)-1]
	}
	return begin
}
