package main

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

// words is the value of a flag that takes several words: --tags a b. normalizeArgs hands them over
// as one JSON list. A flag that is given again adds to the list.
type words struct {
	list []string
	// count is how many words the flag takes; 0 is any number.
	count int
}

// Set adds a JSON list of words, or one word: shell completion hands over a command line as it is.
func (w *words) Set(text string) error {
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		w.list = append(w.list, text)
		return nil //nolint:nilerr // it is a word
	}
	if w.count > 0 && len(list) != w.count {
		return fmt.Errorf("%d words are needed", w.count)
	}
	w.list = append(w.list, list...)
	return nil
}

// String is empty: words have no default.
func (w *words) String() string { return "" }

// Type is what the help shows in place of the words.
func (w *words) Type() string { return "word..." }

// wordsFlag adds a flag for several words.
func wordsFlag(flags *pflag.FlagSet, name, short, help string) *words {
	w := &words{}
	flags.VarP(w, name, short, help)
	return w
}

// normalizeArgs rewrites a command line that Python's argparse accepts for pflag: the beginning of a
// long option stands for it if there is only one such option, some options take several words,
// options and arguments come in any order, and the words after "---" are a command, which becomes
// one argument (bundle_cli.py: collapse_bare_command). The options come first in the result, then
// "--" and the arguments.
func normalizeArgs(root *cobra.Command, args []string) ([]string, error) {
	if i := slices.Index(args, "---"); i >= 0 {
		quoted := make([]string, 0, len(args)-i)
		for _, w := range args[i+1:] {
			quoted = append(quoted, shellQuote(w))
		}
		args = slices.Clone(args[:i])
		if !slices.Contains(args, "--") {
			args = append(args, "--")
		}
		args = append(args, strings.Join(quoted, " "))
	}
	verb := verbOf(root, args)
	if verb < 0 || strings.HasPrefix(args[verb], "__complete") {
		return args, nil
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find(args[verb : verb+1])
	switch {
	case err != nil || cmd == root:
		return nil, unknownCommand(root, args[verb])
	case cmd.HasSubCommands() || cmd.DisableFlagParsing:
		return args, nil
	}
	l := commandLine{cmd: cmd, left: slices.Concat(args[:verb], args[verb+1:])}
	l.cmd.InitDefaultHelpFlag()
	if err := l.read(); err != nil {
		return nil, commandLineError(cmd, err)
	}
	return slices.Concat([]string{args[verb]}, l.options, []string{"--"}, l.arguments), nil
}

// verbOf returns the index of the command's name, -1 if there is none.
func verbOf(root *cobra.Command, args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return -1
		case !strings.HasPrefix(args[i], "-"):
			return i
		}
		if f := root.PersistentFlags().Lookup(strings.TrimPrefix(args[i], "--")); f != nil && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return -1
}

// commandLine is a command line that is being read.
type commandLine struct {
	cmd                *cobra.Command
	left               []string
	options, arguments []string
}

func (l *commandLine) read() error {
	for len(l.left) > 0 {
		arg := l.left[0]
		l.left = l.left[1:]
		var err error
		switch {
		case arg == "--":
			l.arguments = append(l.arguments, l.left...)
			return nil
		case !l.isOption(arg):
			l.arguments = append(l.arguments, arg)
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

// isOption tells an option from an argument that begins with a dash, such as a number or a command
// (Python's argparse.py: ArgumentParser._parse_optional).
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

// long returns the flag that name is, or is the beginning of.
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
		return nil, fmt.Errorf("there is no option --%s%s", name, didYouMean("--", nearest(name, all)))
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
	w, several := f.Value.(*words)
	var list []string
	switch {
	case hasValue:
		list = []string{value}
	case several:
		for len(l.left) > 0 && l.left[0] != "--" && !l.isOption(l.left[0]) && (w.count == 0 || len(list) < w.count) {
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
	if w.count > 0 && len(list) != w.count {
		return fmt.Errorf("%s needs %d words", name, w.count)
	}
	data, err := json.Marshal(append([]string{}, list...))
	l.options = append(l.options, "--"+f.Name+"="+string(data))
	return err //nolint:wrapcheck // texts always encode
}

// wrongValue is the sentence for a value that an option cannot take.
func wrongValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	kind := invalid.GetFlag().Value.Type()
	if kind == "size" || kind == "time" {
		return fmt.Errorf("--%s needs %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	wanted, known := map[string]string{"int": "a whole number", "int64": "a whole number", "bool": "true or false"}[kind]
	if !known {
		wanted = "a " + kind
	}
	return fmt.Errorf("--%s needs %s, not %q", invalid.GetFlag().Name, wanted, invalid.GetValue())
}

// shellQuote quotes a word for a shell, as Python's shlex.quote does.
func shellQuote(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}
