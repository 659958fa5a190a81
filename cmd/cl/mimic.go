package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const mimicHelp = `Run again, by analogy: what was made of one bundle is made of another.

  mimic <run>        run <run> again
  mimic A B          all that depends on A is made again with B in its place
  mimic A X B -n Y   only what leads from A to X; the new X is called Y
  mimic A1 A2 B1 B2  B1 in place of A1, and B2 in place of A2

Other flags replace the old bundles' metadata. A run uses the very image that
it had the first time. Each new bundle is printed on standard error, the last
one's uuid on standard output.`

// mimicCommand is bundle_cli.py: do_mimic_command.
func (c *cli) mimicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mimic <bundle>...", Short: "Run again, also on other inputs", Long: mimicHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeBundles,
	}
	o := c.mimicFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.mimic(cmd.Context(), args, o()) }
	return cmd
}

// macroCommand is bundle_cli.py: do_macro_command.
func (c *cli) macroCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "macro <macro> <bundle>...", Short: "Run a recipe, kept as bundles, on other inputs",
		Long: `Use bundles as a recipe. The macro M is the bundle M-out, made of M-in1, M-in2,
and so on, and of M-in-NAME.

  macro M A B x:C   is   mimic M-in1 M-in2 M-in-x M-out A B C`,
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: c.completeBundles,
	}
	read := c.mimicFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := read()
		if o.metadata.String("name") == "" {
			o.metadata["name"] = "new" // else the new bundles would be part of the macro
		}
		var old, named, numbered, byName []string
		for _, spec := range args[1:] {
			if name, bundle, ok := strings.Cut(spec, ":"); ok {
				named, byName = append(named, args[0]+"-in-"+name), append(byName, bundle)
				continue
			}
			numbered = append(numbered, spec)
			old = append(old, fmt.Sprintf("%s-in%d", args[0], len(numbered)))
		}
		return c.mimic(cmd.Context(), slices.Concat(old, named, []string{args[0] + "-out"}, numbered, byName), o)
	}
	return cmd
}

type mimicOptions struct {
	runOptions
	worksheet               string
	depth                   int
	shadow, dryRun, memoize bool
	// metadata replaces that of the old bundles.
	metadata codalab.Metadata
}

func (c *cli) mimicFlags(cmd *cobra.Command) func() mimicOptions {
	var o mimicOptions
	worksheet := c.worksheetFlag(cmd)
	read := metadataOverrides(cmd.Flags(), codalab.TypeRun)
	cmd.Flags().IntVar(&o.depth, "depth", 10, "how many steps to look back from the old output for the old inputs")
	cmd.Flags().BoolVarP(&o.shadow, "shadow", "s", false, "put each new bundle right after the old one on the worksheet")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "i", false, "make nothing, and print what would be made")
	cmd.Flags().BoolVarP(&o.memoize, "memoize", "m", false, "use an existing run of the same command on the same inputs")
	o.addWaitFlags(cmd.Flags())
	return func() mimicOptions {
		o.worksheet, o.metadata = *worksheet, read()
		return o
	}
}

// made is a bundle that mimic made after another, or would make: then New is nil.
type made struct {
	Old  codalab.Bundle
	New  *codalab.Bundle
	Name string
}

