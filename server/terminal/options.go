package terminal

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/spelling"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// kind is the kind of an option's words.
type kind int

const (
	isSwitch kind = iota // nothing
	isValue              // one word
	isList               // the words up to the next option
)

// option is an option of a command.
type option struct {
	name, short string // short is empty for none
	kind        kind
}

// given is a command line that has been read.
type given struct {
	arguments []string
	// options has the words of each option of the line, by its whole name. A switch has "true" or "false".
	options map[string][]string
}

// has reports whether a switch is on.
func (g given) has(name string) bool { return slices.Equal(g.options[name], []string{"true"}) }

// value is the last value of an option; empty without one.
func (g given) value(name string) string {
	if words := g.options[name]; len(words) > 0 {
		return words[len(words)-1]
	}
	return ""
}

// wrong refuses a command line.
func wrong(format string, args ...any) error {
	return rest.Refuse(http.StatusBadRequest, format, args...)
}

// number matches an argument that begins with a dash and is no option, as in Python's argparse.
var number = regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`)

// read reads the words after a command's name, as Python's argparse does: options stand anywhere, and the beginning of a long
// option is enough if no other one begins so.
func read(known []option, words []string) (given, error) {
	g := given{options: map[string][]string{}}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "--" {
			g.arguments = append(g.arguments, words...)
			break
		}
		o, value, hasValue, err := findOption(known, word)
		switch {
		case err != nil:
			return g, err
		case o.name == "":
			g.arguments = append(g.arguments, word)
			continue
		case o.kind == isSwitch:
			if !hasValue {
				value = "true"
			}
			if value != "true" && value != "false" {
				return g, wrong("--%s is true or false, not '%s'.", o.name, value)
			}
			g.options[o.name] = []string{value}
			continue
		case hasValue:
			g.options[o.name] = append(g.options[o.name], value)
			continue
		}
		taken := 0
		for taken < len(words) && !begins(known, words[taken]) && (o.kind == isList || taken == 0) {
			taken++
		}
		if taken == 0 && o.kind == isValue {
			return g, wrong("--%s needs a value.", o.name)
		}
		g.options[o.name] = append(g.options[o.name], words[:taken]...)
		words = words[taken:]
	}
	return g, nil
}

// begins reports whether a word begins an option.
func begins(known []option, word string) bool {
	o, _, _, err := findOption(known, word)
	return word == "--" || err != nil || o.name != ""
}

// findOption returns the option that a word names, and its value if that is in the word, too; no option for an argument
// (Python's argparse.py: ArgumentParser._parse_optional). The page writes -a 12 as one word.
func findOption(known []option, word string) (o option, value string, hasValue bool, err error) {
	if len(word) < 2 || word[0] != '-' || number.MatchString(word) {
		return option{}, "", false, nil
	}
	spaced := strings.Contains(word, " ")
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, value, hasValue := strings.Cut(long, "=")
		o, err := findLong(known, name)
		if err != nil && spaced {
			return option{}, "", false, nil
		}
		return o, value, hasValue, err
	}
	i := slices.IndexFunc(known, func(o option) bool { return o.short == word[1:2] })
	switch {
	case i >= 0:
		value = strings.TrimPrefix(strings.TrimSpace(word[2:]), "=")
		if known[i].kind == isSwitch && len(word) > 2 {
			return option{}, "", false, wrong("Write the options of %s apart.", word)
		}
		return known[i], value, len(word) > 2, nil
	case spaced:
		return option{}, "", false, nil
	}
	return option{}, "", false, wrong("There is no option %s.", word)
}

// findLong returns the option with this name, or the only one whose name begins so.
func findLong(known []option, name string) (option, error) {
	var found []option
	var names []string
	for _, o := range known {
		if o.name == name {
			return o, nil
		}
		if name != "" && strings.HasPrefix(o.name, name) {
			found = append(found, o)
		}
		names = append(names, o.name)
	}
	switch near := spelling.Nearest(name, names); {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return option{}, wrong("--%s may be --%s or --%s: write more of it.", name, found[0].name, found[1].name)
	case near != "":
		return option{}, wrong("There is no option --%s: did you mean --%s?", name, near)
	}
	return option{}, wrong("There is no option --%s.", name)
}
