package main

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// anyRun chooses all runs of a sweep.
func anyRun(client.BundleInfo) bool { return true }

// bundlesAndSweeps is bundleUUIDs for commands that also take sweeps: a spec that names no bundle, but a sweep, means
// the runs of the sweep that choose accepts. Bundles come first, so a new sweep changes the meaning of no spec.
func (c *cli) bundlesAndSweeps(ctx context.Context, worksheetSpec string, specs []string, choose func(client.BundleInfo) bool) (*workspace, []string, error) {
	at, targets, err := c.bundleTargets(ctx, worksheetSpec, specs)
	if err != nil {
		return nil, nil, err
	}
	uuids, unknown := at.resolveTargets(ctx, targets)
	if !isNotFound(unknown) {
		return at, uuids, unknown
	}
	runs := make([][]string, len(targets)) // of the targets that are sweeps
	var bundles []codalab.TargetSpec
	for i, t := range targets {
		sweep, ok, err := at.sweepNamed(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			bundles = append(bundles, t)
			continue
		}
		runs[i] = []string{}
		members := sweepRuns(sweep)
		for _, b := range members {
			if choose(b) {
				runs[i] = append(runs[i], b.UUID)
			}
		}
		if len(runs[i]) == 0 {
			return nil, nil, refusef("%s", noRuns(sweep, len(members)))
		}
	}
	if len(bundles) == len(targets) {
		return nil, nil, unknown
	}
	found, err := at.resolveTargets(ctx, bundles)
	if err != nil {
		return nil, nil, err
	}
	uuids = nil
	for _, list := range runs {
		if list == nil {
			list, found = found[:1], found[1:]
		}
		uuids = append(uuids, list...)
	}
	return at, uuids, nil
}

// noRuns says why a command has nothing to do with a sweep of n runs.
func noRuns(sweep client.Worksheet, n int) string {
	if n == 0 {
		return "Sweep " + sweep.Name + " has no runs; cl sweep add " + sweep.Name + " --missing makes them"
	}
	return "All runs of sweep " + sweep.Name + " have ended"
}

// sweepNamed returns the sweep that a target names, with its bundles; false if it names none.
func (w *workspace) sweepNamed(ctx context.Context, t codalab.TargetSpec) (client.Worksheet, bool, error) {
	if t.Worksheet != "" || t.Subpath != "" {
		return client.Worksheet{}, false, nil
	}
	found, err := w.FindWorksheet(ctx, w.base, t.Bundle)
	switch {
	case isNotFound(err) || codalab.IsStatus(err, 400): // no name of a worksheet, such as ^2, or a prefix of several
		return client.Worksheet{}, false, nil
	case err != nil:
		return client.Worksheet{}, false, err
	}
	sheet, err := w.WorksheetBundles(ctx, found.UUID, "name", "tags")
	return sheet, sheet.IsSweep(), err
}

// sweepRuns returns the runs of a sweep, in the order of its worksheet.
func sweepRuns(sheet client.Worksheet) []client.BundleInfo {
	seen := map[string]bool{}
	var runs []client.BundleInfo
	for _, b := range sheet.Bundles {
		if b.Metadata.Sweep() == sheet.UUID && !seen[b.UUID] {
			seen[b.UUID] = true
			runs = append(runs, b)
		}
	}
	return runs
}
