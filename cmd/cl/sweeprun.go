package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// sweep is a sweep on a server.
type sweep struct {
	*workspace
	sheet client.Worksheet
	// definition has revision 0 if making the sweep was interrupted before it was written.
	definition storedDefinition
}

// sweepKeys are the keys of metadata that tell a run's place in a sweep.
func sweepKeys() []string { return []string{"name", "tags"} }

// readSweep reads a sweep, with its runs. For keys see client.WorksheetBundles.
func (w *workspace) readSweep(ctx context.Context, uuid string, keys []string) (*sweep, error) {
	sheet, err := w.WorksheetItems(ctx, uuid, keys...)
	if err != nil {
		return nil, err
	}
	return &sweep{workspace: w, sheet: sheet, definition: readDefinition(sheet.Items)}, nil
}

// createSweep makes a sweep and its runs. The same call again goes on with a sweep that was interrupted, because the name
// of the sweep and its definition are the same.
func (c *cli) createSweep(ctx context.Context, worksheet string, specs []string, command string, m codalab.Metadata, o runOptions, f *sweepFlags) error {
	definition, targets, err := c.defineSweep(specs, command, m, o, f)
	if err != nil {
		return err
	}
	src, err := c.readSource(ctx, o.upload)
	if err == nil {
		err = src.checkKeys(targets)
	}
	if err != nil {
		return err
	}
	members, err := c.checkedMembers(definition)
	if err != nil {
		return err
	}
	at, sheet, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	if err := at.checkParallel(ctx, f.parallel); err != nil {
		return err
	}
	parent, err := at.WorksheetAccess(ctx, sheet)
	if err != nil {
		return err
	}
	if parent.Permission != nil && *parent.Permission < codalab.PermissionAll || parent.Frozen != nil {
		return refusef("You cannot add a sweep to worksheet %s: cl work names another one.", parent.Name)
	}
	if definition.Dependencies, err = at.dependencies(ctx, targets); err != nil {
		return err
	}
	sent, err := src.sent(ctx, at, sheet)
	if err != nil {
		return err
	}
	withTags(definition.Metadata, sent.tags)
	definition.Dependencies = append(definition.Dependencies, sent.deps...)
	s, created, err := c.beginSweep(ctx, at, parent, definition, f)
	if err != nil {
		return err
	}
	made, err := c.makeMissing(ctx, s, members, remake{})
	if err == nil {
		err = c.linkSweep(ctx, s, parent.UUID)
	}
	if err != nil {
		return c.unfinishedSweep(ctx, s, created, err)
	}
	c.noteSweepReaders(ctx, s, made)
	if !c.asJSON || !o.wait { // the end of the wait is one value of JSON
		err = c.printSweepMade(s, made, len(members), sent.uuid)
	}
	if err != nil || !o.wait {
		return err
	}
	return c.waitForSweep(ctx, s)
}

// checkedMembers returns the members of a new sweep, after checking the run of each.
func (c *cli) checkedMembers(d sweepDefinition) ([]grid.Member, error) {
	members, err := d.members()
	if err != nil {
		return nil, err
	}
	for i, member := range members {
		run, err := d.run(member)
		if err != nil {
			return nil, err
		}
		if err := checkRequests(run.Metadata); err != nil {
			return nil, err
		}
		if i == 0 {
			c.warnOfSmallRequests(run.Metadata)
		}
	}
	return members, nil
}

// defineSweep reads a sweep's definition from the command line, without its dependencies, which it returns by name.
func (c *cli) defineSweep(specs []string, command string, m codalab.Metadata, o runOptions, f *sweepFlags) (sweepDefinition, []codalab.Input, error) {
	d := sweepDefinition{Command: command, Metadata: m}
	for name, set := range map[string]bool{"-m": o.memoize, "-e": o.edit, "-i": o.interactive, "-t": o.tail, "-a": o.afterSortKey != ""} {
		if set {
			return d, nil, refusef("%s is for one run, and not for a sweep.", name)
		}
	}
	g, err := f.grid(c, 0)
	if err != nil {
		return d, nil, err
	}
	d.Grids = []grid.Grid{g}
	if strings.TrimSpace(command) == "" {
		return d, nil, refusef("The command cannot be empty.")
	}
	names, err := d.names()
	if err != nil {
		return d, nil, err
	}
	targets, command, err := codalab.RunInputs(specs, command)
	if err != nil {
		return d, nil, err
	}
	for _, t := range targets {
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(t.Key+t.Target, "{"+name+"}") }) {
			return d, nil, refusef("A setting cannot choose a dependency, as in %s: name all of them, and let the command choose.", t.Target)
		}
	}
	d.Command = command
	if m.String("name") == "" {
		m["name"] = strings.TrimRight(defaultName(codalab.TypeRun, command), "-.")
	}
	return d, targets, d.check()
}

