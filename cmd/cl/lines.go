package main

import (
	"errors"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// textItem returns the item for `cl add text`: a directive if the text begins with a percent sign, else
// markup.
func textItem(text string) client.Item {
	item := codalab.WorksheetItem{Type: codalab.ItemMarkup, Value: text}
	if directive, ok := strings.CutPrefix(text, "%"); ok {
		item = codalab.WorksheetItem{Type: codalab.ItemDirective, Value: strings.TrimSpace(directive)}
	}
	return client.Item{WorksheetItem: item}
}

// itemLines returns a worksheet's items as the lines that people edit and the server reads
// (codalab/lib/worksheet_util.py: get_worksheet_lines).
func itemLines(items []client.Item) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		switch {
		case item.Type == codalab.ItemDirective:
			lines = append(lines, directiveLine(item.Value))
		case item.Type == codalab.ItemBundle && item.Bundle != nil:
			lines = append(lines, "["+bundleLine(*item.Bundle)+"]{"+item.Bundle.UUID+"}")
		case item.Type == codalab.ItemWorksheet && item.Worksheet != nil:
			lines = append(lines, "[worksheet "+item.Worksheet.Name+"]{{"+item.Worksheet.UUID+"}}")
		default:
			lines = append(lines, item.Value)
		}
	}
	return lines
}

// directiveLine is a directive in a worksheet's lines: % schema s. A comment is a directive that begins
// with another percent sign.
func directiveLine(value string) string {
	words, err := splitWords(value)
	if err != nil {
		return "% " + value
	}
	if len(words) > 0 && words[0] == "%" {
		return "//" + strings.Join(words[1:], " ")
	}
	for i, w := range words {
		words[i] = shellQuote(w)
	}
	line := strings.Join(words, " ")
	if line == "" || strings.HasPrefix(line, "%") {
		return "%" + line
	}
	return "% " + line
}

// bundleLine describes a bundle in a worksheet's lines. The server reads only the uuid that follows.
func bundleLine(b client.BundleInfo) string {
	if b.Type == "" {
		return ""
	}
	text := b.Type + " " + b.Metadata.String("name")
	if deps := dependenciesText(b.Dependencies); deps != "" {
		text += " -- " + deps
	}
	if b.Command != nil && *b.Command != "" {
		text += " : " + strings.ReplaceAll(*b.Command, "\n", " ")
	}
	return text
}

// errOpenQuote is the error of words that end within quotes.
var errOpenQuote = errors.New("a quotation mark is missing")

// splitWords splits a text into words as a POSIX shell does, with quotes and backslashes
// (codalab/lib/formatting.py: string_to_tokens).
func splitWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case ch == '\\' && quote != '\'':
			if i++; i == len(text) {
				return nil, errOpenQuote
			}
			if quote == '"' && text[i] != '"' && text[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(text[i])
			begun = true
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(ch)
		case ch == '\'' || ch == '"':
			quote, begun = ch, true
		case strings.IndexByte(" \t\r\n", ch) >= 0:
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteByte(ch)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errOpenQuote
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
