package main

import (
	"context"
	"errors"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// mimicry makes bundles by analogy with others (codalab/lib/bundle_util.py: mimic_bundles).
type mimicry struct {
	*cli
	*workspace
	options mimicOptions
	// sheet is the worksheet of the new bundles.
	sheet, name string
	// inputs are the bundles to replace. output is the bundle to make again; if it is empty, all
	// descendants of the inputs are made again.
	inputs []string
	output string

	infos map[string]client.BundleInfo // those that are known
	order []string                     // parents before their children, as far as they were looked for
	// became maps old bundles to their replacements.
	became     map[string]string
	downstream map[string]bool // bundles that the inputs are, or are part of
	created    map[string]bool // new bundles
	plan       []planStep
}

func (m *mimicry) makeAll(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	wanted := m.order
	if m.output != "" {
		wanted = []string{m.output}
	}
	var err error
	for _, uuid := range wanted {
		if _, err = m.make(ctx, uuid); err != nil {
			break
		}
	}
	if m.options.dryRun || m.options.shadow || len(m.plan) == 0 {
		return err
	}
	// Continue after an error or an interrupt: otherwise the new bundles would be on no worksheet.
	longer, cancel := outlive(ctx, cleanupLimit)
	defer cancel()
	if failed := m.addToWorksheet(longer); failed != nil {
		m.warn("The new bundles are on no worksheet: cl add bundle shows them.")
		return errors.Join(err, failed)
	}
	return err
}

// load gets the output, or else the inputs' descendants, and all bundles that these depend on.
func (m *mimicry) load(ctx context.Context) error {
	var found []client.BundleInfo
	var err error
	if m.output != "" {
		found, err = m.Bundles(ctx, m.sheet, []string{m.output})
	} else {
		found, err = m.Descendants(ctx, m.inputs, m.options.depth)
	}
	if err != nil {
		return err
	}
	var level []string
	for _, b := range found {
		m.infos[b.UUID] = b
		level = append(level, b.UUID)
	}
	m.order = level
	visited := map[string]bool{}
	for range m.options.depth {
		var parents []string
		for _, uuid := range level {
			if visited[uuid] {
				continue
			}
			visited[uuid] = true
			if _, ok := m.infos[uuid]; !ok {
				if m.infos[uuid], err = m.Bundle(ctx, uuid); err != nil {
					return err
				}
			}
			for _, d := range m.infos[uuid].Dependencies {
				if _, ok := m.infos[d.ParentUUID]; !ok {
					parents = append(parents, d.ParentUUID)
				}
			}
		}
		m.order = append(slices.Clone(parents), m.order...)
		level = parents
	}
	return nil
}

// make returns the bundle that replaces an old one: a new one if the old one depends on an input, or is
// the output and there are no inputs.
func (m *mimicry) make(ctx context.Context, uuid string) (string, error) {
	if became, ok := m.became[uuid]; ok {
		return became, nil
	}
	old, ok := m.infos[uuid]
	if !ok {
		return uuid, nil // further back than depth
	}
	m.became[uuid] = uuid // also ends a circle of dependencies
	changed := len(m.inputs) == 0 && uuid == m.output
	dependencies := make([]codalab.Dependency, 0, len(old.Dependencies))
	for _, d := range old.Dependencies {
		parent, err := m.make(ctx, d.ParentUUID)
		if err != nil {
			return "", err
		}
		changed = changed || m.downstream[d.ParentUUID]
		dependencies = append(dependencies, codalab.Dependency{ChildPath: d.ChildPath, ParentUUID: parent, ParentPath: d.ParentPath})
	}
	if !changed {
		return uuid, nil
	}
	if old.Type != codalab.TypeRun && old.Type != codalab.TypeMake {
		return "", refusef("Can't mimic %s since it is not make or run", uuid)
	}
	step := planStep{Old: old.Bundle, Name: m.metadata(old).String("name")}
	became := ""
	if !m.options.dryRun {
		b, err := m.makeLike(ctx, old, dependencies)
		if err != nil {
			return "", err
		}
		step.New, became = &b, b.UUID
		m.created[became] = true
	}
	m.plan = append(m.plan, step)
	m.downstream[uuid] = true
	m.became[uuid] = became
	return became, nil
}

// makeLike makes a bundle like an old one with other dependencies; with --memoize it may find an existing
// one.
func (m *mimicry) makeLike(ctx context.Context, old client.BundleInfo, dependencies []codalab.Dependency) (codalab.Bundle, error) {
	b := client.NewBundle{
		Worksheet: m.sheet, Type: old.Type, Metadata: m.metadata(old), Dependencies: dependencies, Detached: !m.options.shadow,
		Command: old.CommandText(),
	}
	if m.options.shadow {
		b.Shadow = old.UUID
	}
	if m.options.memoize && old.Type == codalab.TypeRun {
		same, err := m.SameRuns(ctx, b.Command, dependencies)
		if err != nil {
			return codalab.Bundle{}, err
		}
		if len(same) > 0 {
			return same[len(same)-1].Bundle, nil
		}
	}
	uuid, err := m.create(ctx, m.workspace, b)
	return codalab.Bundle{UUID: uuid, Type: b.Type, Metadata: b.Metadata}, err
}

// metadata returns the metadata for the copy of an old bundle.
func (m *mimicry) metadata(old client.BundleInfo) codalab.Metadata {
	metadata := old.MetadataLike(m.options.metadata)
	if m.name != "" {
		if old.UUID != m.output {
			metadata["name"] = m.name + "-" + old.Metadata.String("name")
		} else {
			metadata["name"] = m.name
		}
	}
	if old.Type == codalab.TypeRun {
		m.options.resume(metadata)
	}
	return metadata
}

// addToWorksheet shows the new bundles on the worksheet. It copies the texts and directives right before
// the old bundle, such as its heading.
func (m *mimicry) addToWorksheet(ctx context.Context) error {
	anchor := m.output
	if anchor == "" && len(m.inputs) > 0 {
		anchor = m.inputs[0]
	}
	hosts, err := m.SearchWorksheets(ctx, "bundle="+anchor)
	if err != nil {
		return err
	}
	var items []client.Item
	added := map[string]bool{}
	if len(hosts) > 0 {
		host := hosts[0].UUID
		if slices.ContainsFunc(hosts, func(w client.Worksheet) bool { return w.UUID == m.sheet }) {
			host = m.sheet
		}
		w, err := m.WorksheetItems(ctx, host)
		if err != nil {
			return err
		}
		items = m.counterparts(w.Items, added)
	}
	for _, step := range m.plan {
		if !added[step.New.UUID] {
			items = append(items, bundleItem(step.New.UUID))
		}
	}
	return m.AddItems(ctx, m.sheet, items, false)
}

// counterparts returns the new worksheet items. Each old bundle among items gives one for its new bundle,
// after copies of the texts and directives right before it.
func (m *mimicry) counterparts(items []client.Item, added map[string]bool) []client.Item {
	var list, prelude []client.Item
	for _, item := range items {
		if item.Type == codalab.ItemBundle && item.Bundle != nil {
			if became := m.became[item.Bundle.UUID]; m.created[became] {
				list = append(append(list, prelude...), bundleItem(became))
				added[became] = true
			}
		}
		if item.Type == codalab.ItemMarkup && item.Value != "" || item.Type == codalab.ItemDirective {
			prelude = append(prelude, client.Item{WorksheetItem: codalab.WorksheetItem{Type: item.Type, Value: item.Value}})
		} else {
			prelude = nil
		}
	}
	return list
}
