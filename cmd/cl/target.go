package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// target resolves a target on the worksheet that worksheetSpec names (bundle_cli.py:
// resolve_target).
func (c *cli) target(ctx context.Context, worksheetSpec, spec string) (*workspace, codalab.Target, error) {
	t, err := codalab.ParseTarget(spec)
	if err != nil {
		return nil, codalab.Target{}, err
	}
	if t.Instance != "" {
		worksheetSpec, t.Worksheet = t.Instance+"::"+t.Worksheet, ""
	}
	at, err := c.workspace(worksheetSpec)
	if err != nil {
		return nil, codalab.Target{}, err
	}
	at = at.onWorksheet(t.Worksheet)
	uuids, err := at.resolve(ctx, []string{t.Bundle})
	if err != nil {
		return nil, codalab.Target{}, err
	}
	return at, codalab.Target{BundleUUID: uuids[0], Subpath: t.Subpath}, nil
}

// bundleUUIDs resolves the bundles that a command names: [ADDRESS::][WORKSHEET//]BUNDLE, with ranges
// (bundle_cli.py: target_specs_to_bundle_uuids).
func (c *cli) bundleUUIDs(ctx context.Context, worksheetSpec string, specs []string) (*workspace, []string, error) {
	at, targets, err := c.bundleTargets(ctx, worksheetSpec, specs)
	if err != nil {
		return nil, nil, err
	}
	uuids, err := at.resolveTargets(ctx, targets)
	return at, uuids, err
}

// bundleTargets reads the specs of bundles, and returns their server and its worksheet.
func (c *cli) bundleTargets(ctx context.Context, worksheetSpec string, specs []string) (*workspace, []codalab.TargetSpec, error) {
	specs, err := expandSpecs(specs)
	if err != nil {
		return nil, nil, err
	}
	targets := make([]codalab.TargetSpec, len(specs))
	for i, spec := range specs {
		t, err := codalab.ParseTarget(spec)
		switch {
		case err != nil:
			return nil, nil, err
		case t.Subpath != "":
			return nil, nil, refusef("%q is a file of a bundle, not a bundle", spec)
		case t.Instance != targets[0].Instance && i > 0:
			return nil, nil, refusef("The bundles must be on one server: %s", strings.Join(specs, " "))
		}
		targets[i] = t
	}
	if len(targets) > 0 && targets[0].Instance != "" {
		worksheetSpec = targets[0].Instance + "::"
	}
	at, err := c.workspace(worksheetSpec)
	if err != nil {
		return nil, nil, err
	}
	if worksheetSpec != "" { // one that is not there is a mistake, also if no bundle needs it
		if _, err := at.worksheetUUID(ctx); err != nil {
			return nil, nil, err
		}
	}
	return at, targets, nil
}

// resolveTargets returns the uuids of the bundles of targets on this server, with one call for each
// worksheet that they name.
func (w *workspace) resolveTargets(ctx context.Context, targets []codalab.TargetSpec) ([]string, error) {
	uuids := make([]string, len(targets))
	specs := map[string][]string{} // by worksheet
	which := map[string][]int{}
	for i, t := range targets {
		specs[t.Worksheet] = append(specs[t.Worksheet], t.Bundle)
		which[t.Worksheet] = append(which[t.Worksheet], i)
	}
	for worksheet, list := range specs {
		found, err := w.onWorksheet(worksheet).resolve(ctx, list)
		if err != nil {
			return nil, err
		}
		for n, i := range which[worksheet] {
			uuids[i] = found[n]
		}
	}
	return uuids, nil
}

// resolve returns the uuids that bundle specs name. It calls the server unless all of them are
// uuids.
func (w *workspace) resolve(ctx context.Context, specs []string) ([]string, error) {
	uuids := make([]string, len(specs))
	var unresolved []string
	for i, spec := range specs {
		if codalab.IsUUID(spec) {
			uuids[i] = spec
		} else {
			unresolved = append(unresolved, spec)
		}
	}
	if len(unresolved) == 0 {
		return uuids, nil
	}
	worksheet, err := w.worksheetUUID(ctx)
	if err != nil {
		return nil, err
	}
	found, err := w.Bundles(ctx, worksheet, unresolved)
	if err != nil {
		return nil, &placeError{error: err, at: w, specs: unresolved}
	}
	if len(found) != len(unresolved) {
		return nil, refusef("the server found %d bundles for %s", len(found), strings.Join(unresolved, " "))
	}
	for i, next := 0, 0; i < len(uuids); i++ {
		if uuids[i] == "" {
			uuids[i] = found[next].UUID
			next++
		}
	}
	return uuids, nil
}

// maxRange limits a range that a user may have mistyped.
const maxRange = 10000

// expandSpecs expands ranges: a^1-3 is a^1 a^2 a^3 (codalab/lib/spec_util.py: expand_specs).
func expandSpecs(specs []string) ([]string, error) {
	ranged := regexp.MustCompile(`^(.*\^)([0-9]+)-([0-9]+)$`)
	var out []string
	for _, spec := range specs {
		m := ranged.FindStringSubmatch(spec)
		if m == nil {
			out = append(out, spec)
			continue
		}
		first, err1 := strconv.Atoi(m[2])
		last, err2 := strconv.Atoi(m[3])
		if err1 != nil || err2 != nil || max(first-last, last-first) > maxRange {
			return nil, refusef("range %s is too long", spec)
		}
		step := 1
		if first > last {
			step = -1
		}
		for i := first; i != last+step; i += step {
			out = append(out, m[1]+strconv.Itoa(i))
		}
	}
	return out, nil
}
