package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// keyedTarget is a dependency: the run sees target under key.
type keyedTarget struct{ key, target string }

// desugar reads a run's dependencies, including those in its command between percent signs. It
// gives those without a key the keys b1, b2 and so on (codalab/lib/cli_util.py:
// desugar_command).
//
//	a.txt         b1:a.txt
//	:a.txt        a.txt:a.txt
//	:d/sub/f      sub/f:d/sub/f
//	'cat %a.txt%' b1:a.txt, and the command is 'cat b1'
//	'date +%%Y'   nothing, and the command is 'date +%Y'
//
// Two percent signs are ours: CodaLab's own cl has no sign for one.
func desugar(specs []string, command string) ([]keyedTarget, string, error) {
	var list []keyedTarget
	for _, spec := range specs {
		var err error
		if list, _, err = addTarget(list, spec); err != nil {
			return nil, "", err
		}
	}
	var done strings.Builder
	for {
		before, rest, marked := strings.Cut(command, "%")
		done.WriteString(before)
		if !marked {
			return list, done.String(), disjoint(list)
		}
		if literal, ok := strings.CutPrefix(rest, "%"); ok {
			done.WriteByte('%')
			command = literal
			continue
		}
		spec, after, closed := strings.Cut(rest, "%")
		if !closed {
			done.WriteString("%" + rest)
			return list, done.String(), disjoint(list)
		}
		longer, key, err := addTarget(list, spec)
		if err != nil {
			return nil, "", percentHint(err, spec)
		}
		done.WriteString(key)
		list, command = longer, after
	}
}

// percentHint adds to an error about a bundle between percent signs that these have a meaning.
func percentHint(err error, spec string) error {
	return &explained{error: err, text: fmt.Sprintf("%s. %%%s%% in the command names a bundle: write %%%% for a percent sign",
		strings.TrimSuffix(explain(err).Error(), "."), spec)}
}

// orPercentHint adds the hint if a bundle that is not there is one of the command's.
func orPercentHint(err error, command string) error {
	missing, ok := errors.AsType[*placeError](err)
	if !ok || !isNotFound(err) {
		return err
	}
	for _, spec := range missing.specs {
		if strings.Contains(command, "%"+spec+"%") && missing.names(spec) {
			return percentHint(err, spec)
		}
	}
	return err
}

// addTarget adds a dependency to a list, unless the list has it already, and returns its key.
func addTarget(list []keyedTarget, spec string) ([]keyedTarget, string, error) {
	key, target, err := dependencyKey(list, spec)
	if err != nil {
		return nil, "", err
	}
	for _, other := range list {
		switch {
		case other.key != key:
		case other.target == target:
			return list, key, nil
		default:
			return nil, "", refusef("key %s exists with multiple values: %s and %s", key, other.target, target)
		}
	}
	return append(list, keyedTarget{key, target}), key, nil
}

func dependencyKey(list []keyedTarget, spec string) (key, target string, err error) {
	key, target, keyed, err := splitKey(spec)
	if err != nil || key != "" {
		return key, target, err
	}
	if keyed {
		t, err := parseTarget(target)
		if t.subpath != "" {
			return t.subpath, target, err
		}
		return t.bundle, target, err
	}
	for _, other := range list {
		if other.target == target {
			return other.key, target, nil
		}
	}
	return "b" + strconv.Itoa(len(list)+1), target, nil
}

// dependencies resolves a run's dependencies, with one call for each worksheet that they name
// (bundle_cli.py: resolve_key_targets).
func (w *workspace) dependencies(ctx context.Context, targets []keyedTarget) ([]codalab.Dependency, error) {
	deps := make([]codalab.Dependency, len(targets))
	parents := make([]targetSpec, len(targets))
	for i, t := range targets {
		spec, err := parseTarget(t.target)
		if err != nil {
			return nil, err
		}
		if spec.instance != "" {
			return nil, refusef("Cannot execute command on a target on a remote instance. "+
				"Please remove the instance reference (i.e. \"prod::\" in prod::worksheet//bundle): %s", t.target)
		}
		deps[i] = codalab.Dependency{ChildPath: t.key, ParentPath: spec.subpath}
		parents[i] = spec
	}
	uuids, err := w.resolveTargets(ctx, parents)
	if err != nil {
		return nil, err
	}
	for i, uuid := range uuids {
		deps[i].ParentUUID = uuid
	}
	return deps, nil
}

// disjoint refuses a key that is a path below another key.
func disjoint(targets []keyedTarget) error {
	for i, t := range targets {
		for _, other := range targets[:i] {
			if strings.HasPrefix(t.key, other.key+"/") || strings.HasPrefix(other.key, t.key+"/") {
				return refusef("A key cannot be an ancestor of another: %s %s", t.key, other.key)
			}
		}
	}
	return nil
}