func (c *cli) mimic(ctx context.Context, specs []string, o mimicOptions) error {
	name := o.metadata.String("name")
	delete(o.metadata, "name")
	if name != "" {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if o.depth < 1 {
		return usagef("--depth must be at least 1")
	}
	c.warnOfSmallRequests(o.metadata)
	if err := codalab.CheckMetadata(codalab.TypeRun, o.metadata, false); err != nil {
		return usagef("%v", err)
	}
	at, uuids, err := c.bundleUUIDs(ctx, o.worksheet, specs)
	if err != nil {
		return err
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	n := len(uuids) / 2
	m := mimicry{
		cli: c, workspace: at, options: o, sheet: sheet, name: name, inputs: uuids[:n],
		infos: map[string]client.BundleInfo{}, became: map[string]string{}, downstream: map[string]bool{}, created: map[string]bool{},
	}
	replacements := uuids[n:]
	if len(uuids)%2 == 1 {
		m.output, replacements = uuids[n], uuids[n+1:]
	}
	for i, old := range m.inputs {
		m.became[old] = replacements[i]
		m.downstream[old] = true
	}
	err = m.run(ctx)
	for _, step := range m.plan {
		text := step.Name + "(None)"
		if step.New != nil {
			text = bundleText(*step.New)
		}
		c.warn("%s => %s", bundleText(step.Old), text)
	}
	switch {
	case err != nil:
		return err
	case len(m.plan) == 0:
		return c.tell([]struct{}{}, "Nothing to be done.")
	case o.dryRun:
		return c.printPlan(m.plan)
	}
	return c.endMimic(ctx, at, m.plan, o)
}

// planView is a step of a mimicry in JSON.
type planView struct {
	Old string  `json:"old"`
	New *string `json:"new"`
}

func (c *cli) printPlan(plan []made) error {
	views := []planView{}
	for _, step := range plan {
		v := planView{Old: step.Old.UUID}
		if step.New != nil {
			v.New = &step.New.UUID
		}
		views = append(views, v)
	}
	return c.tell(views, "None")
}

// endMimic waits for the last bundle if -W or -t asks for it, and prints its uuid.
func (c *cli) endMimic(ctx context.Context, at *workspace, plan []made, o mimicOptions) error {
	last := plan[len(plan)-1].New.UUID
	if c.asJSON && !o.wait && !o.tail {
		return c.printPlan(plan)
	}
	failed := c.waitForRun(ctx, at, last, o.runOptions)
	if ctx.Err() != nil || c.asJSON {
		return failed
	}
	return errors.Join(c.print(last), failed)
}

// mimicry makes bundles by analogy with others (codalab/lib/bundle_util.py: mimic_bundles).
type mimicry struct {
	*cli
	*workspace
	options mimicOptions
	// sheet is the worksheet of the new bundles.
	sheet, name string
	// inputs are replaced; output is what to make again, empty for all that depends on the inputs.
	inputs []string
	output string

	infos map[string]client.BundleInfo // those that are known
	order []string                     // parents before their children, as far as they were looked for
	// became tells which new bundle takes the place of an old one.
	became     map[string]string
	downstream map[string]bool // bundles that the inputs are, or are part of
	created    map[string]bool // new bundles
	plan       []made
}

func (m *mimicry) run(ctx context.Context) error {
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
	// Also after an error or an interrupt: the new bundles would be on no worksheet.
	longer, cancel := outlive(ctx, cleanupLimit)
	defer cancel()
	if failed := m.addToWorksheet(longer); failed != nil {
		m.warn("The new bundles are on no worksheet: cl add bundle shows them.")
		return errors.Join(err, failed)
	}
	return err
}

// load gets the output and what it depends on, or the inputs' descendants and what they depend on.
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

// make returns the bundle that takes an old one's place: a new one if the old one depends on an input, or
// is the output without inputs.
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
	step := made{Old: old.Bundle, Name: m.metadata(old).String("name")}
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

// makeLike makes a bundle like an old one of other dependencies, or finds one with --memoize.
func (m *mimicry) makeLike(ctx context.Context, old client.BundleInfo, dependencies []codalab.Dependency) (codalab.Bundle, error) {
	b := client.NewBundle{
		Worksheet: m.sheet, Type: old.Type, Metadata: m.metadata(old), Dependencies: dependencies, Detached: !m.options.shadow,
	}
	if old.Command != nil {
		b.Command = *old.Command
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

// metadata is that of the bundle that is made after an old one.
func (m *mimicry) metadata(old client.BundleInfo) codalab.Metadata {
	metadata := codalab.Metadata{}
	maps.Copy(metadata, old.Metadata)
	if m.name != "" {
		if old.UUID != m.output {
			metadata["name"] = m.name + "-" + old.Metadata.String("name")
		} else {
			metadata["name"] = m.name
		}
	}
	if image := old.Metadata.String("docker_image"); old.Type == codalab.TypeRun && image != "" {
		metadata["request_docker_image"] = image
	}
	for _, k := range codalab.MetadataKeys(old.Type) {
		if k.Generated {
			delete(metadata, k.Key)
		}
		if v, ok := m.options.metadata[k.Key]; ok {
			metadata[k.Key] = v
		}
	}
	return metadata
}

// addToWorksheet shows the new bundles on the worksheet. What stands right before the old one on its
// worksheet, its heading for example, comes with it.
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

// counterparts are the items for the new bundles whose old ones are among a worksheet's items, each with
// the texts and directives before it.
func (m *mimicry) counterparts(items []client.Item, added map[string]bool) []client.Item {
	var list, prelude []client.Item
	for _, item := range items {
		if item.Type == client.ItemBundle && item.Bundle != nil {
			if became := m.became[item.Bundle.UUID]; m.created[became] {
				list = append(append(list, prelude...), bundleItem(became))
				added[became] = true
			}
		}
		if item.Type == client.ItemMarkup && item.Value != "" || item.Type == client.ItemDirective {
			prelude = append(prelude, client.Item{Type: item.Type, Value: item.Value})
		} else {
			prelude = nil
		}
	}
	return list
}
