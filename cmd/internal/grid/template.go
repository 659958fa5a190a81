package grid

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/spelling"
)

// braced finds the places of settings in a text: {NAME}, {{NAME}} for the braces themselves, and ${NAME}, which is the
// shell's. A pair of braces around anything else is the shell's, awk's or JSON's.
var braced = regexp.MustCompile(`\{\{([a-zA-Z_][a-zA-Z0-9_.-]*)\}\}|\$?\{([a-zA-Z_][a-zA-Z0-9_.-]*)\}`)

// Fill returns a text with the settings of a member in the places of their names.
func Fill(text string, m Member) string {
	values := map[string]string{}
	for _, s := range m {
		values[s.Name] = s.Value
	}
	return braced.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.Trim(found, "${}")
		value, known := values[name]
		switch {
		case found[0] == '$', !known && !strings.HasPrefix(found, "{{"):
			return found
		case !strings.HasPrefix(found, "{{"):
			return value
		case known || similar(name, m) != "":
			return found[1 : len(found)-1]
		}
		return found
	})
}

// similar returns the setting that a mistyped name was meant to be.
func similar(name string, m Member) string {
	names := make([]string, len(m))
	for i, s := range m {
		names[i] = s.Name
	}
	return nearest(name, names)
}

// nearest is spelling.Nearest without regard to case.
func nearest(name string, names []string) string {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
	}
	return spelling.Nearest(name, names)
}

// CheckUse refuses texts that name a setting that is not there but was probably meant, and settings that no text names:
// the members would be copies.
func CheckUse(names []string, texts ...string) error {
	used := map[string]bool{}
	shell := map[string]bool{}
	for _, text := range texts {
		for _, found := range braced.FindAllString(text, -1) {
			name := strings.Trim(found, "${}")
			switch {
			case strings.HasPrefix(found, "{{"):
			case found[0] == '$':
				shell[name] = true
			case slices.Contains(names, name):
				used[name] = true
			default:
				if near := nearest(name, names); near != "" {
					return fmt.Errorf("there is no setting %s: did you mean {%s}? {{%s}} stands for the braces themselves", name, near, name)
				}
			}
		}
	}
	for _, name := range names {
		switch {
		case used[name]:
		case shell[name]:
			return fmt.Errorf("the setting %s is used nowhere: ${%s} is a variable of the shell, and {%s} the setting", name, name, name)
		default:
			return fmt.Errorf("the setting %s is used nowhere: write {%s} in the command, or in the name after -n", name, name)
		}
	}
	return nil
}

// NameOf returns the name of a bundle with a member's settings: base-lr0.1-seed3, of at most size bytes.
func NameOf(base string, m Member, size int) string {
	var name strings.Builder
	name.WriteString(base)
	for _, s := range m {
		name.WriteString("-" + s.Name + s.Value)
	}
	text := unnameable.ReplaceAllString(name.String(), "-")
	return text[:min(len(text), size)]
}

var unnameable = regexp.MustCompile(`[^a-zA-Z0-9_.-]+`)
