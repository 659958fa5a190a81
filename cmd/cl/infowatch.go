package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// infoWatch shows bundles again and again.
type infoWatch struct {
	*cli
	at              *workspace
	sheet           string
	specs           []string
	o               infoOptions
	fields, include []string
	me              codalab.User
	// screen is nil if the bundles come to no terminal. Then changes are printed.
	screen *repaint.Screen

	// bundles are those of the first look, with their last known states.
	bundles []client.BundleInfo
	// texts are the lines of each of them, and printed the last print of it.
	texts   [][]string
	objects []any
	printed []string
}

// watchInfo shows bundles until ctx ends: in place on a terminal; elsewhere first all of them, and then each that changes.
func (c *cli) watchInfo(ctx context.Context, at *workspace, specs []string, o infoOptions) (err error) {
	w := &infoWatch{cli: c, at: at, specs: specs, o: o}
	if w.fields, w.include, err = c.infoFields(o); err != nil {
		return err
	}
	if w.sheet, err = at.worksheetUUID(ctx); err != nil {
		return err
	}
	if t, ok := repaint.OnTerminal(c.Stdout, c.Getenv); ok && !c.asJSON {
		w.screen = t.Screen()
	}
	err = c.watchLoop(ctx, w.screen, w.look, w.show)
	if w.screen != nil {
		_ = w.screen.Close() // only a display
	}
	return err
}

// look asks for the bundles. Those of the first look stay, so that a position such as ^ means one bundle.
func (w *infoWatch) look(ctx context.Context) error {
	bundles := slices.Clone(w.bundles)
	if bundles == nil {
		found, err := w.at.Bundles(ctx, w.sheet, w.specs, w.include...)
		if err != nil {
			return &placeError{error: err, at: w.at, specs: w.specs}
		}
		bundles = found
	} else if err := w.refresh(ctx, bundles); err != nil {
		return err
	}
	if w.me.ID == "" {
		me, err := w.at.User(ctx)
		if err != nil {
			return err
		}
		w.me = me
	}
	if err := w.describe(ctx, bundles); err != nil {
		return err
	}
	w.bundles = bundles
	return nil
}

// refresh asks for the bundles that were not removed.
func (w *infoWatch) refresh(ctx context.Context, bundles []client.BundleInfo) error {
	var uuids []string
	for _, b := range bundles {
		if b.State != tally.Removed {
			uuids = append(uuids, b.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil
	}
	found, gone, err := w.at.again(ctx, w.sheet, uuids, nil, w.include...)
	if err != nil {
		return err
	}
	for i := range bundles {
		for _, b := range found {
			if b.UUID == bundles[i].UUID {
				bundles[i] = b
			}
		}
		if slices.Contains(gone, bundles[i].UUID) {
			bundles[i].State = tally.Removed
		}
	}
	return nil
}

// describe sets the texts and objects of bundles.
func (w *infoWatch) describe(ctx context.Context, bundles []client.BundleInfo) error {
	values, err := w.at.fileValues(ctx, slices.DeleteFunc(slices.Clone(bundles), func(b client.BundleInfo) bool { return b.State == tally.Removed }), w.fields)
	if err != nil {
		return err
	}
	texts, objects := make([][]string, len(bundles)), make([]any, len(bundles))
	for i, b := range bundles {
		switch {
		case b.State == tally.Removed:
			texts[i], objects[i] = []string{bundleText(b.Bundle) + " was removed"}, map[string]any{"uuid": b.UUID, "removed": true}
		case w.fields != nil:
			one := viewFields(bundles[i:i+1], w.fields, values)[0]
			one["uuid"] = b.UUID
			texts[i], objects[i] = []string{fieldLine(b, w.fields, values)}, one
		default:
			texts[i], objects[i] = strings.Split(strings.Join(w.infoLines(ctx, w.at, w.me, b, w.o), "\n"), "\n"), viewBundle(b)
		}
	}
	w.texts, w.objects = texts, objects
	return nil
}

// show shows what the last look has found.
func (w *infoWatch) show(m moment) error {
	switch {
	case w.screen != nil:
		return w.screen.Show(w.lines(m))
	case m.away:
		return nil
	}
	if w.printed == nil {
		w.printed = make([]string, len(w.bundles))
	}
	for i := range w.bundles {
		text, err := w.text(i)
		if err != nil {
			return err
		}
		if text == w.printed[i] {
			continue
		}
		if w.printed[i] = text; !w.asJSON && w.fields == nil {
			text += "\n" // a blank line
		}
		if err := w.print(text); err != nil {
			return err
		}
	}
	return nil
}

// text is a bundle as it is printed.
func (w *infoWatch) text(i int) (string, error) {
	if !w.asJSON {
		return strings.Join(w.texts[i], "\n"), nil
	}
	line, err := json.Marshal(w.objects[i])
	if err != nil {
		return "", fmt.Errorf("print JSON: %w", err)
	}
	return string(line), nil
}

// lines are the lines on the screen, painted. The last one counts those that do not fit.
func (w *infoWatch) lines(m moment) []string {
	p := w.palette(w.Stdout)
	lines := []string{watchStatus(w.bundles, m, p.Faint)}
	for i, b := range w.bundles {
		if i > 0 && w.fields == nil {
			lines = append(lines, "")
		}
		if w.fields != nil {
			lines = append(lines, termtext.OneLine(strings.ReplaceAll(w.texts[i][0], "\t", "  ")))
		} else {
			lines = append(lines, painted(w.texts[i], b.State, p)...)
		}
	}
	if _, height := w.screen.Size(); len(lines) > height && height > 1 {
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… %d more lines", len(lines)-height+1))
	}
	return lines
}
