package interpret

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Interpreter shows worksheets and reads genpaths for the user of one request. Its functions act for
// that user.
type Interpreter struct {
	Read ReadFile
	// SearchBundles finds bundles. A *UsageError is shown to the user.
	SearchBundles func(ctx context.Context, keywords []string) (BundleSearch, error)
	// SearchWorksheets finds worksheets. A *UsageError is shown to the user.
	SearchWorksheets func(ctx context.Context, keywords []string) ([]WorksheetInfo, error)
	// Log gets errors of Read that are no user's mistake.
	Log *slog.Logger
}

// BundleSearch is the result of a search for bundles.
type BundleSearch struct {
	Bundles []Bundle
	// Aggregate is the count or the sum that the keywords ask for, as text; nil if they ask for bundles.
	Aggregate *string
}

// Worksheet is a worksheet as the user of a request may see it.
type Worksheet struct {
	WorksheetInfo
	// Permission is the user's: 0 for none, 1 to read, 2 for all.
	Permission       int
	GroupPermissions []GroupPermission
	Items            []Item
	// Bundles holds the items' bundles that exist.
	Bundles map[string]Bundle
	// Worksheets holds the items' worksheets that exist.
	Worksheets map[string]WorksheetInfo
}

// GroupPermission is a group's permission on a worksheet.
type GroupPermission struct {
	codalab.GroupPermission
	ID        int64  `json:"id"`
	GroupUUID string `json:"group_uuid"`
}

// Options are the query parameters of GET /interpret/worksheet.
type Options struct {
	// Brief (brief=1) leaves searches as placeholders, and files in tables unread.
	Brief bool
	// Directive (directive=), if set, is a search; only its block is returned.
	Directive string
	// BundleUUIDs (bundle_uuid=), if any, are bundles; only their blocks are returned.
	BundleUUIDs []string

	withoutImages bool
}

// answer is the answer of GET /interpret/worksheet.
type answer struct {
	WorksheetInfo
	OwnerName        *string           `json:"owner_name"`
	Permission       int               `json:"permission"`
	PermissionSpec   string            `json:"permission_spec"`
	EditPermission   bool              `json:"edit_permission"`
	EnableChat       bool              `json:"enable_chat"` // never
	GroupPermissions []GroupPermission `json:"group_permissions"`
	Source           []string          `json:"source"`
	Blocks           []block           `json:"blocks"`
	RawToBlock       []*blockRow       `json:"raw_to_block"`
	BlockToRaw       map[string]int    `json:"block_to_raw"`
}

