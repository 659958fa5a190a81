package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const infoHelp = `Show the state and the metadata of bundles.

With -f, print the values of these fields, separated by tabs, on a line for
each bundle. A field that begins with a slash is a file, or a value in it:
  cl info -f state,exitcode,failure_message ^
  cl info -f name,/stats.json:test/error ^1-5

With --watch, show it anew on the terminal until Ctrl-C. Without a terminal, or with
--json, print each change.

With --usage, say how much of its processors, memory and GPUs a run used, and draw
them over time.

With --provenance, print where the bundles came from: command, image, inputs, times,
places and outcome, as the metadata of an RO-Crate, which other programs read.

cl help fields lists the fields.`

// infoCommand is bundle_cli.py: do_info_command.
func (c *cli) infoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "info <bundle>...",
		Aliases: []string{"i"},
		Short:   "Show the state and the metadata of bundles",
		Long:    infoHelp,
		Args:    cobra.MinimumNArgs(1),
	}
	var o infoOptions
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	cmd.Flags().StringVarP(&o.fields, "field", "f", "", "print these comma-separated fields")
	_ = cmd.RegisterFlagCompletionFunc("field", completeFields) // the flag is there
	cmd.Flags().BoolVarP(&o.raw, "raw", "r", false, "print numbers and times unformatted, and also empty fields")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "also print children, worksheets, permissions and contents")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "show it anew on the terminal until Ctrl-C; elsewhere print each change")
	cmd.Flags().BoolVar(&o.history, "history", false, "print who made, shared, changed and killed the bundles, if you may change them")
	cmd.Flags().BoolVar(&o.provenance, "provenance", false, "print where the bundles came from, as an RO-Crate's metadata")
	cmd.Flags().BoolVar(&o.usage, "usage", false, "draw the processors, memory and GPUs that the bundles used over time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.showBundles(cmd.Context(), *worksheet, args, o)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

type infoOptions struct {
	fields       string
	raw, verbose bool
	history      bool
	watch        bool
	provenance   bool
	usage        bool
}

// alone returns the function that prints what is printed alone; nil if the flags ask for none of that.
func (o infoOptions) alone(c *cli) (show func(ctx context.Context, worksheet string, specs []string) error, err error) {
	chosen := ""
	for _, one := range []struct {
		flag string
		set  bool
		show func(context.Context, string, []string) error
	}{
		{"--history", o.history, c.showHistories}, {"--provenance", o.provenance, c.showProvenance}, {"--usage", o.usage, c.showUsages},
	} {
		switch {
		case !one.set:
			continue
		case chosen != "":
			return nil, refusef("%s and %s are each printed alone; choose one", chosen, one.flag)
		case o.fields != "" || o.raw || o.verbose || o.watch:
			return nil, refusef("%s is printed alone: leave out -f, -r, -v and --watch", one.flag)
		}
		chosen, show = one.flag, one.show
	}
	return show, nil
}

// showEach prints a view of each bundle that specs name: with --json a list of them, else one below the other with their
// uuids.
func showEach[V any](ctx context.Context, c *cli, worksheet string, specs []string, read func(at *workspace, uuid string) (V, error), show func(V) error) error {
	at, uuids, err := c.bundleUUIDs(ctx, worksheet, specs)
	if err != nil {
		return err
	}
	views := []V{}
	for _, uuid := range uuids {
		v, err := read(at, uuid)
		if err != nil {
			return err
		}
		views = append(views, v)
	}
	if c.asJSON {
		return c.printJSON(views)
	}
	for i, v := range views {
		if len(views) > 1 {
			if err := c.print(strings.Repeat("\n", min(i, 1)), uuids[i]); err != nil {
				return err
			}
		}
		if err := show(v); err != nil {
			return err
		}
	}
	return nil
}

// showBundles shows the bundles that specs name.
func (c *cli) showBundles(ctx context.Context, worksheet string, specs []string, o infoOptions) error {
	if show, err := o.alone(c); err != nil {
		return err
	} else if show != nil {
		return show(ctx, worksheet, specs)
	}
	if o.watch && o.verbose {
		return refusef("--watch shows how bundles change, and not their contents: leave out -v")
	}
	if o.fields != "" {
		if _, err := readFields(o.fields); err != nil {
			return err
		}
	}
	specs, err := expandSpecs(specs)
	if err != nil {
		return err
	}
	at, err := c.workspace(worksheet)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(specs, func(s string) bool { return strings.ContainsAny(s, "/:") }) { // on another worksheet or server
		typed := slices.Clone(specs)
		for i, s := range specs {
			specs[i] = twoSlashes(s)
		}
		if at, specs, err = c.bundleUUIDs(ctx, worksheet, specs); err != nil {
			return orFileHint(err, typed)
		}
	}
	if o.watch {
		return c.watchInfo(ctx, at, specs, o)
	}
	return c.printBundles(ctx, at, specs, o)
}

// orFileHint adds to an error about a worksheet that is not there that info takes no files.
func orFileHint(err error, specs []string) error {
	for _, s := range specs {
		if worksheet, file, ok := strings.Cut(s, "/"); ok && !strings.HasPrefix(file, "/") && isNotFound(err) && strings.Contains(err.Error(), "'"+worksheet+"'") {
			return &explained{error: err, text: fmt.Sprintf("%v: cl info takes WORKSHEET/BUNDLE, and cl cat %s prints a file of a bundle", explain(err), s)}
		}
	}
	return err
}

// twoSlashes returns WORKSHEET//BUNDLE for WORKSHEET/BUNDLE, which info alone takes, because the server of CodaLab's own cl
// resolves it (codalab/lib/canonicalize.py: get_bundle_uuid).
func twoSlashes(spec string) string {
	instance, rest := "", spec
	if before, after, ok := codalab.SplitInstance(spec); ok {
		instance, rest = before+"::", after
	}
	if worksheet, bundle, ok := strings.Cut(rest, "/"); ok && worksheet != "" && bundle != "" && !strings.HasPrefix(bundle, "/") {
		rest = worksheet + "//" + bundle
	}
	return instance + rest
}

func (c *cli) printBundles(ctx context.Context, at *workspace, specs []string, o infoOptions) error {
	fields, include, err := c.infoFields(o)
	if err != nil {
		return err
	}
	sheet, err := at.worksheetUUID(ctx)
	if err != nil {
		return err
	}
	bundles, err := at.Bundles(ctx, sheet, specs, include...)
	switch {
	case err != nil:
		return &placeError{error: err, at: at, specs: specs}
	case len(fields) > 0:
		return c.printFields(ctx, at, bundles, fields)
	case c.asJSON:
		return c.printJSON(viewBundles(bundles))
	}
	me, err := at.User(ctx)
	if err != nil {
		return err
	}
	for i, b := range bundles {
		if i > 0 {
			if err := c.print(); err != nil {
				return err
			}
		}
		if err := c.printInfo(ctx, at, me, b, o); err != nil {
			return err
		}
	}
	return nil
}

// infoFields returns the fields that the options name, if they do, and the related objects that these need.
func (c *cli) infoFields(o infoOptions) (fields, include []string, err error) {
	include = []string{client.IncludeOwner}
	if o.fields == "" {
		include = append(include, client.IncludePermissions)
	}
	if o.fields != "" {
		if fields, err = readFields(o.fields); err != nil {
			return nil, nil, err
		}
	}
	for _, more := range []string{client.IncludeChildren, client.IncludePermissions, client.IncludeWorksheets} {
		if (o.verbose || c.asJSON || slices.Contains(fields, more)) && !slices.Contains(include, more) {
			include = append(include, more)
		}
	}
	return fields, include, nil
}

func (c *cli) printFields(ctx context.Context, at *workspace, bundles []client.BundleInfo, fields []string) error {
	values, err := at.fileValues(ctx, bundles, fields)
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(viewFields(bundles, fields, values))
	}
	for _, b := range bundles {
		if err := c.print(fieldLine(b, fields, values)); err != nil {
			return err
		}
	}
	return nil
}

