package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/livetable"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// bundleSource asks a server for bundles again and again: for those that match keywords, or for those with these uuids.
type bundleSource struct {
	*cli
	at    *workspace
	sheet string
	me    codalab.User
	// fields are the columns, and keys the metadata that they need; nil means all.
	fields, keys []string

	keywords []string
	// lately keeps bundles that the keywords found before, with their ends, and begins with some that ended before.
	lately bool
	uuids  []string

	known  map[string]client.BundleInfo
	values map[fileField]any
}

// latelyEnded is the number of ended bundles with which a list begins.
const latelyEnded = 10

// rows asks for the bundles. Bundles that have ended are not asked for again.
func (s *bundleSource) rows(ctx context.Context) ([]livetable.Row, error) {
	list, err := s.bundles(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.readValues(ctx, list); err != nil {
		return nil, err
	}
	rows := make([]livetable.Row, 0, len(list))
	for _, b := range list {
		rows = append(rows, s.row(b))
	}
	return rows, nil
}

func (s *bundleSource) bundles(ctx context.Context) ([]client.BundleInfo, error) {
	first := s.known == nil
	if first {
		s.known = map[string]client.BundleInfo{}
	}
	if s.uuids != nil {
		return s.named(ctx)
	}
	found, number, err := s.at.ListBundles(ctx, s.sheet, s.keywords, s.keys...)
	if number != nil {
		return nil, refusef("cl top shows bundles, and no numbers")
	}
	if err != nil || !s.lately {
		return found, err
	}
	if first {
		ended, _, err := s.at.ListBundles(ctx, s.sheet, []string{
			".mine", "type=run", ".last", fmt.Sprintf(".limit=%d", latelyEnded), "state=ready,failed,killed",
		}, s.keys...)
		if err != nil {
			s.known = nil
			return nil, err
		}
		s.keep(ended)
	}
	there := map[string]bool{}
	for _, b := range found {
		there[b.UUID] = true
	}
	var vanished []string
	for uuid, b := range s.known {
		if !there[uuid] && !ended(b.State) {
			vanished = append(vanished, uuid)
		}
	}
	s.keep(found)
	err = s.refresh(ctx, vanished)
	return s.all(), err
}

// named asks for the bundles with these uuids.
func (s *bundleSource) named(ctx context.Context) ([]client.BundleInfo, error) {
	err := s.refresh(ctx, slices.DeleteFunc(slices.Clone(s.uuids), func(uuid string) bool { return ended(s.known[uuid].State) }))
	return s.all(), err
}

// refresh asks for some bundles. Those that are gone were removed.
func (s *bundleSource) refresh(ctx context.Context, uuids []string) error {
	if len(uuids) == 0 {
		return nil
	}
	slices.Sort(uuids)
	found, gone, err := s.at.again(ctx, s.sheet, uuids, nil, client.IncludeOwner)
	s.keep(found)
	for _, uuid := range gone {
		b := s.known[uuid]
		b.UUID, b.State = uuid, tally.Removed
		s.known[uuid] = b
	}
	return err
}

func (s *bundleSource) keep(list []client.BundleInfo) {
	for _, b := range list {
		s.known[b.UUID] = b
	}
}

func (s *bundleSource) all() []client.BundleInfo {
	list := make([]client.BundleInfo, 0, len(s.known))
	for _, b := range s.known {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b client.BundleInfo) int { return strings.Compare(a.UUID, b.UUID) })
	return list
}

// readValues asks for the columns that are files: those of bundles that have not ended each time, of others once.
func (s *bundleSource) readValues(ctx context.Context, list []client.BundleInfo) error {
	if !slices.ContainsFunc(s.fields, isFile) {
		return nil
	}
	if s.values == nil {
		s.values = map[fileField]any{}
	}
	var changing []client.BundleInfo
	for _, b := range list {
		_, asked := s.values[fileField{b.UUID, ""}]
		if !asked {
			changing = append(changing, b)
		}
	}
	fresh, err := s.at.fileValues(ctx, changing, s.fields)
	if err != nil {
		return err
	}
	for at, v := range fresh {
		s.values[at] = v
	}
	for _, b := range changing {
		if ended(b.State) {
			s.values[fileField{b.UUID, ""}] = true
		}
	}
	return nil
}

// row is the row of a bundle.
func (s *bundleSource) row(b client.BundleInfo) livetable.Row {
	r := livetable.Row{
		UUID: b.UUID, Name: termtext.OneLine(b.Metadata.String("name")), State: b.State, Details: termtext.OneLine(briefDetails(b.Bundle)),
		Took: time.Duration(b.Metadata.Float("time") * float64(time.Second)), Created: b.Metadata.Int("created"),
	}
	for _, f := range s.fields {
		var text string
		var value any
		switch {
		case isFile(f):
			value = s.values[fileField{b.UUID, f}]
			text = fileText(value)
		case f == "state":
			value, text = string(b.State), string(b.State)
		case f == "time":
			value = b.Metadata[f]
			if took := r.Took; took > 0 {
				text = wholeSeconds(took)
			}
		default:
			value, text = fieldOf(b, f), cell(b, f)
		}
		r.Cells = append(r.Cells, termtext.OneLine(text))
		r.Keys = append(r.Keys, sortKey(value, text))
	}
	return r
}

// sortKey is a value by which rows are sorted: a number, or else the text of the cell.
func sortKey(value any, text string) any {
	switch n := value.(type) {
	case float64:
		return n
	case interface{ Float64() (float64, error) }: // a number of JSON
		if f, err := n.Float64(); err == nil {
			return f
		}
	}
	return text
}

// briefDetails is Details for a bundle in a list, in which it has few keys of metadata.
func briefDetails(b codalab.Bundle) string {
	if text := b.Details(); text != "" {
		return text
	}
	key := "run_status"
	if b.State == codalab.StateStaged {
		key = "staged_status"
	}
	if b.State.Final() {
		return ""
	}
	return b.Metadata.String(key)
}

// readEnd reads the last lines of a file, for a terminal.
func (s *bundleSource) readEnd(ctx context.Context, t codalab.Target) (string, error) {
	contents, err := s.at.OpenLines(ctx, t, 0, outputLines)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	lines := &termtext.Lines{To: termtext.NewWriter(&out)}
	_, err = io.Copy(lines, io.LimitReader(contents, outputBytes))
	return out.String(), errors.Join(err, contents.Close())
}
