package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const sweepHelp = `Run a command many times, with other settings each time, as one sweep:

  cl run --each lr=0.1,0.01 --each seed=1..4 'python train.py --lr {lr} --seed {seed}'

makes eight runs, and prints the name of the sweep. It is a worksheet, which can
be shared and shown as any other. The same command again makes nothing twice: it
only goes on where it was interrupted.

  --each lr=0.1,0.01      a list
  --each seed=1..4        a range; 0.1..0.5..0.1 has a step, 01..10 keeps zeros
  --zip                   the first values together, then the second ones, ...
  --each-line FILE        {line} is a line of the file; - is standard input.
                          A .csv or .tsv file names the settings in its first
                          line, a .jsonl file in each. lr,seed=FILE names them
  --sample 20             20 members by chance. A setting can be a range then:
                          lr=log:1e-5..1e-1, or drop=0.1..0.5. The same command
                          draws the same ones; --sample-seed N draws others
  --sweep NAME            a name for the sweep; -n is that of its runs
  --max-parallel 8        start at most 8 of its runs at a time

A setting can stand in the command, in the name, in tags, and in requests, as in
--request-gpus {gpus}. Braces around other words stay as they are; {{lr}} stands
for {lr}.

  cl sweep ls             your sweeps
  cl sweep show NAME      its members: settings, states, and fields after -f, as
                          -f /stats.json:acc; --csv for a table of a program
  cl sweep add NAME --each seed=5..8
                          more settings; those not named keep all their values
  cl sweep add NAME --missing
                          the members that were never made, or were removed;
                          --failed and --killed also make those again whose
                          newest run failed or was killed
  cl sweep edit NAME --max-parallel 4
                          another limit; 0 is none
  cl sweep kill NAME      end its runs
  cl sweep rm NAME        delete its runs and the sweep

Its name also stands for its runs in cl wait, kill, rm, perm and chown.`

// sweepCommand has no counterpart in CodaLab's own cl.
func (c *cli) sweepCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sweep (ls | show <sweep> | add <sweep> | edit <sweep> | kill <sweep> | rm <sweep>)", Short: "Many runs of one command, with other settings each",
		Long: sweepHelp, Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeInTurn(completeWords("add", "edit", "kill", "ls", "rm", "show"), c.completeWorksheets),
	}
	v := &sweepVerbs{cli: c, cmd: cmd, sweepFlags: gridFlags(cmd.Flags())}
	flags := cmd.Flags()
	flags.BoolVar(&v.missing, "missing", false, "add: make the members that have no run")
	flags.BoolVar(&v.again.failed, "failed", false, "add: also those whose newest run failed")
	flags.BoolVar(&v.again.killed, "killed", false, "add: also those whose newest run was killed")
	flags.StringVarP(&v.fields, "field", "f", "", "show: also these comma-separated fields")
	_ = cmd.RegisterFlagCompletionFunc("field", completeFields) // the flag is there
	flags.BoolVar(&v.csv, "csv", false, "show: print comma-separated values")
	flags.BoolVar(&v.force, "force", false, "rm: also runs on which other bundles depend, which then lack them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args) }
	return cmd
}

// sweepVerbs are the verbs of cl sweep.
type sweepVerbs struct {
	*cli
	cmd *cobra.Command
	*sweepFlags
	missing    bool
	again      remake
	fields     string
	csv, force bool
}

// verbFlags returns the flags that a verb takes; false for an unknown verb.
func verbFlags(verb string) ([]string, bool) {
	flags, ok := map[string][]string{
		"ls": {}, "kill": {}, "rm": {"force"}, "show": {"field", "csv"}, "edit": {"max-parallel"},
		"add": {"each", "each-line", "zip", "sample", "sample-seed", "missing", "failed", "killed"},
	}[verb]
	return flags, ok
}