// Mistake is a mistake in a line that a person has written. The first line is 1.
type Mistake struct {
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// Part is a part of a worksheet for a page.
type Part struct {
	UUID   string  `json:"uuid"`
	Blocks []block `json:"blocks"`
	// Next is the number of the item behind the part; nil if the part is the last one.
	Next *int `json:"next"`
	// Mistakes are those in the lines from which the items come.
	Mistakes []Mistake `json:"mistakes,omitempty"`
}

// Part returns the blocks of a worksheet's items from the one with the number first on, as a page shows them: of a bundle it
// has the uuid, the type and the state, and of an image no data. Schemas and the display directive above these items are in
// force. Next and Mistakes are not set. Its errors are those of Worksheet.
func (in Interpreter) Part(ctx context.Context, w Worksheet, first int) (Part, error) {
	above := w.above(first)
	w.Items = w.Items[first:]
	items, _, err := in.expand(ctx, w, Options{})
	if err != nil {
		return Part{}, err
	}
	b := newBuilder(ctx)
	b.page, b.from, b.left = true, len(above), first-len(above)
	b.build(append(above, items...))
	if err := ctx.Err(); err != nil {
		return Part{}, err
	}
	if err := in.resolve(ctx, b.blocks, Options{withoutImages: true}); err != nil {
		return Part{}, err
	}
	return Part{UUID: w.UUID, Blocks: list(b.blocks)}, nil
}

// above returns the items above the one with this number, as far as they matter for those below: directives, and a blank
// line for what ends the effect of a display directive.
func (w Worksheet) above(first int) []item {
	var items []item
	for _, stored := range w.Items[:first] {
		it := w.item(stored)
		switch {
		case stored.Type == codalab.ItemBundle, it.command() == "search":
		case stored.Type == codalab.ItemDirective && it.command() != "wsearch":
			items = append(items, it)
		default:
			items = append(items, markup(""))
		}
	}
	return items
}

// update is the answer to a question for some bundles.
type update struct {
	UUID   string  `json:"uuid"`
	Blocks []block `json:"blocks"`
}

// Worksheet returns the answer of GET /interpret/worksheet, ready for JSON (codalab/rest/interpret.py:
// fetch_interpreted_worksheet). The answer contains the messages about mistakes on the worksheet.
// Worksheet fails if a search fails for another reason than a user's mistake, or if ctx ends.
func (in Interpreter) Worksheet(ctx context.Context, w Worksheet, o Options) (any, error) {
	items, found, err := in.expand(ctx, w, o)
	if err != nil {
		return nil, err
	}
	b := newBuilder(ctx)
	b.build(items)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.Tags = list(w.Tags)
	toRaw := b.blockToRaw()
	blocks := b.blocks
	if o.Directive != "" {
		blocks = blocks[len(blocks)-min(found, 1, len(blocks)):]
	}
	if len(o.BundleUUIDs) > 0 {
		keepBundles(blocks, o.BundleUUIDs)
	}
	if err := in.resolve(ctx, blocks, o); err != nil {
		return nil, err
	}
	if len(o.BundleUUIDs) > 0 {
		return update{UUID: w.UUID, Blocks: list(blocks)}, nil
	}
	return answer{
		WorksheetInfo: w.WorksheetInfo, OwnerName: w.OwnerName, Permission: w.Permission, PermissionSpec: codalab.PermissionSpec(w.Permission),
		EditPermission:   w.Permission == codalab.PermissionAll,
		GroupPermissions: list(w.GroupPermissions), Source: Lines(w.Items, w.Bundles, w.Worksheets),
		Blocks: list(blocks), RawToBlock: list(b.places), BlockToRaw: toRaw,
	}, nil
}

// list returns elements, and an empty list for nil, because JSON would be null.
func list[E any](elements []E) []E {
	if elements == nil {
		return []E{}
	}
	return elements
}

// keepBundles removes all blocks and bundles except those that show one of the bundles.
func keepBundles(blocks []block, uuids []string) {
	keep := map[string]bool{}
	for _, uuid := range uuids {
		keep[uuid] = true
	}
	for i, b := range blocks {
		if shown, ok := b.(withBundles); !ok || !shown.spec().keep(keep) {
			blocks[i] = nil
		}
	}
}

// expand returns the items to show, with the objects that they name, and the number of items that
// searches found. It replaces search directives by their results; a brief answer keeps the directives.
// An answer to one directive only has that search, behind the directives above it, which may define its
// schema.
func (in Interpreter) expand(ctx context.Context, w Worksheet, o Options) (items []item, found int, err error) {
	searches := 0
	for _, stored := range w.Items {
		it := w.item(stored)
		command := it.command()
		isSearch := command == "search" || command == "wsearch"
		isWanted := o.Directive != "" && it.Type == codalab.ItemDirective && o.Directive == codalab.JoinWords(it.tokens)
		switch {
		case o.Directive != "" && it.Type != codalab.ItemDirective:
			continue
		case !isSearch, o.Brief && o.Directive == "", o.Directive != "" && !isWanted:
			items = append(items, it)
		default:
			results := []item{}
			if searches++; searches > maxSearches || found >= maxFound {
				results = append(results, markup("ERROR: too many searches on one worksheet"))
			} else if results, err = in.search(ctx, it); err != nil {
				return nil, 0, err
			}
			results = results[:min(len(results), maxFound-min(found, maxFound)+1)]
			if isWanted {
				items = append(items, it)
			}
			items, found = append(items, results...), found+len(results)
		}
		if isWanted {
			break
		}
	}
	return items, found, nil
}

// item returns a stored item with the object that it names.
func (w Worksheet) item(stored Item) item {
	it := item{Item: stored}
	switch stored.Type {
	case codalab.ItemDirective:
		it.tokens, it.badTokens = codalab.SplitWords(stored.Value)
	case codalab.ItemBundle:
		if b, ok := w.Bundles[stored.BundleUUID]; ok {
			it.bundle = &b
		}
	case codalab.ItemWorksheet:
		if sheet, ok := w.Worksheets[stored.SubworksheetUUID]; ok {
			it.sheet = &sheet
		}
	}
	return it
}

func markup(text string) item { return item{Item: Item{Type: codalab.ItemMarkup, Value: text}} }

// search executes a search directive (codalab/rest/interpret.py: perform_search_query).
func (in Interpreter) search(ctx context.Context, it item) ([]item, error) {
	keywords := it.tokens[1:]
	items := []item{}
	var err error
	if it.command() == "search" {
		var result BundleSearch
		result, err = in.SearchBundles(ctx, keywords)
		if result.Aggregate != nil {
			items = append(items, markup(*result.Aggregate))
		}
		for _, b := range result.Bundles {
			items = append(items, item{Item: Item{Type: codalab.ItemBundle, BundleUUID: b.UUID}, bundle: &b})
		}
	} else {
		var sheets []WorksheetInfo
		sheets, err = in.SearchWorksheets(ctx, keywords)
		for _, s := range sheets {
			items = append(items, item{Item: Item{Type: codalab.ItemWorksheet, SubworksheetUUID: s.UUID}, sheet: &s})
		}
	}
	if mistake, ok := errors.AsType[*UsageError](err); ok {
		return []item{markup("ERROR: " + mistake.Message)}, nil
	}
	return items, err
}
