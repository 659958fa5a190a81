package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const offersHelp = `List what others offer you and what you offer, and answer offers.

cl chown offers a bundle to a new owner, and cl wedit -o a worksheet. Until the
new owner accepts, it belongs to its owner and counts in the owner's quota.

  cl offers                     list offers
  cl offers accept <uuid>...    become the owner; the bundles must fit in your
                                disk quota
  cl offers decline <uuid>...   refuse them
  cl offers withdraw <uuid>...  take back what you offer
  cl offers accept --from ann   all that ann offers

A uuid may be shortened. You see the name and the size of what is offered, and
its contents only if you may read it anyway: its owner can share it before.
Groups that can read it can do so after you have accepted, until you change
that; those that could change it can only read it. An offer ends after 30 days,
and when its bundle or worksheet is deleted.`

// offerVerbs are the answers to offers.
func offerVerbs() []string { return []string{"accept", "decline", "withdraw"} }

func (c *cli) offersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "offers [accept | decline | withdraw] [<uuid>...]", Short: "List and answer offers of bundles and worksheets", Long: offersHelp,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: completeInTurn(completeWords(offerVerbs()...), c.completeOffers),
	}
	from := cmd.Flags().String("from", "", "answer all offers of this user")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && *from != "":
			return refusef("--from needs accept or decline")
		case len(args) > 0 && !slices.Contains(offerVerbs(), args[0]):
			return refusef("cl offers %s: want accept, decline or withdraw%s", args[0], argparse.DidYouMean("", argparse.Nearest(args[0], offerVerbs())))
		case len(args) == 1 && *from == "":
			return refusef("cl offers %s needs the uuid of an offer; cl offers lists them", args[0])
		case *from != "" && (len(args) > 1 || args[0] == "withdraw"):
			return refusef("--from is for all offers of a user to you, without uuids")
		}
		at, err := c.workspace("")
		if err != nil {
			return err
		}
		offers, err := at.Offers(cmd.Context())
		switch {
		case err != nil:
			return onlyClServer(err, at, "it has no offers; cl chown gives a bundle to its new owner at once")
		case len(args) == 0:
			return c.listOffers(offers)
		}
		return c.answerOffers(cmd.Context(), at, offers, args[0], args[1:], *from)
	}
	return cmd
}

// completeOffers offers the uuids of offers.
func (c *cli) completeOffers(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completeEach(c, (*workspace).Offers, func(one client.Offer) string { return one.UUID })(cmd, args, begun)
}

// offerView is an offer in JSON.
type offerView struct {
	codalab.Offer
	From *userView `json:"from"`
	To   *userView `json:"to"`
}

func (c *cli) listOffers(offers []client.Offer) error {
	views := []offerView{}
	var rows [][]string
	for _, o := range offers {
		views = append(views, offerView{o.Offer, viewUser(&o.Giver), viewUser(&o.Receiver)})
		size := ""
		if o.Kind == kindBundle {
			size = codalab.FormatSize(max(o.DataSize, o.Charge))
		}
		rows = append(rows, []string{o.UUID, o.Kind, o.Name, size, o.Giver.UserName, o.Receiver.UserName, day(o.Until)})
	}
	switch {
	case c.asJSON:
		return c.printJSON(views)
	case len(rows) == 0:
		return c.print("No offers found.")
	}
	return printTable(c.Stdout, []column{{name: "uuid"}, {name: "kind"}, {name: "name"}, {name: "takes"}, {name: "from"}, {name: "to"}, {name: "until"}}, rows)
}

// kindBundle is the kind of an offer of a bundle.
const kindBundle = "bundle"

func day(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.DateOnly) }

// answerOffers accepts, declines or withdraws those offers that uuids name, or all of a user.
func (c *cli) answerOffers(ctx context.Context, at *workspace, offers []client.Offer, verb string, uuids []string, from string) error {
	me, err := at.User(ctx)
	if err != nil {
		return err
	}
	offers = slices.DeleteFunc(offers, func(o client.Offer) bool {
		if verb == "withdraw" {
			return o.Giver.ID != me.ID
		}
		return o.Receiver.ID != me.ID || from != "" && o.Giver.UserName != from && o.Giver.ID != from
	})
	if from == "" {
		if offers, err = pickOffers(offers, verb, uuids); err != nil {
			return err
		}
	}
	if len(offers) == 0 {
		return refusef("%s offers you nothing", from)
	}
	var bundles, worksheets []string
	var changes []client.BundleChange
	for _, o := range offers {
		owner := o.Giver.ID // who stays the owner
		if verb == "accept" {
			owner = me.ID
		}
		if o.Kind == kindBundle {
			bundles, changes = append(bundles, o.UUID), append(changes, client.BundleChange{UUID: o.UUID, Owner: owner})
			continue
		}
		worksheets = append(worksheets, o.UUID)
		if err := at.UpdateWorksheet(ctx, client.WorksheetChange{UUID: o.UUID, Owner: owner}); err != nil {
			return err
		}
	}
	if len(changes) > 0 {
		if _, err := at.UpdateBundles(ctx, changes...); err != nil {
			return err
		}
	}
	if err := c.printUUIDs(append(worksheets, bundles...)); err != nil || verb != "accept" {
		return err
	}
	return c.tellWhoReads(ctx, at, bundles)
}

