package main

import (
	"regexp"
	"strings"
)

// normalizeArgs rewrites arguments that CodaLab's cl accepts and pflag does not.
//
// The words after "---" are a command and become one argument (bundle_cli.py:
// collapse_bare_command). A list flag takes all words up to the next flag: --tags a b is
// --tags a --tags b.
func normalizeArgs(args []string) []string {
	var out []string
	list := ""
	for i, arg := range args {
		if arg == "---" {
			words := make([]string, 0, len(args)-i)
			for _, w := range args[i+1:] {
				words = append(words, shellQuote(w))
			}
			return append(out, "--", strings.Join(words, " "))
		}
		switch {
		case arg == "--":
			return append(out, args[i:]...)
		case isListFlag(args[0], arg):
			list = arg
			continue
		case strings.HasPrefix(arg, "-") && arg != "-":
			list = ""
		case list != "":
			out = append(out, list)
		}
		out = append(out, arg)
	}
	return out
}

func isListFlag(verb, arg string) bool {
	switch arg {
	case "--tags", "--exclude-patterns":
		return true
	case "-x":
		return verb == "upload" || verb == "up"
	}
	return false
}

// shellQuote quotes a word for a shell, as Python's shlex.quote does.
func shellQuote(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}
