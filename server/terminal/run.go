package terminal

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// makeRun is bundle_cli.py: do_run_command.
func makeRun(ctx context.Context, s *session, g given) error {
	sheet, err := s.onWorksheet()
	if err != nil {
		return err
	}
	last := len(g.arguments) - 1
	inputs, line, err := desugar(g.arguments[:last], g.arguments[last])
	if err != nil {
		return err
	}
	if strings.TrimSpace(line) == "" {
		return wrong("The command cannot be empty.")
	}
	m, err := metadata(g, line)
	if err != nil {
		return err
	}
	deps, err := s.dependencies(ctx, inputs)
	if err != nil {
		return err
	}
	made, err := s.CreateBundle(ctx, client.NewBundle{
		Worksheet: sheet, Type: codalab.TypeRun, Command: line, Metadata: m, Dependencies: deps,
		AfterSortKey: g.value("after_sort_key"), CheckRequests: true,
	})
	if err != nil {
		return err
	}
	s.print(made.UUID)
	s.print(made.Warnings...)
	return nil
}

// metadataOptions are the options for a run's metadata (bundle_cli.py: metadata_arguments).
func metadataOptions() []option {
	var list []option
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if key.Generated {
			continue
		}
		o := option{name: strings.ReplaceAll(key.Key, "_", "-"), short: map[string]string{"name": "n", "description": "d"}[key.Key], kind: isValue}
		switch key.Type {
		case codalab.TypeBool:
			o.kind = isSwitch
		case codalab.TypeList:
			o.kind = isList
		default: // one word
		}
		list = append(list, o)
	}
	return list
}

// metadata is that of a run of a command line.
func metadata(g given, line string) (codalab.Metadata, error) {
	m := codalab.Metadata{}
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if key.Generated {
			continue
		}
		m[key.Key] = key.Default
		name := strings.ReplaceAll(key.Key, "_", "-")
		words, ok := g.options[name]
		if !ok {
			continue
		}
		switch key.Type {
		case codalab.TypeBool:
			m[key.Key] = g.has(name)
		case codalab.TypeInt:
			n, err := strconv.ParseInt(strings.TrimSpace(g.value(name)), 10, 64)
			if err != nil {
				return nil, wrong("--%s must be a whole number, not '%s'.", name, g.value(name))
			}
			m[key.Key] = n
		case codalab.TypeList:
			m[key.Key] = listed(words)
		default:
			m[key.Key] = g.value(name)
		}
	}
	if m.String("name") == "" {
		m["name"] = codalab.DefaultName(codalab.TypeRun, line)
	}
	return m, nil
}

// quotedList matches the tags of a new run as the page writes them, in one word: 'a','b' (NewRun.jsx: getCommand). CodaLab's
// own server takes that for one tag.
var quotedList = regexp.MustCompile(`^'[^']*'(,'[^']*')*$`)

// listed are the words of a list, without empty ones.
func listed(words []string) []string {
	all := []string{}
	for _, word := range words {
		if quotedList.MatchString(word) {
			all = append(all, strings.Split(word[1:len(word)-1], "','")...)
		} else {
			all = append(all, word)
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return word == "" })
}

// input is a dependency: the run sees the target under the key.
type input struct{ key, target string }

// desugar reads a run's dependencies, also those between percent signs in its command, and gives those without a key the keys
// b1, b2 and so on. Two percent signs are one of the command (codalab/lib/cli_util.py: desugar_command).
func desugar(specs []string, line string) (inputs []input, plain string, err error) {
	for _, spec := range specs {
		if inputs, _, err = add(inputs, spec); err != nil {
			return nil, "", err
		}
	}
	var done strings.Builder
	for {
		before, rest, marked := strings.Cut(line, "%")
		done.WriteString(before)
		if !marked {
			return inputs, done.String(), nil
		}
		if literal, ok := strings.CutPrefix(rest, "%"); ok {
			done.WriteByte('%')
			line = literal
			continue
		}
		spec, after, closed := strings.Cut(rest, "%")
		if !closed {
			done.WriteString("%" + rest)
			return inputs, done.String(), nil
		}
		var key string
		if inputs, key, err = add(inputs, spec); err != nil {
			return nil, "", err
		}
		done.WriteString(key)
		line = after
	}
}

// add adds a dependency, unless the list has it already, and returns its key.
func add(list []input, spec string) (longer []input, key string, err error) {
	key, target, keyed := strings.Cut(spec, ":")
	if !keyed {
		key, target = "", spec
	}
	bundle, subpath := splitTarget(target)
	if clean := path.Clean(subpath); bundle == "" || clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, "", wrong("'%s' names no bundle, and no path in one. A percent sign of the command is written %%%%.", spec)
	}
	switch {
	case key != "":
	case keyed && subpath != "":
		key = subpath
	case keyed:
		key = bundle
		if _, name, elsewhere := strings.Cut(bundle, "//"); elsewhere {
			key = name
		}
	default:
		if i := slices.IndexFunc(list, func(other input) bool { return other.target == target }); i >= 0 {
			return list, list[i].key, nil
		}
		key = "b" + strconv.Itoa(len(list)+1)
	}
	if i := slices.IndexFunc(list, func(other input) bool {
		return strings.HasPrefix(key, other.key+"/") || strings.HasPrefix(other.key, key+"/")
	}); i >= 0 {
		return nil, "", wrong("A key cannot be an ancestor of another: %s %s", key, list[i].key)
	}
	if i := slices.IndexFunc(list, func(other input) bool { return other.key == key }); i >= 0 {
		if list[i].target != target {
			return nil, "", wrong("key %s exists with multiple values: %s and %s", key, list[i].target, target)
		}
		return list, key, nil
	}
	return append(list, input{key, target}), key, nil
}

// splitTarget splits [WORKSHEET//]BUNDLE[/SUBPATH] before the subpath (codalab/lib/cli_util.py: parse_target_spec).
func splitTarget(target string) (bundle, subpath string) {
	worksheet, rest, elsewhere := strings.Cut(target, "//")
	if !elsewhere {
		bundle, subpath, _ = strings.Cut(target, "/")
		return bundle, subpath
	}
	name, subpath, _ := strings.Cut(rest, "/")
	if name == "" {
		return "", ""
	}
	return worksheet + "//" + name, subpath
}

// dependencies resolves a run's dependencies.
func (s *session) dependencies(ctx context.Context, inputs []input) ([]codalab.Dependency, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	deps, specs := make([]codalab.Dependency, len(inputs)), make([]string, len(inputs))
	for i, in := range inputs {
		specs[i], deps[i].ParentPath = splitTarget(in.target)
		deps[i].ChildPath = in.key
	}
	uuids, err := s.bundles(ctx, specs)
	if err != nil {
		return nil, err
	}
	for i, uuid := range uuids {
		deps[i].ParentUUID = uuid
	}
	return deps, nil
}