// beginSweep finds or makes the worksheet of a sweep, with its definition. created is set for a new one.
func (c *cli) beginSweep(ctx context.Context, at *workspace, parent client.Worksheet, d sweepDefinition, f *sweepFlags) (s *sweep, created bool, err error) {
	name, err := sweepName(ctx, at, d, f.name)
	if err != nil {
		return nil, false, err
	}
	found, err := at.FindWorksheet(ctx, "", name)
	switch {
	case isNotFound(err):
		if found, err = at.CreateWorksheet(ctx, name); err != nil {
			return nil, false, err
		}
		created = true
	case err != nil:
		return nil, false, err
	}
	if s, err = at.readSweep(ctx, found.UUID, sweepKeys()); err != nil {
		return nil, created, err
	}
	begun := s.definition.revision > 0 && s.sheet.IsSweep()
	switch {
	case begun && !sameDefinition(s.definition.sweepDefinition, d):
		return nil, false, refusef("Sweep %s exists with other settings or another command: cl sweep add %s adds settings to it, and --sweep NAME makes another one.", name, name)
	case begun:
		return s, false, nil
	case len(s.sheet.Items) > 0 && s.definition.revision == 0:
		return nil, false, refusef("%s is a worksheet, and no sweep: --sweep NAME makes a sweep of another name.", name)
	}
	if err := s.begin(ctx, parent, d, f.parallel); err != nil {
		return nil, created, err
	}
	s, err = at.readSweep(ctx, found.UUID, sweepKeys())
	return s, created, err
}

// sweepName returns the name of a new sweep. Names of worksheets are unique on a server, so it begins with the user's. The
// default ends with a digest of the definition: the same command again means the same sweep.
func sweepName(ctx context.Context, at *workspace, d sweepDefinition, asked string) (string, error) {
	if asked != "" {
		return asked, checkName(asked)
	}
	me, err := at.User(ctx)
	if err != nil {
		return "", err
	}
	text, err := d.encode()
	if err != nil {
		return "", err
	}
	names, err := d.names()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(text))
	base := strings.Trim(grid.NameOf(grid.Fill(d.Metadata.String("name"), inOrder(nil, names)), nil, maxMemberName), "-.")
	return defaultName("", me.UserName) + "-" + base + "-" + hex.EncodeToString(digest[:3]), nil
}

// sameDefinition reports whether a new sweep was begun with this definition.
func sameDefinition(old, wanted sweepDefinition) bool {
	a, err := old.encode()
	b, err2 := wanted.encode()
	return err == nil && err2 == nil && a == b
}

// begin makes a worksheet a sweep. Its readers are those of the worksheet where the user works, and its runs get them
// from it, so they are set first.
func (s *sweep) begin(ctx context.Context, parent client.Worksheet, d sweepDefinition, parallel int) error {
	wanted := map[string]int{}
	for _, p := range s.sheet.GroupPermissions {
		wanted[p.GroupID] = codalab.PermissionNone
	}
	for _, p := range parent.GroupPermissions {
		wanted[p.GroupID] = p.Permission
	}
	for _, p := range s.sheet.GroupPermissions {
		if wanted[p.GroupID] == p.Permission {
			delete(wanted, p.GroupID)
		}
	}
	for group, permission := range wanted {
		if err := s.SetWorksheetPermission(ctx, s.sheet.UUID, group, permission); err != nil {
			return err
		}
	}
	title := sweepTitle(d.Command)
	tags := codalab.WithMaxParallel([]string{codalab.SweepMark}, parallel)
	change := client.WorksheetChange{UUID: s.sheet.UUID, WorksheetEdit: codalab.WorksheetEdit{Title: &title, Tags: &tags}}
	if err := s.UpdateWorksheet(ctx, change); err != nil {
		return err
	}
	return s.define(ctx, d)
}

// sweepTitle returns the title of a sweep's worksheet. CodaLab's own server takes 255 characters of ASCII: after another one
// it fails each search that meets the worksheet.
func sweepTitle(command string) string {
	title := []rune("Sweep: " + termtext.OneLine(command))
	for i, c := range title {
		if c > '~' {
			title[i] = '?'
		}
	}
	if len(title) > 200 {
		return string(title[:200]) + "..."
	}
	return string(title)
}

