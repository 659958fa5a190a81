// Package substitution changes the value of one option in a shell command, and leaves the rest as it was typed.
//
// An option NAME is --NAME VALUE, --NAME=VALUE, the same with one dash, NAME=VALUE, or +NAME=VALUE, also within the quotes
// of a command for another shell, such as sh -c 'train --NAME VALUE'.
package substitution

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

var (
	// ErrNone means that the command has no such option.
	ErrNone = errors.New("is not in the command")
	// ErrSeveral means that the command has the option at several places.
	ErrSeveral = errors.New("is at several places in the command")
	// ErrQuotes means a value that needs quotes, for a place that is within quotes.
	ErrQuotes = errors.New("needs quotes, and its place is within quotes")
)

// Option returns the command with another value of its option name. The new value is quoted if a shell would read it as
// anything but one word.
func Option(command, name, value string) (string, error) {
	return replace(command, value, func(words []word) []word { return optionValues(words, name) })
}

// Word returns the command with one of its words replaced. The word must be there once.
func Word(command, old, value string) (string, error) {
	return replace(command, value, func(words []word) []word {
		return slices.DeleteFunc(slices.Clone(words), func(w word) bool { return w.text != old })
	})
}

func replace(command, value string, choose func([]word) []word) (string, error) {
	calls, err := read(command, 0, false)
	if err != nil {
		return "", err
	}
	var found []word
	for _, words := range calls {
		for _, w := range choose(words) {
			if !slices.Contains(found, w) {
				found = append(found, w)
			}
		}
	}
	switch {
	case len(found) == 0:
		return "", ErrNone
	case len(found) > 1:
		return "", ErrSeveral
	}
	at := found[0]
	quoted, err := syntax.Quote(value, syntax.LangPOSIX)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot be quoted: %w", err)
	case quoted != value && at.within:
		return "", ErrQuotes
	}
	return command[:at.begin] + quoted + command[at.end:], nil
}

// word is a word of a command, or the value in it.
type word struct {
	// text is the word without the quotes around all of it.
	text string
	// begin and end are its place in the whole command, with its quotes.
	begin, end int
	// within is set for a word inside of another word's quotes.
	within bool
}

// optionValues returns the values that an option has in the words of one call.
func optionValues(words []word, name string) []word {
	assigned := regexp.MustCompile(`^(?:--?|\+\+?)?` + regexp.QuoteMeta(name) + `=`)
	var values []word
	for i, w := range words {
		quotes := (w.end - w.begin - len(w.text)) / 2 // bytes on each side
		head := assigned.FindString(w.text)
		switch {
		case head != "":
			values = append(values, word{w.text[len(head):], w.begin + quotes + len(head), w.end - quotes, w.within || quotes > 0})
		case (w.text == "--"+name || w.text == "-"+name) && i+1 < len(words) && !isOption(words[i+1].text):
			values = append(values, words[i+1])
		}
	}
	return values
}

// isOption distinguishes an option from a value, which may be a negative number.
func isOption(text string) bool {
	return len(text) > 1 && text[0] == '-' && !regexp.MustCompile(`^-\.?[0-9]`).MatchString(text)
}

// shellOption is the option of shells before a command, as in bash -lc 'train --lr 0.1'.
var shellOption = regexp.MustCompile(`^-[a-z]*c$`)

// read returns the words of each call in a command, which begins at offset in the whole one.
func read(command string, offset int, within bool) ([][]word, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return nil, fmt.Errorf("cannot be found: no shell reads the command: %w", err)
	}
	var calls [][]word
	add := func(nodes ...syntax.Node) {
		var words []word
		for _, n := range nodes {
			begin, end := int(n.Pos().Offset()), int(n.End().Offset())
			w := word{command[begin:end], offset + begin, offset + end, within}
			if inner, ok := unquoted(n, w.text); ok {
				w.text = inner
				if len(words) > 0 && shellOption.MatchString(words[len(words)-1].text) {
					if nested, err := read(inner, w.begin+1, true); err == nil {
						calls = append(calls, nested...)
						w.text = "" // it is no word, but a command
					}
				}
			}
			words = append(words, w)
		}
		calls = append(calls, words)
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			nodes := make([]syntax.Node, len(n.Args))
			for i, arg := range n.Args {
				nodes[i] = arg
			}
			add(nodes...)
		case *syntax.Assign:
			add(n)
		}
		return true
	})
	return calls, nil
}

// unquoted returns what is between the quotes around a whole word.
func unquoted(n syntax.Node, raw string) (string, bool) {
	w, ok := n.(*syntax.Word)
	if !ok || len(w.Parts) != 1 {
		return "", false
	}
	switch part := w.Parts[0].(type) {
	case *syntax.SglQuoted:
		ok = !part.Dollar
	case *syntax.DblQuoted:
		ok = !part.Dollar
	default:
		return "", false
	}
	return raw[1:max(1, len(raw)-1)], ok
}
