package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const searchHelp = `List the bundles that match all keywords, also those on no worksheet.

  search <word>...           name or uuid has each word
  search name=<value>        a field has this value: any key of the metadata,
                             type, state, uuid, command, owner, group,
                             dependency, dependency/<key>, host_worksheet;
                             a,b is one of several, and % any letters
  search .mine               your own
  search .shared             shared with any of your groups
  search .floating           on no worksheet
  search .before=<date> .after=<date>
                             created by a date, such as 2042-03-14
  search '/stats.json:acc=.sort-' '/stats.json:loss<0.3'
                             by a value in a small result file (cl help
                             fields); = != < <= > >= compare, and
                             /stats.json:acc is for all that have it
  search time>3600 state!=ready
                             the same of other keys
  search .limit=50           up to 50 bundles. By default ten are shown in a
                             terminal; -u, --json, --csv, --append, a pipe and a
                             file get all of them
  search .offset=50          from the 51st on
  search size=.sort          sorted by a field; .sort- from the end
  search .last               newest first
  search .count              only their number
  search size=.sum           only the total of a field
  search .format=<format>    the format of that number

A search that finds nothing fails if it names a key or a state that there is
not. One with more than 10,000 results fails: cl rm $(cl search ... -u) never
takes a part for the whole.`

// searchWords are the keywords that completion offers.
func searchWords() []string {
	return []string{
		".mine", ".shared", ".floating", ".before=", ".after=", ".limit=", ".offset=", ".last", ".count", "name=", "type=", "state=", "uuid=",
		"command=", "owner=", "group=", "dependency=", "host_worksheet=", "size=.sort-", "size=.sum",
	}
}

// searchCommand is bundle_cli.py: do_search_command.
func (c *cli) searchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "search <keyword>...", Aliases: []string{"s"}, Short: "Search for bundles", Long: searchHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeWords(searchWords()...),
	}
	worksheet := c.worksheetFlag(cmd)
	l := c.listingFlags(cmd)
	add := cmd.Flags().BoolP("append", "a", false, "append the bundles to the worksheet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fields, err := l.read(c)
		switch {
		case err != nil:
			return err
		case *add && l.watch:
			return refusef("--watch shows bundles, and -a appends them to a worksheet once: give one of them")
		}
		return c.searchBundles(cmd.Context(), *worksheet, args, l, fields, *add)
	}
	return cmd
}

func (c *cli) searchBundles(ctx context.Context, worksheet string, keywords []string, l *listing, fields []string, add bool) error {
	at, uuid, err := c.openWorksheet(ctx, worksheet)
	if err != nil {
		return err
	}
	if l.watch {
		return c.watchBundles(ctx, l, fields, func(ctx context.Context) (listed, error) {
			return at.found(ctx, uuid, keywords, l.keys(c.asJSON, fields))
		})
	}
	if _, shown := terminal(c.Stdout); !shown || add || l.uuidOnly || l.csv || c.asJSON {
		keywords = everything(keywords)
	}
	found, number, err := at.find(ctx, uuid, keywords, l.keys(c.asJSON, fields)...)
	if err != nil || number != nil {
		return c.orNumber(err, number)
	}
	if err := c.printFound(ctx, at, found, keywords, l, fields); err != nil || !add {
		return err
	}
	items := make([]client.Item, 0, len(found))
	for _, b := range found {
		items = append(items, bundleItem(b.UUID))
	}
	if err := at.AddItems(ctx, uuid, items, false); err != nil {
		return err
	}
	w, err := at.Worksheet(ctx, uuid)
	if err != nil {
		return err
	}
	return c.printUnlessJSON("Added %d bundles to %s", len(found), worksheetURL(at.Address(), w.WorksheetName))
}

// watchedMost bounds a list that is watched, unless .limit does.
const watchedMost = ".limit=1000"

// found returns the bundles that match keywords, for a list that is watched.
func (w *workspace) found(ctx context.Context, worksheet string, keywords, keys []string) (listed, error) {
	// The last .limit counts.
	found, number, err := w.find(ctx, worksheet, append([]string{watchedMost}, keywords...), keys...)
	if number != nil {
		return listed{}, refusef("--watch shows bundles, and no numbers")
	}
	return listed{at: w, bundles: found}, err
}

func (c *cli) printFound(ctx context.Context, at *workspace, found []client.BundleInfo, keywords []string, l *listing, fields []string) error {
	switch {
	case l.uuidOnly || c.asJSON || l.csv:
		return c.printChosen(ctx, at, found, l, fields)
	case len(found) == 0:
		c.warn("No results found")
		return nil
	}
	c.noteLimit(len(found), keywords)
	t, err := at.table(ctx, found, fields)
	if err != nil {
		return err
	}
	return c.onTerminal(t, found).print(c.Stdout)
}

// searchLimit is the default number of results of a search (codalab/model/bundle_model.py:
// SEARCH_RESULTS_LIMIT).
const searchLimit = 10

// noteLimit prints a warning if there may be more results.
func (c *cli) noteLimit(shown int, keywords []string) {
	if shown == searchLimit && !isLimited(keywords) {
		c.warn("Only %d results are shown. Use .limit=N to show the first N results.", searchLimit)
	}
}