// pickOffers returns the offers that uuids, or their beginnings, name.
func pickOffers(offers []client.Offer, verb string, uuids []string) ([]client.Offer, error) {
	var picked []client.Offer
	for _, spec := range uuids {
		fitting := slices.DeleteFunc(slices.Clone(offers), func(o client.Offer) bool { return !strings.HasPrefix(o.UUID, spec) })
		switch {
		case len(fitting) > 1:
			return nil, refusef("%s is the beginning of %d offers", spec, len(fitting))
		case len(fitting) == 0 && verb == "withdraw":
			return nil, refusef("you do not offer %s to anybody; cl offers lists what you offer", spec)
		case len(fitting) == 0:
			return nil, refusef("nobody offers you %s; cl offers lists what is offered", spec)
		}
		picked = append(picked, fitting[0])
	}
	return picked, nil
}

// tellOffered says on standard error that bundles are only offered. to is the user whom the command named.
func (c *cli) tellOffered(bundles []client.BundleInfo, to codalab.User) (offered bool) {
	var n int
	var size, until int64
	for _, b := range bundles {
		if b.OfferedTo == to.ID {
			n, size, until = n+1, size+b.Metadata.Int("data_size"), b.OfferedUntil
		}
	}
	if n == 0 {
		return false
	}
	what := "1 bundle"
	if n > 1 {
		what = fmt.Sprintf("%d bundles", n)
	}
	c.warn("Offered %s (%s) to %s until %s. You own them, and they count in your quota, unless %s accepts by: cl offers accept",
		what, codalab.FormatSize(size), to.UserName, day(until), to.UserName)
	return true
}

// receiverText is the user to whom a bundle is offered, and the end of the offer.
func (c *cli) receiverText(ctx context.Context, at *workspace, b codalab.Bundle) string {
	to, err := at.UserByID(ctx, b.OfferedTo)
	if err != nil {
		to = codalab.User{ID: b.OfferedTo} // the line is worth less than the rest
	}
	return userText(&to) + ", until " + day(b.OfferedUntil) + "; see cl offers"
}

// tellOfferedWorksheet says on standard error that a worksheet is only offered to the user whom the command named. CodaLab's
// own server knows no offers.
func (c *cli) tellOfferedWorksheet(ctx context.Context, at *workspace, w client.Worksheet) {
	offers, err := at.Offers(ctx)
	if err != nil {
		return
	}
	for _, o := range offers {
		if o.UUID == w.UUID {
			c.warn("Offered worksheet %s to %s until %s. You own it, unless %s accepts by: cl offers accept", w.Name, o.Receiver.UserName, day(o.Until), o.Receiver.UserName)
		}
	}
}

// tellOwned names the readers of bundles of which the user has become the owner by chown.
func (c *cli) tellOwned(ctx context.Context, at *workspace, bundles []client.BundleInfo, named codalab.User) error {
	var uuids []string
	for _, b := range bundles {
		if b.OwnerID == named.ID {
			uuids = append(uuids, b.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil
	}
	me, err := at.User(ctx)
	if err != nil || me.ID != named.ID {
		return err
	}
	return c.tellWhoReads(ctx, at, uuids)
}

// tellWhoReads says on standard error who can read bundles that the user has got.
func (c *cli) tellWhoReads(ctx context.Context, at *workspace, uuids []string) error {
	if len(uuids) == 0 || c.quiet {
		return nil
	}
	bundles, err := at.Bundles(ctx, "", uuids, client.IncludePermissions)
	if err != nil {
		return err
	}
	for _, b := range bundles {
		var groups []string
		for _, p := range b.GroupPermissions {
			groups = append(groups, p.GroupName)
		}
		c.warn("You own %s. Who can read it beside you: %s.", bundleText(b.Bundle), cmp.Or(strings.Join(groups, ", "), "nobody"))
	}
	return nil
}
