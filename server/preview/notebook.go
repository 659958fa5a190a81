package preview

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The most cells of a notebook, outputs of a cell and bytes of both that are shown, the bytes that are read as Markdown, which is
// slow, those that are coloured, each of which may become many, and the bytes of pictures.
const (
	mostCells    = 500
	mostOutputs  = 50
	mostText     = 1 << 20
	mostMarkdown = 128 << 10
	mostInColour = 4 * mostColoured
	mostPicture  = 4 << 20
)

// Cell is a cell of a notebook. It has the fields that belong to its kind.
type Cell struct {
	Markdown template.HTML
	Code     template.HTML
	// Number is the number of a code cell's last execution; empty if there was none.
	Number string
	// Raw is a text that is neither Markdown nor code.
	Raw     string
	Outputs []Output
}

// Output is a text or a picture that a cell has made.
type Output struct {
	Text string
	// Picture is a data: URL of a PNG or a JPEG picture.
	Picture template.URL
	// Failed is set for the text of an error.
	Failed bool
}

// lines is a text that is written as one or as a list of lines.
type lines string

// UnmarshalJSON reads both forms. Any other value is an empty text: a notebook may have any in a place of a text.
func (l *lines) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = lines(one)
		return nil
	}
	var many []string
	if json.Unmarshal(data, &many) == nil {
		*l = lines(strings.Join(many, ""))
	}
	return nil
}

// rawCell and rawOutput are those of a file (nbformat 4). Outputs are read one by one, so that a file of nothing but empty
// ones takes little memory.
type rawCell struct {
	Type    string          `json:"cell_type"`
	Source  lines           `json:"source"`
	Number  *int            `json:"execution_count"`
	Outputs json.RawMessage `json:"outputs"`
}

type rawOutput struct {
	Text lines `json:"text"`
	Data struct {
		PNG      lines `json:"image/png"`
		JPEG     lines `json:"image/jpeg"`
		Plain    lines `json:"text/plain"`
		Markdown lines `json:"text/markdown"`
		LaTeX    lines `json:"text/latex"`
		HTML     lines `json:"text/html"`
		SVG      lines `json:"image/svg+xml"`
	} `json:"data"`
	// The fields of an error.
	Name      string          `json:"ename"`
	Value     string          `json:"evalue"`
	Traceback json.RawMessage `json:"traceback"`
}

// book is a notebook that is read.
type book struct {
	markup Markup
	cells  []Cell
	// code has the texts of code cells, which are coloured once the language is known.
	code     map[int]string
	language string
	// text and picture are the bytes that may still be shown, and markdown those that are still read as Markdown; left is set
	// once there was no room for something.
	text, picture, markdown int
	left                    bool
}

var errNoNotebook = errors.New("no notebook of a known form")

// notebook reads a notebook. It reports false for a text that is none.
func notebook(ctx context.Context, data []byte, markup Markup) (File, bool) {
	b := book{markup: markup, code: map[int]string{}, text: mostText, picture: mostPicture, markdown: mostMarkdown, language: "python"}
	if err := b.read(json.NewDecoder(bytes.NewReader(data))); err != nil || len(b.cells) == 0 {
		return File{}, false
	}
	colour := mostInColour
	for i := range b.cells {
		if text, ok := b.code[i]; ok {
			b.cells[i].Code = highlight(ctx, strings.ToLower(b.language), text, min(colour, mostColoured))
			colour = max(0, colour-len(text))
		}
	}
	f := File{Kind: Notebook, Cells: b.cells}
	if b.left {
		f.Note = "A part of it is shown: it is long."
	}
	return f, true
}

// read reads the outermost object.
func (b *book) read(in *json.Decoder) error {
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return errNoNotebook
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return fmt.Errorf("read notebook: %w", err)
		}
		switch key {
		case "cells":
			err = each(in, mostCells, &b.left, b.cell)
		case "metadata":
			var about struct {
				Language struct {
					Name string `json:"name"`
				} `json:"language_info"`
			}
			if err = in.Decode(&about); err == nil && about.Language.Name != "" {
				b.language = about.Language.Name
			}
		default:
			var skipped json.RawMessage
			err = in.Decode(&skipped)
		}
		if err != nil {
			return fmt.Errorf("read notebook: %w", err)
		}
	}
	return nil
}

// each calls do for each of the first elements of a list, and sets left if there are more.
func each[T any](in *json.Decoder, most int, left *bool, do func(T)) error {
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return errNoNotebook
	}
	for n := 0; in.More(); n++ {
		if n >= most {
			*left = true
			var skipped json.RawMessage
			if err := in.Decode(&skipped); err != nil {
				return fmt.Errorf("read list: %w", err)
			}
			continue
		}
		var one T
		if err := in.Decode(&one); err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		do(one)
	}
	_, err := in.Token()
	return err
}

// take returns as much of a text as there is room for.
func (b *book) take(text lines) string {
	if len(text) > b.text {
		text, b.left = lines(strings.ToValidUTF8(string(text[:b.text]), "")), true
	}
	b.text -= len(text)
	return strings.ToValidUTF8(string(text), "\ufffd")
}

func (b *book) cell(in rawCell) {
	if len(b.cells) >= mostCells { // a notebook may have several lists of cells
		b.left = true
		return
	}
	var c Cell
	switch text := b.take(in.Source); in.Type {
	case "markdown":
		if b.markdown -= len(text); b.markdown < 0 {
			c.Raw = text
			break
		}
		c.Markdown = b.markup(text)
	case "code":
		if in.Number != nil {
			c.Number = strconv.Itoa(*in.Number)
		}
		b.code[len(b.cells)] = text
		if len(in.Outputs) > 0 {
			// A list that ends early has the outputs before that.
			_ = each(json.NewDecoder(bytes.NewReader(in.Outputs)), mostOutputs, &b.left, func(o rawOutput) { c.Outputs = append(c.Outputs, b.output(o)) })
		}
	default:
		c.Raw = text
	}
	b.cells = append(b.cells, c)
}

// output returns an output in its best form that is no active content.
func (b *book) output(in rawOutput) Output {
	if in.Name != "" {
		var traceback []string
		if json.Unmarshal(in.Traceback, &traceback) != nil || len(traceback) == 0 {
			traceback = []string{in.Name + ": " + in.Value}
		}
		return Output{Text: termtext.Screen(b.take(lines(strings.Join(traceback, "\n")))), Failed: true}
	}
	for kind, data := range map[string]lines{"image/png": in.Data.PNG, "image/jpeg": in.Data.JPEG} {
		if url := b.pictureURL(kind, string(data)); url != "" {
			return Output{Picture: url}
		}
	}
	for _, text := range []lines{in.Text, in.Data.Plain, in.Data.Markdown, in.Data.LaTeX, in.Data.HTML, in.Data.SVG} {
		if text != "" {
			return Output{Text: termtext.Screen(b.take(text))}
		}
	}
	return Output{}
}

// pictureURL returns the data: URL of a picture in base64; empty if it is none, or too large.
func (b *book) pictureURL(kind, text string) template.URL {
	if text == "" || len(text) > b.picture {
		b.left = b.left || text != ""
		return ""
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil || !bytes.HasPrefix(data, []byte(map[string]string{"image/png": "\x89PNG\r\n", "image/jpeg": "\xff\xd8\xff"}[kind])) {
		return ""
	}
	b.picture -= len(text)
	return template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)) //nolint:gosec // of base64 alone
}
