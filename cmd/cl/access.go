package main

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// isPublic reports whether everybody may read an object.
func isPublic(granted []codalab.GroupPermission) bool {
	for _, p := range granted {
		if p.GroupName == codalab.PublicGroup && p.Permission >= codalab.PermissionRead {
			return true
		}
	}
	return false
}

// printBundleAccess prints who may use bundles now. Their permissions are set already, so a failure is a warning.
func (c *cli) printBundleAccess(ctx context.Context, at *workspace, uuids []string) error {
	bundles, err := at.Bundles(ctx, "", uuids, client.IncludeOwner, client.IncludePermissions)
	if isNotFound(err) && len(uuids) > 1 { // one of them may not be read any more
		for _, uuid := range uuids {
			if err := c.printBundleAccess(ctx, at, []string{uuid}); err != nil {
				return err
			}
		}
		return nil
	}
	if isNotFound(err) {
		return c.print(uuids[0], " is no longer readable by you.")
	}
	if err != nil {
		c.warn("cl: who may read them now is not known: %v", explain(err))
		return nil
	}
	me, err := at.User(ctx)
	if err != nil {
		c.warn("cl: who may read them now is not known: %v", explain(err))
		return nil
	}
	for _, b := range bundles {
		text := "no longer readable by you"
		if b.Type != codalab.TypePrivate {
			text = codalab.Audience{Me: me, Owner: b.Owner, Granted: b.GroupPermissions}.String()
		}
		if err := c.print(bundleText(b.Bundle), " is ", text, "."); err != nil {
			return err
		}
	}
	return nil
}

// printWorksheetAccess is printBundleAccess for a worksheet.
func (c *cli) printWorksheetAccess(ctx context.Context, at *workspace, uuid string) error {
	w, err := at.WorksheetAccess(ctx, uuid)
	var me codalab.User
	if err == nil {
		me, err = at.User(ctx)
	}
	if err != nil {
		c.warn("cl: who may read it now is not known: %v", explain(err))
		return nil
	}
	text := codalab.Audience{Me: me, Owner: w.Owner, Granted: w.GroupPermissions}.String()
	return c.print(w.Name, " is ", text, ". New bundles on it will be, too; those that are there keep theirs.")
}

// noteReaders tells on standard error who may read a new bundle if that is everybody, once for each server and user.
func (c *cli) noteReaders(ctx context.Context, at *workspace, made client.BundleInfo) {
	state, err := c.load()
	to := at.Address() + " " + made.OwnerID
	if err != nil || state.ToldPublic[to] {
		return
	}
	if made.GroupPermissions == nil { // CodaLab's own server does not tell them yet
		if made, err = at.Bundle(ctx, made.UUID, client.IncludeOwner, client.IncludePermissions); err != nil {
			return // it is a note only
		}
	}
	if !isPublic(made.GroupPermissions) {
		return
	}
	me, err := at.User(ctx)
	if err != nil {
		return
	}
	c.warn("cl: bundle %s is %s, and so are all that you make on this worksheet.\n"+
		"cl: cl perm %s public none takes it back; cl work --private makes a worksheet for you alone. This is said once.",
		made.UUID, codalab.Audience{Me: me, Owner: made.Owner, Granted: made.GroupPermissions}, made.UUID)
	// If the state cannot be saved, the next bundle brings the note again.
	_ = c.update(func(s *stateFile) { s.ToldPublic[to] = true })
}
