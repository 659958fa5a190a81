package interpret

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// space is Python's \s. Go's \s matches only ASCII.
const space = `[\s\v\x1c-\x1f\x{85}\p{Z}]`

// The forms of lines (codalab/lib/worksheet_util.py: BUNDLE_REGEX, SUBWORKSHEET_REGEX,
// DIRECTIVE_REGEX).
var (
	bundleForm    = regexp.MustCompile(`^` + space + `*(?:\[.*\])?` + space + `*\{([^{]*)\}` + space + `*$`)
	worksheetForm = regexp.MustCompile(`^` + space + `*(?:\[.*\])?` + space + `*\{\{(.*)\}\}` + space + `*$`)
	directiveForm = regexp.MustCompile(`^` + space + `*%` + space + `*(.*)$`)
)

// Resolver finds the bundle or worksheet that a spec names for the user of a request. Both functions
// return a *UsageError if the spec names none, or more than one, that the user may read.
type Resolver struct {
	Bundle    func(spec string) (uuid string, err error)
	Worksheet func(spec string) (uuid string, err error)
}

// ParseForm reads the lines that a person edited into items (codalab/lib/worksheet_util.py:
// parse_worksheet_form):
//
//	// text, %% text       a comment
//	[any text]{spec}       a bundle
//	[any text]{{spec}}     a worksheet
//	% word …               a directive
//	anything else          markup, blank lines too
//
// A bundle that cannot be resolved fails the form with the resolver's error. A worksheet that cannot be
// resolved becomes markup with the reason. A directive with an open quotation is a *UsageError.
func ParseForm(lines []string, resolve Resolver) ([]Item, error) {
	items := make([]Item, 0, len(lines))
	for i, line := range lines {
		item, err := parseLine(line, resolve)
		if badWords(err) {
			return nil, &UsageError{fmt.Sprintf("Error in source line %d: %s", i+1, err)}
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// CheckForm is ParseForm for somebody who still writes: a line with a mistake becomes markup, and is among the mistakes. A
// Resolver's *UsageError is a mistake, too.
func CheckForm(lines []string, resolve Resolver) (items []Item, mistakes []Mistake, err error) {
	worksheet := resolve.Worksheet
	for i, line := range lines {
		mistake := func(text string) { mistakes = append(mistakes, Mistake{i + 1, text}) }
		resolve.Worksheet = func(spec string) (string, error) {
			uuid, err := worksheet(spec)
			if refused, ok := errors.AsType[*UsageError](err); ok {
				mistake(refused.Message)
			}
			return uuid, err
		}
		item, err := parseLine(line, resolve)
		refused, isRefused := errors.AsType[*UsageError](err)
		switch {
		case isRefused:
			mistake(refused.Message)
		case badWords(err):
			mistake(err.Error())
		case err != nil:
			return nil, nil, err
		}
		if err != nil {
			item = Item{Type: codalab.ItemMarkup, Value: line}
		}
		items = append(items, item)
	}
	return items, mistakes, nil
}

// badWords reports whether err tells of a directive that cannot be split into words.
func badWords(err error) bool {
	return errors.Is(err, codalab.ErrQuotation) || errors.Is(err, codalab.ErrEscape)
}

func parseLine(line string, resolve Resolver) (Item, error) {
	if comment, ok := strings.CutPrefix(line, codalab.CommentMark); ok {
		return Item{Type: codalab.ItemDirective, Value: codalab.JoinWords([]string{codalab.CommentWord, comment})}, nil
	}
	if m := bundleForm.FindStringSubmatch(line); m != nil {
		uuid, err := resolve.Bundle(m[1])
		return Item{Type: codalab.ItemBundle, BundleUUID: uuid}, err
	}
	if m := worksheetForm.FindStringSubmatch(line); m != nil {
		uuid, err := resolve.Worksheet(m[1])
		if refused, ok := errors.AsType[*UsageError](err); ok {
			return Item{Type: codalab.ItemMarkup, Value: refused.Message + ": " + line}, nil
		}
		return Item{Type: codalab.ItemWorksheet, SubworksheetUUID: uuid}, err
	}
	if m := directiveForm.FindStringSubmatch(line); m != nil {
		tokens, err := codalab.SplitWords(m[1])
		return Item{Type: codalab.ItemDirective, Value: codalab.JoinWords(tokens)}, err
	}
	return Item{Type: codalab.ItemMarkup, Value: line}, nil
}

// Lines writes items as the lines that a person edits (codalab/lib/worksheet_util.py:
// get_worksheet_lines). After maxDescribed bytes of descriptions, which readers of the form ignore,
// further bundles have none. The maps hold the existing bundles and worksheets that the items name.
func Lines(items []Item, bundles map[string]Bundle, worksheets map[string]WorksheetInfo) []string {
	lines := make([]string, 0, len(items))
	described := 0
	for _, item := range items {
		shown, uuid := "", item.BundleUUID
		if b, ok := bundles[uuid]; ok && item.Type == codalab.ItemBundle && described < maxDescribed {
			shown = b.Describe()
			described += len(shown)
		}
		if item.Type == codalab.ItemWorksheet {
			uuid = item.SubworksheetUUID
			shown = worksheets[uuid].Name
		}
		lines = append(lines, codalab.ItemLine(item.Type, item.Value, shown, uuid))
	}
	return lines
}
