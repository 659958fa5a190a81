package interpret

import (
	"context"
	"errors"
	"fmt"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// item is an Item with the bundle, worksheet or directive that it names.
type item struct {
	Item
	// tokens are a directive's words; badTokens is the error if it cannot be split into words.
	tokens    []string
	badTokens error
	bundle    *Bundle
	sheet     *WorksheetInfo
}

// command is a directive's first word; empty for other items and for comments.
func (i item) command() string {
	if i.Type != codalab.ItemDirective || len(i.tokens) == 0 || i.tokens[0] == codalab.CommentWord {
		return ""
	}
	return i.tokens[0]
}

// blockRow is a block and a row in it.
type blockRow [2]int

// builder groups items into blocks (codalab/lib/worksheet_util.py: interpret_items). Consecutive bundles
// become one table or one series of blocks, depending on the display directive above them. Consecutive
// worksheets and lines of markup become one block, too.
type builder struct {
	blocks []block
	// places has each item's place; nil for items that are not shown. After an error in the last item,
	// the list is one longer than the items, as the original's.
	places []*blockRow

	schemas map[string]*schema
	// current is the schema that is being defined, with its name and the ids of its directives.
	current     *schema
	currentName string
	currentIDs  []*int64
	// display is the mode and the arguments of the display directive.
	display []string
	bundles []entry
	// firstBundle is the index of the item of bundles[0]; -1 if there is none.
	firstBundle int
	sheets      []subworksheet
	// afterBlank is false if the last item was a line of markup.
	afterBlank bool
	// shown is the approximate number of bytes of the blocks in the answer.
	shown int64
	posts posts
	// page is set for the blocks of a page (Interpreter.Part). Items before the one with the number from leave no blocks; left
	// is the number of items of the worksheet that are not among the items to build.
	page       bool
	from, left int
	// stopped returns an error once the answer is no longer wanted.
	stopped func() error
}

func usage(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

func newBuilder(ctx context.Context) *builder {
	b := &builder{schemas: builtinSchemas(), firstBundle: -1, posts: posts{}, stopped: ctx.Err}
	b.resetDisplay()
	return b
}

func (b *builder) resetDisplay() { b.display = []string{"table", defaultSchema} }

// build makes the blocks of all items. An error in an item becomes a block.
func (b *builder) build(items []item) {
	for i, it := range items {
		if i == b.from {
			b.blocks = nil
		}
		blank := true
		err := b.prepare(it)
		if err == nil {
			blank, err = b.add(i, it)
		}
		if err == nil && i == len(items)-1 {
			err = b.finish(it)
		}
		b.afterBlank = blank
		if err == nil {
			continue
		}
		b.current, b.bundles, b.sheets = nil, nil, nil
		text := fmt.Sprintf("Unexpected error while parsing line %d", i+1+b.left)
		if mistake, ok := errors.AsType[*UsageError](err); ok {
			text = fmt.Sprintf("Error in source line %d: %s", i+1+b.left, mistake.Message)
		}
		b.append(newError(text))
		b.show()
	}
	if b.from > 0 && b.from >= len(items) {
		b.blocks = nil
	}
}

func (b *builder) append(added block) { b.blocks = append(b.blocks, added) }

// show notes that the current item is in the last block.
func (b *builder) show() { b.showAt(len(b.blocks)-1, 0) }

func (b *builder) showAt(index, row int) { b.places = append(b.places, &blockRow{index, row}) }

func (b *builder) hide() { b.places = append(b.places, nil) }

// prepare ends the groups to which the next item cannot belong.
func (b *builder) prepare(it item) error {
	if it.Type != codalab.ItemBundle {
		if err := b.flushBundles(); err != nil {
			return err
		}
	}
	if it.Type != codalab.ItemWorksheet {
		b.flushSheets()
	}
	if it.Type != codalab.ItemBundle && it.command() != "search" {
		b.resetDisplay()
	}
	if c := it.command(); c != "add" && c != "addschema" {
		err := b.flushSchema(it.SortKey)
		b.current, b.currentIDs = nil, nil
		return err
	}
	return nil
}

// finish ends everything after the last item.
func (b *builder) finish(last item) error {
	if err := b.flushBundles(); err != nil {
		return err
	}
	b.flushSheets()
	return b.flushSchema(last.SortKey)
}

// add adds an item. It reports whether the item separates lines of markup.
func (b *builder) add(index int, it item) (blank bool, err error) {
	switch it.Type {
	case codalab.ItemBundle:
		if b.firstBundle < 0 {
			b.firstBundle = index
		}
		b.showAt(len(b.blocks), len(b.bundles))
		e := entry{uuid: it.BundleUUID, id: it.ID, sortKey: it.SortKey, bundle: it.bundle, brief: b.page}
		b.bundles = append(b.bundles, e)
		return true, b.countBytes(e.size())
	case codalab.ItemWorksheet:
		b.showAt(len(b.blocks), len(b.sheets))
		b.sheets = append(b.sheets, subworksheet{uuid: it.SubworksheetUUID, sortKey: it.SortKey, info: it.sheet})
	case codalab.ItemMarkup:
		return b.addMarkup(it), nil
	case codalab.ItemDirective:
		return true, b.addDirective(it)
	default:
		return true, usage("unknown type of item %q", it.Type)
	}
	return true, nil
}

func (b *builder) addMarkup(it item) (blank bool) {
	if it.Value == "" {
		b.hide()
		return true
	}
	if len(b.blocks) > 0 && !b.afterBlank {
		if m, ok := b.blocks[len(b.blocks)-1].(*markupBlock); ok {
			m.lines = append(m.lines, it.Value)
			m.IDs, m.SortKeys = append(m.IDs, it.ID), append(m.SortKeys, it.SortKey)
			b.show()
			return false
		}
	}
	m := newMarkup(it.Value)
	m.IDs, m.SortKeys = []*int64{it.ID}, []*int64{it.SortKey}
	b.append(m)
	b.show()
	return false
}

func (b *builder) flushSheets() {
	if len(b.sheets) == 0 {
		return
	}
	added := &subworksheetsBlock{head: head{Mode: "subworksheets_block"}, Infos: b.sheets}
	for _, s := range b.sheets {
		added.SortKeys = append(added.SortKeys, s.sortKey)
	}
	b.append(added)
	b.sheets = nil
}

func (b *builder) flushSchema(sortKey *int64) error {
	if b.current == nil {
		return nil
	}
	added := &schemaBlock{
		head: head{Mode: "schema_block"}, SchemaName: b.currentName,
		Header:    []string{"field", "generalized-path", "post-processor"},
		FieldRows: []schemaRow{}, SortKeys: []*int64{sortKey}, IDs: b.currentIDs,
	}
	for _, c := range b.current.columns {
		if err := b.countBytes(c.size()); err != nil {
			return err
		}
		added.FieldRows = append(added.FieldRows, schemaRow{c.name, c.genpath, c.post, c.from})
	}
	b.append(added)
	return nil
}

// countBytes counts n bytes of the answer. It fails if the answer gets too large.
func (b *builder) countBytes(n int64) error {
	if b.shown += n; b.shown > maxShown {
		return usage("the worksheet shows more than %d MiB", maxShown>>20)
	}
	return nil
}

// blockToRaw maps the place "block,row" to the last item that is shown there. Items that are not shown,
// such as blank lines, get the place of the next shown item.
func (b *builder) blockToRaw() map[string]int {
	last := map[string]int{}
	var next *blockRow
	for i := len(b.places) - 1; i >= 0; i-- {
		if b.places[i] == nil {
			b.places[i] = next
			continue
		}
		next = b.places[i]
		key := fmt.Sprintf("%d,%d", next[0], next[1])
		if _, ok := last[key]; !ok {
			last[key] = i
		}
	}
	return last
}
