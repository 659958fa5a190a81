package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// percentHint adds to an error about a bundle between percent signs that these have a meaning.
func percentHint(err error, spec string) error {
	return &explained{error: err, text: fmt.Sprintf("%s. %s", strings.TrimSuffix(explain(err).Error(), "."), codalab.PercentHint(spec))}
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

// dependencies resolves a run's dependencies, with one call for each worksheet that they name
// (bundle_cli.py: resolve_key_targets).
func (w *workspace) dependencies(ctx context.Context, targets []codalab.Input) ([]codalab.Dependency, error) {
	deps := make([]codalab.Dependency, len(targets))
	parents := make([]codalab.TargetSpec, len(targets))
	for i, t := range targets {
		spec, err := codalab.ParseTarget(t.Target)
		if err != nil {
			return nil, err
		}
		if spec.Instance != "" {
			return nil, refusef("Cannot execute command on a target on a remote instance. "+
				"Please remove the instance reference (i.e. \"prod::\" in prod::worksheet//bundle): %s", t.Target)
		}
		deps[i] = codalab.Dependency{ChildPath: t.Key, ParentPath: spec.Subpath}
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