// define writes a new definition, and then removes the old ones.
func (s *sweep) define(ctx context.Context, d sweepDefinition) error {
	items, err := d.items(s.definition.revision + 1)
	if err != nil {
		return err
	}
	if err := s.AddItems(ctx, s.sheet.UUID, items, false); err != nil {
		return err
	}
	return s.removeItems(ctx, slices.Concat(s.definition.items, s.definition.stale))
}

// removeItems removes items from the worksheet; there may be none.
func (s *sweep) removeItems(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.RemoveItems(ctx, s.sheet.UUID, ids)
}

// linkSweep shows the sweep on the worksheet where the user works, unless it does already.
func (c *cli) linkSweep(ctx context.Context, s *sweep, parent string) error {
	shown, err := s.SearchWorksheets(ctx, "worksheet="+s.sheet.UUID, ".limit=1000")
	if err != nil || slices.ContainsFunc(shown, func(w client.Worksheet) bool { return w.UUID == parent }) {
		return err
	}
	item := client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemWorksheet}, Worksheet: &s.sheet}
	return s.AddItems(ctx, parent, []client.Item{item}, false)
}

// checkParallel refuses a bound where the server knows none.
func (w *workspace) checkParallel(ctx context.Context, parallel int) error {
	if parallel == 0 {
		return nil
	}
	_, err := w.Queues(ctx)
	return onlyClServer(err, w, "it starts all runs of a sweep, and knows no --max-parallel")
}

// unfinishedSweep returns the error of a sweep that was not made completely. A sweep of which the server has refused the
// runs is removed.
func (c *cli) unfinishedSweep(ctx context.Context, s *sweep, created bool, err error) error {
	var call *codalab.Error
	if created && errors.As(err, &call) && call.Status >= http.StatusBadRequest && call.Status < http.StatusInternalServerError && !call.Transient() {
		if now, readErr := s.readSweep(ctx, s.sheet.UUID, sweepKeys()); readErr == nil && len(now.sheet.Bundles) == 0 {
			if s.DeleteWorksheet(ctx, s.sheet.UUID, true) == nil {
				return explainSecrets(ctx, s.workspace, s.definition.Metadata, err)
			}
		}
	}
	c.warn("cl: sweep %s is not complete. To go on: cl sweep add %s --missing", s.sheet.Name, s.sheet.Name)
	return err
}

// noteSweepReaders is noteReaders for the runs of a sweep.
func (c *cli) noteSweepReaders(ctx context.Context, s *sweep, made []client.BundleInfo) {
	if len(made) > 0 {
		first := made[0]
		first.GroupPermissions = nil // they were not asked for
		c.noteReaders(ctx, s.workspace, first)
	}
}

// sweepMade is the result of making runs of a sweep, in JSON.
type sweepMade struct {
	Sweep string   `json:"sweep"`
	UUID  string   `json:"uuid"`
	Made  []string `json:"made"`
	// Members is the number of members that were wanted. The others had runs already.
	Members int `json:"members"`
	// Upload is the bundle of the runs' directory, if they have one.
	Upload string `json:"upload,omitempty"`
}

// printSweepMade prints the name of a sweep, and on a terminal what was made.
func (c *cli) printSweepMade(s *sweep, made []client.BundleInfo, members int, uploaded string) error {
	result := sweepMade{Sweep: s.sheet.Name, UUID: s.sheet.UUID, Made: []string{}, Members: members, Upload: uploaded}
	for _, b := range made {
		result.Made = append(result.Made, b.UUID)
	}
	switch {
	case len(made) == members:
		c.printOnTerminal("%s; cl sweep show %s", termtext.Count(int64(len(made)), "run"), s.sheet.Name)
	default:
		c.warn("cl: %s of %d; the others are there already", termtext.Count(int64(len(made)), "new run"), members)
	}
	return c.printResult(result, "%s", s.sheet.Name)
}

// waitForSweep waits for the newest run of each member.
func (c *cli) waitForSweep(ctx context.Context, s *sweep) error {
	s, err := s.readSweep(ctx, s.sheet.UUID, sweepKeys())
	if err != nil {
		return err
	}
	var uuids []string
	newest := s.newest()
	for _, b := range sweepRuns(s.sheet) {
		if newest[grid.Member(b.Metadata.Settings()).Key()].UUID == b.UUID {
			uuids = append(uuids, b.UUID)
		}
	}
	return c.waitForAll(ctx, s.workspace, uuids, waitOptions{})
}