// fieldLine has the values of some fields of a bundle.
func fieldLine(b client.BundleInfo, fields []string, values map[fileField]any) string {
	var line []string
	for _, f := range fields {
		if isFile(f) {
			line = append(line, fileText(values[fileField{b.UUID, f}]))
		} else {
			line = append(line, codalab.Metadata{f: fieldOf(b, f)}.PythonText(f))
		}
	}
	return strings.Join(line, "\t")
}

// printInfo prints a bundle (bundle_cli.py: print_basic_info), and more of it with -v.
func (c *cli) printInfo(ctx context.Context, at *workspace, me codalab.User, b client.BundleInfo, o infoOptions) error {
	lines := c.infoLines(ctx, at, me, b, o)
	if err := c.printPainted(lines, b.State); err != nil || !o.verbose {
		return err
	}
	return c.printContents(ctx, at, b.UUID)
}

// infoLines is the text of a bundle.
func (c *cli) infoLines(ctx context.Context, at *workspace, me codalab.User, b client.BundleInfo, o infoOptions) []string {
	var lines []string
	add := func(key, value string) {
		// No line of a value looks like another key's.
		value = strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 28))
		lines = append(lines, fmt.Sprintf("%-26s: %s", termtext.OneLine(key), value))
	}
	for _, key := range []string{"bundle_type", "uuid", "state", "command", "frozen", "is_anonymous"} {
		v, _ := attribute(b.Bundle, key)
		add(key, orNone(v))
		if details := b.Details(); key == "state" && !o.raw && details != "" && b.State != codalab.StateReady {
			add("state_details", details)
		}
	}
	add("owner", userText(b.Owner))
	if b.Type != codalab.TypePrivate {
		add("access", codalab.Audience{Me: me, Owner: b.Owner, Granted: b.GroupPermissions}.String())
	}
	if b.OfferedTo != "" {
		add("offered_to", c.receiverText(ctx, at, b.Bundle))
	}
	known := map[string]bool{}
	for _, k := range codalab.MetadataKeys(b.Type) {
		known[k.Key] = true
		v, ok := b.Metadata[k.Key]
		switch {
		case k.Key == "store" || k.Key == "error_traceback": // for administrators only
		case o.raw:
			add(k.Key, orNone(v))
		case b.IsStale(k.Key):
		case ok && !empty(v):
			add(k.Key, codalab.FormatMetadata(k.Key, v, time.Local))
		}
	}
	addCost(b.Bundle, add)
	for _, key := range slices.Sorted(maps.Keys(b.Metadata)) {
		switch {
		case key == codalab.SecretsKey:
			add(key, codalab.FormatMetadata(key, b.Metadata[key], time.Local))
		case !known[key]:
			add(key, orNone(b.Metadata[key]))
		}
	}
	if len(b.Dependencies) > 0 {
		lines = append(lines, "dependencies:")
		for _, d := range b.Dependencies {
			parent := d.ParentName + "(" + d.ParentUUID + ")"
			if d.ParentPath != "" {
				parent += "/" + d.ParentPath
			}
			lines = append(lines, termtext.OneLine("  "+d.ChildPath+": "+parent))
		}
	}
	if o.verbose {
		lines = append(lines, relatedLines(at, b)...)
	}
	return lines
}