func (v *sweepVerbs) run(ctx context.Context, args []string) error {
	verb := args[0]
	taken, known := verbFlags(verb)
	if !known {
		verbs := []string{"add", "edit", "kill", "ls", "rm", "show"}
		return refusef("cl sweep %s is not supported%s. Only the following subcommands are supported: 'cl sweep %s'.",
			verb, argparse.DidYouMean("", argparse.Nearest(verb, verbs)), strings.Join(verbs, "', 'cl sweep "))
	}
	all, _ := verbFlags("add")
	for _, name := range slices.Concat(all, []string{"field", "csv", "force", "max-parallel"}) {
		if v.flags.Changed(name) && !slices.Contains(taken, name) {
			return refusef("cl sweep %s takes no --%s.", verb, name)
		}
	}
	switch {
	case verb == "ls" && len(args) == 1:
		return v.list(ctx)
	case verb == "ls":
		return refusef("cl sweep ls lists all your sweeps; cl sweep show %s shows one.", args[1])
	case len(args) == 1:
		return refusef("cl sweep %s needs the name of a sweep; cl sweep ls lists yours.", verb)
	}
	if verb == "show" {
		return v.show(ctx, args[1])
	}
	s, err := v.open(ctx, args[1], sweepKeys())
	if err != nil {
		return err
	}
	switch verb {
	case "add":
		return v.add(ctx, s)
	case "edit":
		return v.edit(ctx, s)
	case "kill":
		going := map[string]bool{}
		for _, uuid := range s.unfinished() {
			going[uuid] = true
		}
		return v.killAll(ctx, s.workspace, s.unfinished(), going)
	}
	return v.remove(ctx, s)
}

// open returns the sweep that a spec names. For keys see readSweep.
func (v *sweepVerbs) open(ctx context.Context, spec string, keys []string) (*sweep, error) {
	at, uuid, err := v.openWorksheet(ctx, spec)
	if err != nil {
		return nil, err
	}
	s, err := at.readSweep(ctx, uuid, keys)
	if err == nil && !s.sheet.IsSweep() {
		err = refusef("%s is a worksheet, and no sweep; cl sweep ls lists yours.", s.sheet.Name)
	}
	return s, err
}

// list lists the user's sweeps.
func (v *sweepVerbs) list(ctx context.Context) error {
	at, err := v.workspace("")
	if err != nil {
		return err
	}
	found, err := at.SearchWorksheets(ctx, "tag="+codalab.SweepMark, ".mine", ".limit=10000")
	if err != nil {
		return err
	}
	views := []worksheetRow{}
	var table [][]string
	for _, w := range found {
		title := ""
		if w.Title != nil {
			title = strings.TrimPrefix(*w.Title, "Sweep: ")
		}
		views = append(views, viewWorksheet(w))
		table = append(table, []string{w.Name, strings.ReplaceAll(w.DateLastModified[:min(19, len(w.DateLastModified))], "T", " "), title})
	}
	if v.asJSON {
		return v.printJSON(views)
	}
	if len(found) == 0 {
		v.warn("You have no sweeps; cl help sweep tells how to make one.")
		return nil
	}
	return printTable(v.Stdout, []column{{name: "sweep"}, {name: "changed (UTC)"}, {name: "command"}}, table)
}

// add adds members to a sweep, or makes the missing ones.
func (v *sweepVerbs) add(ctx context.Context, s *sweep) error {
	again := v.again.failed || v.again.killed
	switch {
	case s.definition.revision == 0:
		return refusef("Sweep %s has no definition, because its making was interrupted at once: repeat the command that made it.", s.sheet.Name)
	case !v.given() && !v.missing && !again:
		return refusef("cl sweep add needs new settings, as --each seed=5..8, or --missing, --failed or --killed.")
	case v.given() && (v.missing || again):
		return refusef("--missing, --failed and --killed make members that the sweep has: they cannot be used with --each or --each-line.")
	case !v.given():
		if err := v.checkAlone("zip", "sample", "sample-seed"); err != nil {
			return err
		}
	}
	members, err := s.definition.members()
	if err != nil {
		return err
	}
	if v.given() {
		if members, err = v.extend(ctx, s, members); err != nil {
			return err
		}
		if s, err = s.readSweep(ctx, s.sheet.UUID, sweepKeys()); err != nil {
			return err
		}
	}
	made, err := v.makeMissing(ctx, s, members, v.again)
	if err != nil {
		return v.unfinishedSweep(ctx, s, false, err)
	}
	return v.printSweepMade(s, made, len(members), "")
}

