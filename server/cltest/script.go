package cltest

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed scripts/*.txt recorded/*.txt
var files embed.FS

// Script is a list of steps.
type Script struct {
	// Name is the name of its file without the extension.
	Name  string
	steps []step
}

// step is a line of a script.
type step struct {
	where, text string
	// save is the variable that keeps the first identifier that cl prints.
	save string
}

// verb is the command of cl that a step runs; the step's first word if it runs none.
func (s step) verb() string {
	words := append(strings.Fields(s.text), "", "", "")
	switch words[0] {
	case "sh", "worker":
		return words[0]
	case "hears":
		return regexp.MustCompile(`^hears +(?:"[^"]*"|\S+) +\S+ +(\S+)`).FindStringSubmatch(s.text)[1]
	case "until":
		return "info"
	}
	return words[1]
}

// Scripts returns all scripts.
func Scripts() ([]Script, error) {
	paths, err := fs.Glob(files, "scripts/*.txt")
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	var scripts []Script
	for _, p := range paths {
		data, err := files.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read script: %w", err)
		}
		scripts = append(scripts, readScript(p, string(data)))
	}
	return scripts, nil
}

func readScript(file, text string) Script {
	script := Script{Name: strings.TrimSuffix(path.Base(file), ".txt")}
	saves := regexp.MustCompile(`^([a-z]\w*) = (.*)$`)
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s := step{where: fmt.Sprintf("%s:%d", file, i+1), text: line}
		if m := saves.FindStringSubmatch(line); m != nil {
			s.save, s.text = m[1], m[2]
		}
		script.steps = append(script.steps, s)
	}
	return script
}

// ChangesUsers reports whether a script changes the users' quotas, which other scripts on the same server would meet.
func (s Script) ChangesUsers() bool {
	return slices.ContainsFunc(s.steps, func(one step) bool { return strings.HasPrefix(one.text, "root uedit ") })
}

// Lacks returns a program that a script runs and this machine does not have; empty if it has all.
func (s Script) Lacks() string {
	for _, program := range []string{"python3", "bzip2"} {
		uses := func(s step) bool { return strings.Contains(s.text, program+" ") }
		if _, err := exec.LookPath(program); err != nil && slices.ContainsFunc(s.steps, uses) {
			return program
		}
	}
	return ""
}

// Recorded returns the outputs of CodaLab's own cl on CodaLab's own server, one for each step.
func (s Script) Recorded() ([]string, error) {
	name := "recorded/" + s.Name + ".txt"
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	var printed []string
	for line := range strings.Lines(string(data)) {
		text, isStep := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> ")
		switch n := len(printed); {
		case isStep && (n == len(s.steps) || text != s.steps[n].text), !isStep && n == 0:
			return nil, fmt.Errorf("%s is of another script: step %d is %q; record it again", name, n+1, text)
		case isStep:
			printed = append(printed, "")
		default:
			printed[n-1] += strings.TrimPrefix(line, "    ")
		}
	}
	if len(printed) < len(s.steps) {
		return nil, fmt.Errorf("%s ends at step %d; record it again", name, len(printed))
	}
	return printed, nil
}

// Record writes the outputs of CodaLab's own cl; dir is the directory of this package.
func (s Script) Record(dir string, printed []string) error {
	var file strings.Builder
	for i, output := range printed {
		file.WriteString("> " + s.steps[i].text + "\n")
		for line := range strings.Lines(output) {
			if line != "\n" {
				line = "    " + line
			}
			file.WriteString(line)
		}
	}
	return os.WriteFile(filepath.Join(dir, "recorded", s.Name+".txt"), []byte(file.String()), 0o644)
}

// split splits a line into words as a shell does, and expands the known variables in it.
func split(line string, variables map[string]string) ([]string, error) {
	var words []string
	var word strings.Builder
	variable := regexp.MustCompile(`^\$(\w+)`)
	quote, inWord := rune(0), false
	for rest := line; rest != ""; {
		c := rune(rest[0])
		name := variable.FindStringSubmatch(rest)
		value, known := "", false
		if name != nil {
			value, known = variables[name[1]]
		}
		size := 1
		switch {
		case quote == 0 && c == ' ':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case known:
			word.WriteString(value)
			size, inWord = len(name[0]), true
		default:
			word.WriteByte(rest[0])
			inWord = true
		}
		rest = rest[size:]
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote does not end in %q", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
