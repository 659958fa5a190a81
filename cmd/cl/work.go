package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const workHelp = `Show or switch the current server and worksheet.

  work                        show them
  work <worksheet>            switch to a worksheet of the current server
  work <address>::            switch to the home worksheet on a server
  work <address>::<worksheet> switch to a worksheet on a server
  work --private [<name>]     make a worksheet that nobody else can read (by
                              default private-<user>), and switch to it; what
                              you upload and run there is private, too

Name a worksheet by its uuid, the beginning of it, or its name; / is your home
worksheet. cl keeps the choice in $CODALAB_HOME (~/.codalab) for all your
terminals; set CODALAB_SESSION to any name for a choice of its own.`

// workCommand is bundle_cli.py: do_work_command.
func (c *cli) workCommand() *cobra.Command {
	var uuidOnly, private bool
	cmd := &cobra.Command{
		Use:     "work [[<address>::]<worksheet>]",
		Aliases: []string{"w"},
		Short:   "Show or switch the current server and worksheet",
		Long:    workHelp,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := ""
			if len(args) > 0 {
				spec = args[0]
			}
			if private {
				return c.workPrivately(cmd.Context(), spec, uuidOnly)
			}
			return c.switchWorksheet(cmd.Context(), spec, uuidOnly)
		},
		ValidArgsFunction: c.completeWorksheets,
	}
	cmd.Flags().BoolVarP(&uuidOnly, "uuid-only", "u", false, "print only the worksheet's uuid")
	cmd.Flags().BoolVar(&private, "private", false, "make a worksheet that nobody else can read, and switch to it")
	return cmd
}

func (c *cli) switchWorksheet(ctx context.Context, spec string, uuidOnly bool) error {
	at, err := c.workspace(spec)
	if err != nil {
		return err
	}
	w, err := at.fetch(ctx)
	if err != nil {
		return err
	}
	text := "Currently on worksheet: "
	if spec != "" {
		// CodaLab's own server finds worksheets by name that the user may not read.
		if w, err = at.Worksheet(ctx, w.UUID); err != nil {
			return err
		}
		if err := c.switchTo(session{Address: at.Address(), Worksheet: w.UUID}); err != nil {
			return err
		}
		text = "Switched to worksheet: "
	}
	switch {
	case uuidOnly:
		return c.printUUID(w.UUID)
	case c.asJSON:
		return c.printJSON(map[string]string{"address": at.Address(), "uuid": w.UUID, "name": w.Name})
	}
	return c.print(text, worksheetURL(at.Address(), w.WorksheetName))
}

// workPrivately makes a worksheet of the user alone, and switches to it. One of this name that is there already must be
// the user's alone.
func (c *cli) workPrivately(ctx context.Context, spec string, uuidOnly bool) error {
	address, name, explicit := codalab.SplitInstance(spec)
	if explicit {
		address += "::"
	} else {
		address = ""
	}
	at, err := c.workspace(address)
	if err != nil {
		return err
	}
	me, err := at.User(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		name = "private-" + me.UserName
	}
	if err := checkName(name); err != nil {
		return err
	}
	w, err := at.FindWorksheet(ctx, "", name)
	made := isNotFound(err)
	if made {
		w, err = at.CreateWorksheet(ctx, name)
	}
	if err != nil {
		return err
	}
	if err := c.checkPrivate(ctx, at, me, w, made); err != nil {
		return err
	}
	return c.switchWorksheet(ctx, at.Address()+"::"+w.UUID, uuidOnly)
}

// checkPrivate fails if others may read a worksheet. It takes their permissions on a worksheet that was just made, and
// removes the worksheet if that fails.
func (c *cli) checkPrivate(ctx context.Context, at *workspace, me codalab.User, w client.Worksheet, made bool) error {
	now, err := at.WorksheetAccess(ctx, w.UUID)
	if made {
		for _, p := range now.GroupPermissions {
			if err == nil {
				err = at.SetWorksheetPermission(ctx, w.UUID, p.GroupID, codalab.PermissionNone)
			}
		}
		if err == nil {
			now, err = at.WorksheetAccess(ctx, w.UUID)
		}
	}
	private := now.Owner != nil && now.Owner.ID == me.ID && len(now.GroupPermissions) == 0
	switch {
	case err == nil && private:
		return nil
	case made:
		err = errors.Join(err, at.DeleteWorksheet(ctx, w.UUID, true))
		return fmt.Errorf("worksheet %s could not be made private: %w", w.Name, cmp.Or(err, errors.New("others can still read it")))
	case err != nil:
		return err
	}
	return refusef("Worksheet %s is %s: choose another name, or take the permissions back with cl wperm.", w.Name, codalab.Audience{Me: me, Owner: now.Owner, Granted: now.GroupPermissions})
}

// fetch returns the worksheet itself.
func (w *workspace) fetch(ctx context.Context) (client.Worksheet, error) {
	if codalab.IsUUID(w.spec) {
		return w.Worksheet(ctx, w.spec)
	}
	return w.FindWorksheet(ctx, w.base, w.spec)
}

// worksheetURL is a worksheet's address and name, for people (bundle_cli.py:
// worksheet_url_and_name).
func worksheetURL(address string, w codalab.WorksheetName) string {
	return fmt.Sprintf("%s/worksheets/%s (%s)", address, w.UUID, w.Name)
}

// bundleURL is the address of a bundle's page.
func bundleURL(address, uuid string) string { return address + "/bundles/" + uuid }

// worksheetFlag adds the flag for a worksheet other than the current one.
func (c *cli) worksheetFlag(cmd *cobra.Command) *string {
	flag := cmd.Flags().StringP("worksheet-spec", "w", "", "operate on this worksheet: [<address>::](<uuid>|<name>)")
	_ = cmd.RegisterFlagCompletionFunc("worksheet-spec", c.completeWorksheets) // the flag is there
	return flag
}
