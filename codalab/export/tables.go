package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// mostRows bounds the bytes of a table's rows that are filled in at a time, and mostCalls the requests for the rows of all tables
// beyond which none is divided: the server bounds what it reads for each request, so that these bound the sum.
const (
	mostRows  = 1 << 20
	mostCalls = 200
)

// rows are those of all tables of the worksheet, in their order. They are read while they are written, a part at a time.
type rows struct {
	from    *client.Client
	waiting []json.RawMessage
	// read has the rows of the part that was read last.
	read []filled
	// atOnce is the number of rows that the server may read for one request, after it has refused to read more; else 0.
	atOnce int
	// calls counts requests.
	calls int
}

// filled is a row with its cells, or the sentence with which the server refuses to read them.
type filled struct {
	cells   map[string]any
	refusal string
}

// next returns the next row.
func (r *rows) next(ctx context.Context) (filled, error) {
	if len(r.read) == 0 {
		if err := r.readPart(ctx); err != nil {
			return filled{}, fmt.Errorf("read table: %w", err)
		}
	}
	row := r.read[0]
	r.read = r.read[1:]
	return row, nil
}

// readPart reads some rows. If they are too much for one request, it reads fewer.
func (r *rows) readPart(ctx context.Context) error {
	most := len(r.waiting)
	if r.atOnce > 0 && r.calls < mostCalls {
		most = min(most, r.atOnce)
	}
	n, size := 0, 0
	for n < most && (n == 0 || size+len(r.waiting[n]) <= mostRows) {
		size += len(r.waiting[n])
		n++
	}
	for {
		r.calls++
		cells, err := r.from.TableContents(ctx, r.waiting[:n])
		if n > 1 && r.calls < mostCalls && codalab.IsStatus(err, http.StatusBadRequest) {
			n /= 2
			r.atOnce = n
			continue
		}
		refusal, err := refusalOf(err)
		if err == nil && refusal == "" && len(cells) != n {
			err = fmt.Errorf("the server has sent %d rows instead of %d", len(cells), n)
		}
		if err != nil {
			return err
		}
		r.read = make([]filled, n)
		for i := range r.read {
			if refusal != "" {
				r.read[i].refusal = refusal
			} else {
				r.read[i].cells = cells[i]
			}
		}
		clear(r.waiting[:n])
		r.waiting = r.waiting[n:]
		return nil
	}
}

// refusalOf returns the sentence about what is too much for the server or for the client; other errors stay errors.
func refusalOf(err error) (refusal string, other error) {
	refused, ok := errors.AsType[*codalab.Error](err)
	switch {
	case errors.Is(err, client.ErrTooLarge):
		return "the server's answer does not fit into memory", nil
	case ok && refused.Status == http.StatusBadRequest:
		return refused.Message, nil
	}
	return "", err
}

// table returns the rows of a table or a record, once.
func (r *renderer) table(ctx context.Context, b client.Block) iter.Seq[[]cellView] {
	return func(yield func([]cellView) bool) {
		for i := range b.Rows {
			row, err := r.rows.next(ctx)
			if err != nil {
				r.failure = err
				return
			}
			if !yield(rowView(b, i, row)) {
				return
			}
		}
	}
}

// rowView shows a row.
func rowView(b client.Block, i int, row filled) []cellView {
	view := make([]cellView, 0, len(b.Header))
	for column, name := range b.Header {
		text := ""
		if value := row.cells[name]; value != nil {
			text = shortened(codalab.PythonStr(value))
		}
		if column == 0 && row.refusal != "" {
			text = "Not here: " + row.refusal
		}
		cell := cellView{Text: text}
		leads := name == "name" || column == 0 && !slices.Contains(b.Header, "name")
		if leads && b.Mode == "table_block" && i < len(b.BundlesSpec.Bundles) {
			cell.Address = "#" + b.BundlesSpec.Bundles[i].UUID
		}
		view = append(view, cell)
	}
	return view
}

// mostCell bounds the bytes of a cell.
const mostCell = 500

// shortened is a text for a cell.
func shortened(text string) string {
	if len(text) <= mostCell {
		return text
	}
	return strings.ToValidUTF8(text[:mostCell], "") + "…"
}
