package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const mimicHelp = `Make bundles again with other inputs, by analogy with existing bundles.

  mimic <run>        run <run> again
  mimic A B          make all bundles that depend on A again, with B in its place
  mimic A X B -n Y   only make the bundles that lead from A to X; the new X is called Y
  mimic A1 A2 B1 B2  B1 in place of A1, and B2 in place of A2

Other flags replace the old bundles' metadata. A run uses the same image as the
first time. Each new bundle is printed on standard error, the last one's uuid
on standard output.`

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
	// resume lets a run ask to be resumed, if the user asks for that.
	resume func(codalab.Metadata)
}

func (c *cli) mimicFlags(cmd *cobra.Command) func() mimicOptions {
	var o mimicOptions
	worksheet := c.worksheetFlag(cmd)
	read := metadataOverrides(cmd.Flags(), codalab.TypeRun)
	c.completeQueueFlag(cmd)
	secrets := c.secretFlag(cmd, "give runs your secret of this `name`, in place of the old runs' secrets; may be repeated")
	o.resume = resumeFlag(cmd.Flags())
	cmd.Flags().IntVar(&o.depth, "depth", 10, "the most steps between the old output and the old inputs")
	cmd.Flags().BoolVarP(&o.shadow, "shadow", "s", false, "put each new bundle right after the old one on the worksheet")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "i", false, "make nothing, and print the bundles that would be made")
	cmd.Flags().BoolVarP(&o.memoize, "memoize", "m", false, "use an existing run of the same command on the same inputs")
	o.addWaitFlags(cmd.Flags())
	return func() mimicOptions {
		o.worksheet, o.metadata = *worksheet, read()
		secrets(o.metadata)
		return o
	}
}

// planStep is a bundle that mimic made after another, or would make: then New is nil.
type planStep struct {
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
		return refusef("--depth must be at least 1")
	}
	if err := checkRequests(o.metadata); err != nil {
		return err
	}
	c.warnOfSmallRequests(o.metadata)
	if err := codalab.CheckMetadata(codalab.TypeRun, o.metadata, false); err != nil {
		return refusef("%v", err)
	}
	if err := checkResumes(o.metadata); err != nil {
		return err
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
	err = m.makeAll(ctx)
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
		return c.printResult([]struct{}{}, "Nothing to be done.")
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

func (c *cli) printPlan(plan []planStep) error {
	views := []planView{}
	for _, step := range plan {
		v := planView{Old: step.Old.UUID}
		if step.New != nil {
			v.New = &step.New.UUID
		}
		views = append(views, v)
	}
	return c.printResult(views, "None")
}

// endMimic waits for the last bundle if -W or -t asks for it, and prints its uuid.
func (c *cli) endMimic(ctx context.Context, at *workspace, plan []planStep, o mimicOptions) error {
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