func empty(v any) bool {
	list, isList := v.([]any)
	return v == nil || v == "" || isList && len(list) == 0
}

func orNone(v any) string {
	if v == nil {
		return codalab.None
	}
	return codalab.PythonStr(v)
}

// relatedLines lists a bundle's children, worksheets and permissions (bundle_cli.py:
// print_children, print_host_worksheets, print_permissions).
func relatedLines(at *workspace, b client.BundleInfo) []string {
	lines := []string{"children:"}
	for _, child := range b.Children {
		lines = append(lines, termtext.OneLine("  "+bundleText(child)))
	}
	lines = append(lines, "host_worksheets:")
	for _, w := range b.HostWorksheets {
		lines = append(lines, termtext.OneLine("  "+worksheetURL(at.Address(), w)))
	}
	return append(lines,
		"permission: "+codalab.PermissionSpec(b.Permission),
		"group_permissions:",
		termtext.OneLine("  "+groupsText(b.GroupPermissions)))
}

// printContents prints the beginning of a bundle's contents (bundle_cli.py: print_contents).
func (c *cli) printContents(ctx context.Context, at *workspace, uuid string) error {
	show := func(title, subpath string) (codalab.TargetInfo, error) {
		if err := c.print("=== " + title + " preview ==="); err != nil {
			return codalab.TargetInfo{}, err
		}
		info, err := c.printTarget(ctx, at, codalab.Target{BundleUUID: uuid, Subpath: subpath}, catOptions{head: 10, to: c.Stdout})
		if isNotFound(err) {
			err = c.print(codalab.None)
		}
		return info, err
	}
	info, err := show("contents", "")
	if err != nil {
		return err
	}
	for _, item := range info.Contents {
		if item.Name == "stdout" || item.Name == "stderr" {
			if _, err := show(item.Name, item.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func isNotFound(err error) bool { return codalab.IsStatus(err, http.StatusNotFound) }
