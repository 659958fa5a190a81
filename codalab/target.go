package codalab

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// TargetSpec is a user's name for a path in a bundle's contents: [ADDRESS::][WORKSHEET//]BUNDLE[/SUBPATH].
type TargetSpec struct {
	// Instance is the address of a server. Empty means the current one.
	Instance string
	// Worksheet is where Bundle is looked for. Empty means the current one.
	Worksheet string
	// Bundle is a uuid, a name, or a number from the end (^1).
	Bundle string
	// Subpath is within the contents. Empty means all of them.
	Subpath string
}

// SpecError is a mistake in a target or a dependency that a user wrote.
type SpecError struct {
	Text string
	// Marked is the dependency if it stands between percent signs in a command.
	Marked string
}

// Error returns the text, and what percent signs mean where they were read.
func (e *SpecError) Error() string {
	if e.Marked == "" {
		return e.Text
	}
	return fmt.Sprintf("%s. %s", strings.TrimSuffix(e.Text, "."), PercentHint(e.Marked))
}

// PercentHint tells what a dependency between percent signs in a command means.
func PercentHint(spec string) string {
	return fmt.Sprintf("%%%s%% in the command names a bundle: write %%%% for a percent sign", spec)
}

func wrongSpec(format string, args ...any) error {
	return &SpecError{Text: fmt.Sprintf(format, args...)}
}

// SplitInstance splits ADDRESS::REST. Without an address, ok is false and rest is all.
func SplitInstance(spec string) (address, rest string, ok bool) {
	address, rest, ok = strings.Cut(spec, "::")
	if !ok {
		return "", spec, false
	}
	return strings.TrimRight(address, "/"), rest, true
}

// ParseTarget parses a target without a key (codalab/lib/cli_util.py: parse_target_spec). It fails with a SpecError.
func ParseTarget(spec string) (TargetSpec, error) {
	var t TargetSpec
	rest := spec
	if instance, after, ok := SplitInstance(rest); ok {
		t.Instance, rest = instance, after
	}
	if worksheet, after, ok := strings.Cut(rest, "//"); ok {
		t.Worksheet, rest = worksheet, after
	}
	t.Bundle, t.Subpath, _ = strings.Cut(rest, "/")
	if t.Bundle == "" {
		return t, wrongSpec("%q names no bundle", spec)
	}
	if clean := path.Clean(t.Subpath); clean == ".." || strings.HasPrefix(clean, "../") {
		return t, wrongSpec("%q leads out of the bundle", spec)
	}
	return t, nil
}

// Input is a dependency as a user writes it: the run sees the target under the key.
type Input struct{ Key, Target string }

// ParseInput splits [KEY:]TARGET; a "::" does not end a key (codalab/lib/cli_util.py: parse_key_target). keyed reports
// whether there was a colon: after one, an empty key means the target's own name. It fails with a SpecError.
func ParseInput(spec string) (in Input, keyed bool, err error) {
	in.Target = spec
	if i := strings.IndexByte(spec, ':'); i >= 0 && !strings.HasPrefix(spec[i+1:], ":") {
		in, keyed = Input{spec[:i], spec[i+1:]}, true
	}
	if in.Target == "" {
		return Input{}, false, wrongSpec("target_spec (%s) in wrong format. "+
			"Please provide a valid target_spec in the format of "+
			"[<key>]:[<worksheet>//](<uuid>|<name>|^<index>)[/<subpath within bundle>].", spec)
	}
	return in, keyed, nil
}

// RunInputs reads a run's dependencies, including those in its command between percent signs, and returns the command
// without these. It gives those without a key the keys b1, b2 and so on (codalab/lib/cli_util.py: desugar_command).
//
//	a.txt         b1:a.txt
//	:a.txt        a.txt:a.txt
//	:d/sub/f      sub/f:d/sub/f
//	'cat %a.txt%' b1:a.txt, and the command is 'cat b1'
//	'date +%%Y'   nothing, and the command is 'date +%Y'
//
// Two percent signs are ours: CodaLab's own cl has no sign for one. It fails with a SpecError.
func RunInputs(specs []string, command string) (inputs []Input, plain string, err error) {
	for _, spec := range specs {
		if inputs, _, err = addInput(inputs, spec); err != nil {
			return nil, "", err
		}
	}
	var done strings.Builder
	for {
		before, rest, marked := strings.Cut(command, "%")
		done.WriteString(before)
		if !marked {
			return inputs, done.String(), CheckKeys(inputs)
		}
		if literal, ok := strings.CutPrefix(rest, "%"); ok {
			done.WriteByte('%')
			command = literal
			continue
		}
		spec, after, closed := strings.Cut(rest, "%")
		if !closed {
			done.WriteString("%" + rest)
			return inputs, done.String(), CheckKeys(inputs)
		}
		longer, key, err := addInput(inputs, spec)
		if err != nil {
			return nil, "", &SpecError{Text: err.Error(), Marked: spec}
		}
		done.WriteString(key)
		inputs, command = longer, after
	}
}

// addInput adds a dependency to a list, unless the list has it already, and returns its key.
func addInput(list []Input, spec string) (longer []Input, key string, err error) {
	in, err := newInput(list, spec)
	if err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(list, func(other Input) bool { return other.Key == in.Key })
	switch {
	case i < 0:
		return append(list, in), in.Key, nil
	case list[i].Target != in.Target:
		return nil, "", wrongSpec("key %s exists with multiple values: %s and %s", in.Key, list[i].Target, in.Target)
	}
	return list, in.Key, nil
}

// newInput parses a dependency after those of a list, and gives it a key.
func newInput(list []Input, spec string) (Input, error) {
	in, keyed, err := ParseInput(spec)
	if err != nil {
		return Input{}, err
	}
	t, err := ParseTarget(in.Target)
	if err != nil || in.Key != "" {
		return in, err
	}
	if keyed {
		in.Key = t.Bundle
		if t.Subpath != "" {
			in.Key = t.Subpath
		}
		return in, nil
	}
	if i := slices.IndexFunc(list, func(other Input) bool { return other.Target == in.Target }); i >= 0 {
		return list[i], nil
	}
	in.Key = "b" + strconv.Itoa(len(list)+1)
	return in, nil
}

// CheckKeys refuses a key that is a path below another key, with a SpecError.
func CheckKeys(inputs []Input) error {
	for i, in := range inputs {
		for _, other := range inputs[:i] {
			if strings.HasPrefix(in.Key, other.Key+"/") || strings.HasPrefix(other.Key, in.Key+"/") {
				return wrongSpec("A key cannot be an ancestor of another: %s %s", in.Key, other.Key)
			}
		}
	}
	return nil
}