// extend adds a grid to the definition of a sweep, and returns its members. Settings that the flags do not name have all
// the values that they have together in the sweep.
func (v *sweepVerbs) extend(ctx context.Context, s *sweep, members []grid.Member) ([]grid.Member, error) {
	g, err := v.grid(v.cli, len(s.definition.Grids))
	if err != nil {
		return nil, err
	}
	given, err := g.SettingNames()
	if err != nil {
		return nil, refusef("%s", codalab.Sentence(err.Error()))
	}
	names, err := s.definition.names()
	if err != nil {
		return nil, err
	}
	for _, name := range given {
		if !slices.Contains(names, name) {
			return nil, refusef("Sweep %s has no setting %s%s; it has %s.", s.sheet.Name, name,
				argparse.DidYouMean("", argparse.Nearest(name, names)), strings.Join(names, ", "))
		}
	}
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(given, name) })
	if len(others) > 0 {
		if g.Zip {
			return nil, refusef("--zip needs all settings of the sweep: %s.", strings.Join(names, ", "))
		}
		g.Tables = append(g.Tables, grid.Project(members, others))
	}
	wider := s.definition.sweepDefinition
	wider.Grids = append(slices.Clone(wider.Grids), g)
	if _, err := wider.members(); err != nil {
		return nil, err
	}
	fresh, err := wider.newMembers(g)
	if err != nil {
		return nil, err
	}
	for _, m := range fresh {
		if _, err := wider.run(m); err != nil {
			return nil, err
		}
	}
	if s.definition.has(g) { // adding it was interrupted
		return fresh, s.removeItems(ctx, s.definition.stale)
	}
	return fresh, s.define(ctx, wider)
}

// edit changes the bound of a sweep.
func (v *sweepVerbs) edit(ctx context.Context, s *sweep) error {
	if !v.flags.Changed("max-parallel") {
		return refusef("cl sweep edit changes --max-parallel; cl wedit %s changes the name, the title and the tags.", s.sheet.Name)
	}
	if v.parallel < 0 {
		return refusef("--max-parallel wants a number of runs, or 0 for no limit, and not %d.", v.parallel)
	}
	if err := s.checkParallel(ctx, max(v.parallel, 1)); err != nil {
		return err
	}
	tags := codalab.WithMaxParallel(s.sheet.Tags, v.parallel)
	if err := s.UpdateWorksheet(ctx, client.WorksheetChange{UUID: s.sheet.UUID, WorksheetEdit: codalab.WorksheetEdit{Tags: &tags}}); err != nil {
		return err
	}
	return v.printResult(named{s.sheet.UUID}, "%s", s.sheet.Name)
}

// unfinished returns the runs of a sweep that have not ended.
func (s *sweep) unfinished() (uuids []string) {
	for _, b := range sweepRuns(s.sheet) {
		if !b.State.Final() {
			uuids = append(uuids, b.UUID)
		}
	}
	return uuids
}

// remove deletes a sweep with its runs.
func (v *sweepVerbs) remove(ctx context.Context, s *sweep) error {
	uuids := []string{}
	for _, b := range sweepRuns(s.sheet) {
		uuids = append(uuids, b.UUID)
	}
	if left := s.unfinished(); len(left) > 0 {
		return refusef("%s of sweep %s have not ended: cl sweep kill %s ends them.", termtext.Count(int64(len(left)), "run"), s.sheet.Name, s.sheet.Name)
	}
	if len(uuids) > 0 {
		if _, err := s.DeleteBundles(ctx, uuids, client.DeleteOptions{Force: v.force}); err != nil {
			return err
		}
	}
	if err := s.DeleteWorksheet(ctx, s.sheet.UUID, true); err != nil {
		return err
	}
	return v.printUUIDs(uuids)
}
