package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// targetSpec is what a user calls a place in a bundle's contents:
// [ADDRESS::][WORKSHEET//]BUNDLE[/SUBPATH].
type targetSpec struct {
	instance, worksheet, bundle, subpath string
}

// parseTarget parses a target without a key (codalab/lib/cli_util.py: parse_target_spec).
func parseTarget(spec string) (targetSpec, error) {
	var t targetSpec
	rest := spec
	if instance, after, ok := splitInstance(rest); ok {
		t.instance, rest = instance, after
	}
	if worksheet, after, ok := strings.Cut(rest, "//"); ok {
		t.worksheet, rest = worksheet, after
	}
	t.bundle, t.subpath, _ = strings.Cut(rest, "/")
	if t.bundle == "" {
		return t, usagef("%q names no bundle", spec)
	}
	return t, nil
}

// splitKey parts KEY:TARGET; a "::" is not what ends a key (codalab/lib/cli_util.py:
// parse_key_target).
func splitKey(spec string) (key, target string, keyed bool, err error) {
	target = spec
	if i := strings.IndexByte(spec, ':'); i >= 0 && !strings.HasPrefix(spec[i+1:], ":") {
		key, target, keyed = spec[:i], spec[i+1:], true
	}
	if target == "" {
		return "", "", false, usagef("target_spec (%s) in wrong format. "+
			"Please provide a valid target_spec in the format of "+
			"[<key>]:[<worksheet>//](<uuid>|<name>|^<index>)[/<subpath within bundle>].", spec)
	}
	return key, target, keyed, nil
}

// target resolves a target on the worksheet that worksheetSpec names (bundle_cli.py:
// resolve_target).
func (c *cli) target(ctx context.Context, worksheetSpec, spec string) (*place, codalab.Target, error) {
	t, err := parseTarget(spec)
	if err != nil {
		return nil, codalab.Target{}, err
	}
	if t.instance != "" {
		worksheetSpec, t.worksheet = t.instance+"::"+t.worksheet, ""
	}
	at, err := c.place(worksheetSpec)
	if err != nil {
		return nil, codalab.Target{}, err
	}
	at = at.other(t.worksheet)
	uuids, err := at.resolve(ctx, []string{t.bundle})
	if err != nil {
		return nil, codalab.Target{}, err
	}
	return at, codalab.Target{BundleUUID: uuids[0], Subpath: t.subpath}, nil
}

// resolve turns bundle specs into uuids; whole uuids need no call.
func (p *place) resolve(ctx context.Context, specs []string) ([]string, error) {
	uuids := make([]string, len(specs))
	var ask []string
	for i, spec := range specs {
		if codalab.IsUUID(spec) {
			uuids[i] = spec
		} else {
			ask = append(ask, spec)
		}
	}
	if len(ask) == 0 {
		return uuids, nil
	}
	worksheet, err := p.worksheet(ctx)
	if err != nil {
		return nil, err
	}
	found, err := p.Bundles(ctx, worksheet, ask)
	if err != nil {
		return nil, err
	}
	if len(found) != len(ask) {
		return nil, usagef("the server found %d bundles for %s", len(found), strings.Join(ask, " "))
	}
	for i, next := 0, 0; i < len(uuids); i++ {
		if uuids[i] == "" {
			uuids[i] = found[next].UUID
			next++
		}
	}
	return uuids, nil
}

// maxRange bounds what a user's slip of the finger may ask for.
const maxRange = 10000

// expandSpecs writes ranges out: a^1-3 is a^1 a^2 a^3 (codalab/lib/spec_util.py:
// expand_specs).
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
			return nil, usagef("range %s is too long", spec)
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
