// Package argparse reads command lines as Python's argparse does, for programs whose originals use it,
// and passes them to cobra and pflag. A unique prefix of a long option stands for the option; some
// options take several words; a number is no option; options and arguments come in any order.
package argparse

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Words is the value of a flag that takes several words: --tags a b. Read passes them as one JSON
// list. A repeated flag adds to the list.
type Words struct {
	// List has the words.
	List []string
	// Count is the number of words that the flag takes; 0 is any number.
	Count int
}

// Set adds a JSON list of words, or one word: shell completion passes the command line unchanged.
func (w *Words) Set(text string) error {
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		w.List = append(w.List, text)
		return nil //nolint:nilerr // it is a word
	}
	if w.Count > 0 && len(list) != w.Count {
		return fmt.Errorf("%d words are needed", w.Count)
	}
	w.List = append(w.List, list...)
	return nil
}

// String is empty: words have no default.
func (w *Words) String() string { return "" }

// Type returns the placeholder of the words in the help.
func (w *Words) Type() string { return "word..." }

// WordsFlag adds a flag for several words.
func WordsFlag(flags *pflag.FlagSet, name, short, help string) *Words {
	w := &Words{}
	flags.VarP(w, name, short, help)
	return w
}

// Read reads the words that follow a command's name. It returns the options in pflag's form, and the
// arguments.
func Read(cmd *cobra.Command, args []string) (options, arguments []string, err error) {
	cmd.InitDefaultHelpFlag()
	l := commandLine{cmd: cmd, left: args}
	err = l.read()
	return l.options, l.arguments, err
}

// ReadBefore reads the words that come before a subcommand's name: a flag of several words takes
// those up to the next option or subcommand. It returns the options in pflag's form, and the rest,
// which begins with the first argument.
func ReadBefore(cmd *cobra.Command, args []string) (options, rest []string, err error) {
	cmd.InitDefaultHelpFlag()
	l := commandLine{cmd: cmd, left: args, before: true}
	err = l.read()
	return l.options, slices.Concat(l.arguments, l.left), err
}

// commandLine is a command line that is being read.
type commandLine struct {
	cmd                *cobra.Command
	left               []string
	options, arguments []string
	// before is set if only the words before a subcommand are read.
	before bool
}

func (l *commandLine) read() error {
	for len(l.left) > 0 {
		arg := l.left[0]
		l.left = l.left[1:]
		var err error
		switch {
		case arg == "--":
			l.arguments = append(l.arguments, l.left...)
			l.left = nil
			return nil
		case !l.isOption(arg):
			l.arguments = append(l.arguments, arg)
			if l.before {
				return nil
			}
		case strings.HasPrefix(arg, "--"):
			err = l.readLong(arg)
		default:
			err = l.readShort(arg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isOption distinguishes an option from an argument that begins with a dash, such as a number or a
// command (Python's argparse.py: ArgumentParser._parse_optional).
func (l *commandLine) isOption(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' || regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`).MatchString(arg) {
		return false
	}
	if !strings.Contains(arg, " ") {
		return true
	}
	if name, long := strings.CutPrefix(arg, "--"); long {
		name, _, _ = strings.Cut(name, "=")
		_, err := l.long(name)
		return err == nil
	}
	return l.cmd.Flags().ShorthandLookup(arg[1:2]) != nil
}

// long returns the flag with this name or with a name that begins so.
func (l *commandLine) long(name string) (*pflag.Flag, error) {
	if f := l.cmd.Flag(name); f != nil {
		return f, nil
	}
	var all, found []string
	visit := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		all = append(all, f.Name)
		if name != "" && strings.HasPrefix(f.Name, name) {
			found = append(found, f.Name)
		}
	}
	l.cmd.LocalFlags().VisitAll(visit)
	l.cmd.InheritedFlags().VisitAll(visit)
	switch len(found) {
	case 1:
		return l.cmd.Flag(found[0]), nil
	case 0:
		return nil, fmt.Errorf("there is no option --%s%s", name, DidYouMean("--", Nearest(name, all)))
	}
	return nil, fmt.Errorf("--%s may be --%s: write more of it", name, strings.Join(found, " or --"))
}

func (l *commandLine) readLong(arg string) error {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	f, err := l.long(name)
	if err != nil {
		return err
	}
	if f.NoOptDefVal != "" { // a switch; pflag reads the value, if there is one
		l.options = append(l.options, strings.Replace(arg, name, f.Name, 1))
		return nil
	}
	return l.add(f, value, hasValue)
}

// isSubcommand reports whether a word ends the words before a subcommand.
func (l *commandLine) isSubcommand(word string) bool {
	return l.before && slices.ContainsFunc(l.cmd.Commands(), func(sub *cobra.Command) bool { return sub.Name() == word })
}

// readShort reads -abc, of which the last letter may have a value, with or without a space or an
// equals sign before it.
func (l *commandLine) readShort(arg string) error {
	for rest := arg[1:]; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		letter := rest[:size]
		rest = rest[size:]
		var f *pflag.Flag
		if size == 1 {
			f = l.cmd.Flags().ShorthandLookup(letter)
		}
		switch {
		case f == nil:
			return fmt.Errorf("there is no option -%s; %s --help lists them", letter, l.cmd.CommandPath())
		case f.NoOptDefVal == "":
			return l.add(f, strings.TrimPrefix(rest, "="), rest != "")
		}
		l.options = append(l.options, "--"+f.Name)
	}
	return nil
}

// add adds an option that has a value, or takes the words that follow.
func (l *commandLine) add(f *pflag.Flag, value string, hasValue bool) error {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + "/" + name
	}
	w, several := f.Value.(*Words)
	var list []string
	switch {
	case hasValue:
		list = []string{value}
	case several:
		for len(l.left) > 0 && l.left[0] != "--" && !l.isOption(l.left[0]) && !l.isSubcommand(l.left[0]) && (w.Count == 0 || len(list) < w.Count) {
			list, l.left = append(list, l.left[0]), l.left[1:]
		}
	case len(l.left) > 0 && l.left[0] != "--" && !l.isOption(l.left[0]):
		list, l.left = l.left[:1], l.left[1:]
	case len(l.left) > 0 && l.left[0] != "--":
		return fmt.Errorf("%s needs a value; for one that begins with a dash write --%s=%s", name, f.Name, l.left[0])
	default:
		return fmt.Errorf("%s needs a value", name)
	}
	if !several {
		l.options = append(l.options, "--"+f.Name+"="+list[0])
		return nil
	}
	if w.Count > 0 && len(list) != w.Count {
		return fmt.Errorf("%s needs %d words", name, w.Count)
	}
	data, err := json.Marshal(append([]string{}, list...))
	l.options = append(l.options, "--"+f.Name+"="+string(data))
	return err
}

// WrongValue returns the error message for a value that an option cannot take.
func WrongValue(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	kind := invalid.GetFlag().Value.Type()
	if kind == "size" || kind == "time" || kind == "times" || kind == "when" {
		return fmt.Errorf("--%s needs %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	wanted, known := map[string]string{"int": "a whole number", "int64": "a whole number", "bool": "true or false"}[kind]
	if !known {
		wanted = "a " + kind
	}
	return fmt.Errorf("--%s needs %s, not %q", invalid.GetFlag().Name, wanted, invalid.GetValue())
}
