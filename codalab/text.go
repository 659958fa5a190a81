package codalab

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// The errors of SplitWords, in Python's words (shlex.py: shlex.read_token).
var (
	ErrQuotation = errors.New("No closing quotation")
	ErrEscape    = errors.New("No escaped character")
)

// SplitWords splits a text, such as a worksheet's directive, into words as a POSIX shell does, without comments
// (codalab/lib/formatting.py: string_to_tokens).
func SplitWords(text string) ([]string, error) {
	words := []string{}
	var word strings.Builder
	inWord, escaped, quote := false, false, rune(0)
	for _, c := range text {
		switch {
		case escaped:
			if quote != 0 && c != quote && c != '\\' {
				word.WriteByte('\\') // within quotes, only these two are escaped
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			inWord, quote = true, c
		case strings.ContainsRune(" \t\r\n", c):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			inWord = true
			word.WriteRune(c)
		}
	}
	switch {
	case escaped:
		return nil, ErrEscape
	case quote != 0:
		return nil, ErrQuotation
	case inWord:
		words = append(words, word.String())
	}
	return words, nil
}

var unsafeInShell = lazyregexp.New(`[^a-zA-Z0-9_@%+=:,./-]`)

// JoinWords returns the text that SplitWords, and a shell, split into words (codalab/lib/formatting.py:
// tokens_to_string; Python's shlex.py: quote).
func JoinWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if word == "" || unsafeInShell().MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

const (
	// CommentMark begins a comment among a worksheet's lines.
	CommentMark = "//"
	// CommentWord is the first word of a directive that is a comment.
	CommentWord = "%"
)

// ItemLine returns an item of a worksheet as the line that people edit (codalab/lib/worksheet_util.py: get_worksheet_lines).
// shown is the description of its bundle or the name of its worksheet, which readers of the line ignore, and uuid is the uuid.
func ItemLine(itemType, value, shown, uuid string) string {
	switch itemType {
	case ItemBundle:
		return "[" + shown + "]{" + uuid + "}"
	case ItemWorksheet:
		return "[worksheet " + shown + "]{{" + uuid + "}}"
	case ItemDirective:
		return DirectiveLine(value)
	}
	return value
}

// DirectiveLine returns a directive as the line that people edit: % schema s (codalab/lib/worksheet_util.py:
// get_worksheet_lines).
func DirectiveLine(value string) string {
	words, err := SplitWords(value)
	if err == nil {
		if len(words) > 0 && words[0] == CommentWord {
			return CommentMark + strings.Join(words[1:], " ")
		}
		value = JoinWords(words)
	}
	if value == "" || strings.HasPrefix(value, "%") {
		return "%" + value
	}
	return "% " + value
}

// Describe returns a description of the bundle for a worksheet's line that people edit
// (codalab/lib/worksheet_util.py: get_worksheet_lines); nothing for a bundle of which only the UUID is known.
func (b Bundle) Describe() string {
	if b.Type == "" {
		return ""
	}
	text := b.Type + " " + b.Metadata.String("name")
	if deps := DependencyList(b.Dependencies); deps != "" {
		text += " -- " + deps
	}
	if command := b.CommandText(); command != "" {
		text += " : " + strings.ReplaceAll(command, "\n", " ")
	}
	return text
}

// CommandText returns the bundle's command, or nothing if it has none.
func (b Bundle) CommandText() string {
	if b.Command == nil {
		return ""
	}
	return *b.Command
}

// None replaces a missing value in places that cannot be empty (codalab/lib/formatting.py: NONE_PLACEHOLDER).
const None = "<none>"

// Summary returns a sentence about the bundle's origin (codalab/lib/worksheet_util.py: interpret_genpath,
// "summary"); ok is false for a type that has none.
func (b Bundle) Summary() (text string, ok bool) {
	switch b.Type {
	case TypeDataset, TypeProgram:
		if b.State == StateReady {
			text = "[uploaded]"
		}
		return text, true
	case TypeMake:
		parts := make([]string, len(b.Dependencies))
		for i, d := range b.Dependencies {
			parts[i] = d.short()
		}
		return "= " + strings.Join(parts, " "), true
	case TypeRun:
		return "! " + b.CommandText(), true
	}
	return "", false
}

func (d Dependency) short() string {
	name := d.ParentName
	if name == "" {
		name = None
	}
	uuid := d.ParentUUID[:min(4, len(d.ParentUUID))]
	if d.ChildPath == "" || d.ChildPath == d.ParentName {
		return fmt.Sprintf("%s{%s}", name, uuid)
	}
	return fmt.Sprintf("%s{%s:%s}", d.ChildPath, name, uuid)
}

// Target returns the name of the dependency's target: its parent, and the path in it.
func (d Dependency) Target() string {
	if d.ParentPath != "" {
		return d.ParentName + "/" + d.ParentPath
	}
	return d.ParentName
}

// DependencyList returns a bundle's dependencies for people (codalab/lib/worksheet_util.py: interpret_genpath,
// "dependencies"). It leaves out a key that equals the parent's name, and the empty key of an only dependency.
func DependencyList(deps []Dependency) string {
	anonymous := len(deps) == 1 && deps[0].ChildPath == ""
	texts := make([]string, len(deps))
	for i, d := range deps {
		switch {
		case anonymous:
		case d.ChildPath == d.ParentName:
			texts[i] = ":"
		default:
			texts[i] = d.ChildPath + ":"
		}
		texts[i] += d.Target()
	}
	return strings.Join(texts, ",")
}

// DefaultName derives a bundle's name from a file's name or a run's command (codalab/lib/spec_util.py: create_default_name).
func DefaultName(bundleType, from string) string {
	switch bundleType {
	case TypeRun:
		from, _, _ = strings.Cut(from, " ")
		from = "run-" + from
	case TypeMake:
		from = "make-" + from
	}
	name := regexp.MustCompile(`[^a-zA-Z0-9_.-]`).ReplaceAllString(from, "-")
	name = regexp.MustCompile(`-+`).ReplaceAllString(name, "-")
	if !regexp.MustCompile(`^[a-zA-Z_]`).MatchString(name) {
		name = "_" + name
	}
	if len(name) > 32 {
		name = name[:15] + ".." + name[len(name)-15:]
	}
	return name
}
