package main

import (
	"context"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// historyView is a bundle's history in JSON.
type historyView struct {
	UUID    string                `json:"uuid"`
	History []codalab.BundleEvent `json:"history"`
}

// showHistories prints what users and the server did with bundles.
func (c *cli) showHistories(ctx context.Context, worksheet string, specs []string) error {
	return showEach(ctx, c, worksheet, specs, func(at *workspace, uuid string) (historyView, error) {
		events, err := at.History(ctx, uuid)
		return historyView{uuid, events}, onlyClServer(err, at, "it keeps no histories of bundles")
	}, func(v historyView) error { return c.printHistory(v.History) })
}

// printHistory prints a history, one line for each event.
func (c *cli) printHistory(events []codalab.BundleEvent) error {
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{clockTime(time.Unix(e.Time, 0)), eventUser(e), eventText(e)})
	}
	return printTable(c.Stdout, []column{{name: "time"}, {name: "user"}, {name: "action"}}, rows)
}

// eventUser is the name of an event's user. No user has a name with parentheses.
func eventUser(e codalab.BundleEvent) string {
	switch {
	case e.Server:
		return "(server)"
	case e.User.ID == "":
		return "-"
	}
	return e.User.Name
}

// eventText describes the action of a user or the server on a bundle.
func eventText(e codalab.BundleEvent) string {
	text := string(e.Action)
	switch e.Action {
	case codalab.ActionCreated:
		if e.Worksheet != nil {
			text += " on worksheet " + e.Worksheet.String() + ", " + grantedText(e.Groups)
		}
	case codalab.ActionUploaded:
		text += " contents"
	case codalab.ActionEmptied:
		text = "deleted the contents"
	case codalab.ActionEdited:
		text += " " + strings.Join(e.Keys, ", ")
	case codalab.ActionShared:
		text = sharedText(e.Groups)
	case codalab.ActionGave:
		text += " to " + spell(e.Owner) + ", the owner was " + spell(e.Before)
	case codalab.ActionOffered:
		text += " it to " + spell(e.Owner)
	case codalab.ActionUnoffered:
		text = "ended the offer to " + spell(e.Owner)
	case codalab.ActionWrote:
		text += " file " + e.File
	case codalab.ActionRestaged:
		text = "staged it again"
	case codalab.ActionKilled, codalab.ActionFailed, codalab.ActionLost, codalab.ActionFroze, codalab.ActionThawed, codalab.ActionDeleted, codalab.ActionAdded, codalab.ActionRemoved:
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return termtext.OneLine(text)
}

func spell(n *codalab.Named) string {
	if n == nil {
		return "somebody"
	}
	return n.String()
}

// grantedText describes the permissions of groups on a new bundle.
func grantedText(list []codalab.Granted) string {
	var parts []string
	for _, g := range list {
		parts = append(parts, sharedText([]codalab.Granted{g}))
	}
	if len(parts) == 0 {
		return "for its owner alone"
	}
	return strings.Join(parts, ", ")
}

// sharedText describes the permission of the first group.
func sharedText(list []codalab.Granted) string {
	if len(list) == 0 {
		return "shared"
	}
	with := "group " + list[0].Group.String()
	if list[0].Group.Name == codalab.PublicGroup {
		with = "everybody"
	}
	switch list[0].Permission {
	case codalab.PermissionSpec(codalab.PermissionNone):
		return "no longer shared with " + with
	case codalab.PermissionSpec(codalab.PermissionAll):
		return "shared with " + with + ", to read and change"
	}
	return "shared with " + with + ", to read"
}
