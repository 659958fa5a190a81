package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const noticesHelp = `Let the server send you a mail when bundles have ended, to the address that it has of
you. It comes also if your computer is off. cl wait --notify mail does the same, and waits.

  cl notify add lr-sweep         one mail when all runs of the sweep have ended
  cl notify add ^1-3
  cl notify ls                   the mails that have not come yet
  cl notify rm 0x12ab            take one back`

// withoutMails is the end of a refusal by a server without notices.
const withoutMails = "it sends no mails about runs; --notify webhook and --notify terminal come from here"

// notifyCommand has no equal in CodaLab's cl.
func (c *cli) notifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify (add (<bundle>|<sweep>)... | ls | rm <id>...)", Short: "Get a mail when bundles have ended", Long: noticesHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeInTurn(completeWords("add", "ls", "rm"), c.completeBundles),
	}
	worksheet := c.worksheetFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, verb, rest := cmd.Context(), args[0], args[1:]
		switch {
		case verb == "add" && len(rest) > 0:
			return c.addNotice(ctx, *worksheet, rest)
		case verb == "ls" && len(rest) == 0:
			return c.listNotices(ctx)
		case verb == "rm" && len(rest) > 0:
			return c.removeNotices(ctx, rest)
		case verb == "add":
			return refusef("cl notify add needs bundles or a sweep")
		case verb == "rm":
			return refusef("cl notify rm needs the id of a mail; cl notify ls lists them")
		case verb == "ls":
			return refusef("cl notify ls lists all mails that have not come, and takes no names")
		}
		return refusef("cl notify %s is not supported%s. Only the following subcommands are supported: 'cl notify add', 'cl notify ls', 'cl notify rm'.",
			verb, argparse.DidYouMean("", argparse.Nearest(verb, []string{"add", "ls", "rm"})))
	}
	return cmd
}

func (c *cli) addNotice(ctx context.Context, worksheet string, specs []string) error {
	specs, err := expandSpecs(specs)
	if err != nil {
		return err
	}
	at, uuids, err := c.bundlesAndSweeps(ctx, worksheet, specs, anyRun)
	if err != nil {
		return err
	}
	n, err := c.askForMail(ctx, at, uuids)
	if err != nil {
		return err
	}
	return c.printResult(viewNotice(n), "%s", n.ID)
}

// registerMail asks for a mail before the wait, if the options say so.
func (c *cli) registerMail(ctx context.Context, at *workspace, o waitOptions, uuids []string) error {
	if !o.notify.mail {
		return nil
	}
	_, err := c.askForMail(ctx, at, uuids)
	return err
}

// askForMail lets the server send a mail when bundles have ended, and says so.
func (c *cli) askForMail(ctx context.Context, at *workspace, uuids []string) (codalab.Notice, error) {
	n, err := at.Notify(ctx, uuids...)
	switch {
	case err != nil:
		return n, onlyClServer(err, at, withoutMails)
	case n.Done != 0 && n.Problem != "":
		c.warn("cl: the server gave up a mail about these bundles at %s: %s", secretTime(n.Done), termtext.OneLine(n.Problem))
	case n.Done != 0:
		c.warn("cl: the server has sent %s a mail about these bundles at %s", termtext.OneLine(n.To), secretTime(n.Done))
	default:
		c.warn("cl: the server sends %s a mail when %s ended, also if this computer is off; cl notify rm %s takes that back",
			termtext.OneLine(n.To), allOf(n.Bundles), shortID(n.ID))
	}
	return n, nil
}

func allOf(bundles int) string {
	if bundles == 1 {
		return "it has"
	}
	return "all " + strconv.Itoa(bundles) + " have"
}

// shortID is the beginning of an id, by which people name it.
func shortID(id string) string { return id[:min(len(id), 8)] }

// noticeView is a mail that is to come, in JSON.
type noticeView struct {
	ID string `json:"id"`
	codalab.Notice
}

func viewNotice(n codalab.Notice) noticeView { return noticeView{n.ID, n} }

func (c *cli) listNotices(ctx context.Context) error {
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	have, err := at.Notices(ctx)
	if err != nil {
		return onlyClServer(err, at, withoutMails)
	}
	views := []noticeView{}
	var rows [][]string
	for _, n := range have {
		views = append(views, viewNotice(n))
		rows = append(rows, []string{
			shortID(n.ID), termtext.Count(n.Bundles, "bundle"), clockTime(time.Unix(n.Made, 0)), termtext.OneLine(n.To), termtext.OneLine(n.Problem),
		})
	}
	if c.asJSON {
		return c.printJSON(views)
	}
	return printTable(c.Stdout, []column{{name: "id"}, {name: "about"}, {name: "asked"}, {name: "to"}, {name: "problem"}}, rows)
}

// removeNotices takes mails back, which ids name, or their beginnings.
func (c *cli) removeNotices(ctx context.Context, ids []string) error {
	at, err := c.workspace("")
	if err != nil {
		return err
	}
	have, err := at.Notices(ctx)
	if err != nil {
		return onlyClServer(err, at, withoutMails)
	}
	whole := make([]string, len(ids))
	for i, id := range ids {
		for _, n := range have {
			switch {
			case !strings.HasPrefix(n.ID, id):
			case whole[i] != "":
				return refusef("several mails begin with %s; cl notify ls lists them", termtext.OneLine(id))
			default:
				whole[i] = n.ID
			}
		}
		if whole[i] == "" {
			return refusef("no mail %s is to come; cl notify ls lists those that are", termtext.OneLine(id))
		}
	}
	if err := at.RemoveNotices(ctx, whole...); err != nil {
		return onlyClServer(err, at, withoutMails)
	}
	return c.printUUIDs(whole)
}
