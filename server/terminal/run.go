package terminal

import (
	"context"
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
	inputs, line, err := codalab.RunInputs(g.arguments[:last], g.arguments[last])
	if err != nil {
		return wrong("%s", err)
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
	for _, warning := range made.Warnings {
		// When a run is repeated, the page puts the output into the address of the run's page as it is (frontend:
		// BundleActions.jsx, handleSubmitRerun), where a # ends the uuid.
		s.print("# " + warning)
	}
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

// dependencies resolves a run's dependencies.
func (s *session) dependencies(ctx context.Context, inputs []codalab.Input) ([]codalab.Dependency, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	deps, specs := make([]codalab.Dependency, len(inputs)), make([]string, len(inputs))
	for i, in := range inputs {
		t, err := codalab.ParseTarget(in.Target)
		switch {
		case err != nil:
			return nil, wrong("%s", err)
		case t.Instance != "":
			return nil, wrong("A run's dependencies are on its own server: %s", in.Target)
		case t.Worksheet != "":
			t.Bundle = t.Worksheet + "//" + t.Bundle
		}
		specs[i] = t.Bundle
		deps[i] = codalab.Dependency{ChildPath: in.Key, ParentPath: t.Subpath}
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
