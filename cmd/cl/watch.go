package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/cmd/internal/tally"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The pause between two looks of a list that is watched is watchEvery, or longer on a slow server: at least watchShare
// times as long as a look takes.
const (
	watchEvery = time.Second
	watchShare = 4
	// watchMost bounds the pause, because a computer that sleeps during a look makes that look long.
	watchMost = time.Minute
)

// watchPause is the pause after a look that took so long. failures is the number of looks in a row that have failed.
func watchPause(took time.Duration, failures int) time.Duration {
	if failures > 0 {
		return backoff.After(failures, firstRetry, mostRetry)
	}
	return min(max(watchEvery, watchShare*took), watchMost)
}

// watch shows a list again and again.
type watch struct {
	*cli
	l      *listing
	fields []string
	look   func(context.Context) (listed, error)
	// screen is nil if the list comes to no terminal. Then changes are printed.
	screen *repaint.Screen
	// shown are the rows, by uuid, as they were printed.
	shown map[string]string
}

// watchBundles shows a list until ctx ends: in place on a terminal; elsewhere first all of it, and then each change as a
// line.
func (c *cli) watchBundles(ctx context.Context, l *listing, fields []string, look func(context.Context) (listed, error)) error {
	if l.uuidOnly {
		return refusef("--watch shows how bundles change, and -u only their uuids: give one of them")
	}
	w := &watch{cli: c, l: l, fields: fields, look: look}
	if t, ok := repaint.OnTerminal(c.Stdout, c.Getenv); ok && !c.asJSON {
		w.screen, c.drawing = t.Screen(), true
	}
	err := w.run(ctx)
	if w.screen != nil {
		_ = w.screen.Close() // only a display
	}
	return err
}

func (w *watch) run(ctx context.Context) error {
	var last listed
	var t table
	look := func(ctx context.Context) error {
		found, fresh, err := w.ask(ctx)
		if err == nil {
			last, t = found, fresh
		}
		return err
	}
	return w.watchLoop(ctx, w.screen, look, func(m moment) error { return w.show(ctx, last, t, m) })
}

// moment is the state of a watch: the time, the time of the last answer, and whether the server is away since.
type moment struct {
	now, answered time.Time
	away          bool
}

// errWatched ends a watch that has shown everything.
var errWatched = errors.New("nothing more changes")

// watchLoop looks again and again, and shows what the last look has found, until ctx ends or show fails. screen is nil where
// there is no terminal.
func (c *cli) watchLoop(ctx context.Context, screen *repaint.Screen, look func(context.Context) error, show func(moment) error) error {
	server := outage{answered: c.Now()}
	for {
		asked := c.Now()
		failure := look(ctx)
		now := c.Now()
		if server.ends(failure, now) && (ctx.Err() != nil || screen == nil || !server.known || !transient(failure)) {
			return failure
		}
		if screen == nil {
			server.say(c, failure)
		}
		draw := func() error { return show(moment{c.Now(), server.answered, failure != nil}) }
		if err := draw(); err != nil {
			return err
		}
		if err := rest(ctx, screen, watchPause(now.Sub(asked), server.failures), draw); err != nil {
			return err
		}
	}
}

// ask is one look.
func (w *watch) ask(ctx context.Context) (listed, table, error) {
	found, err := w.look(ctx)
	if err != nil {
		return listed{}, table{}, err
	}
	t, err := found.table(ctx, w.fields)
	return found, t, err
}

// resizeEvery is the pause between two looks at the size of the terminal.
const resizeEvery = 250 * time.Millisecond

// rest pauses, and draws anew when the terminal has another size.
func rest(ctx context.Context, screen *repaint.Screen, d time.Duration, draw func() error) error {
	if screen == nil {
		return pause.For(ctx, d)
	}
	for ; d > 0; d -= resizeEvery {
		if err := pause.For(ctx, min(d, resizeEvery)); err != nil {
			return err
		}
		if screen.Resized() {
			if err := draw(); err != nil {
				return err
			}
		}
	}
	return nil
}

// show shows the last answer of the server.
func (w *watch) show(ctx context.Context, found listed, t table, m moment) error {
	switch {
	case w.screen != nil:
		status := watchStatus(found.bundles, m, w.palette(w.Stdout).Faint)
		_, height := w.screen.Size()
		return w.screen.Show(fitted(status, w.onTerminal(t, found.bundles), found.refs != nil, height))
	case m.away:
		return nil
	case w.asJSON:
		return w.printObjects(ctx, found)
	}
	return w.printRows(found, t)
}

// watchStatus is the line above a list that is watched.
func watchStatus(bundles []client.BundleInfo, m moment, faint func(string) string) string {
	var t tally.Tally
	for _, b := range bundles {
		t.Add(b.State)
	}
	text := m.answered.Local().Format(time.TimeOnly) + "  " + t.String()
	if m.away {
		text = "The server has not answered for " + wholeSeconds(m.now.Sub(m.answered)) + ". At " + text
	}
	return faint(text)
}

// fitted are the lines of a list on a terminal of some rows: the status, the heads of the columns, and the newest rows
// that fit. They are the last ones of a worksheet, and the first ones of a search.
func fitted(status string, t table, newestLast bool, height int) []string {
	lines := t.lines()
	head, rows := lines[:2], lines[2:]
	if room := max(height-4, 0); len(rows) > max(height-3, 0) {
		left := fmt.Sprintf("… %d more", len(rows)-room)
		if newestLast {
			rows = append([]string{left}, rows[len(rows)-room:]...)
		} else {
			rows = append(slices.Clone(rows[:room]), left)
		}
	}
	return slices.Concat([]string{status}, head, rows)
}

// printRows prints the rows that have changed since they were printed, and the uuids of those that are no longer there.
func (w *watch) printRows(found listed, t table) error {
	first := w.shown == nil
	now := map[string]string{}
	lines := w.onTerminal(t, found.bundles).lines()
	var out []string
	if first {
		out = append(out, lines[:2]...)
	}
	for i, b := range found.bundles {
		cells := t.rows[i]
		if found.refs != nil {
			cells = cells[1:] // a new bundle changes the positions of all others
		}
		now[b.UUID] = strings.Join(cells, "\x00")
		if before, ok := w.shown[b.UUID]; !ok || before != now[b.UUID] {
			out = append(out, lines[2+i])
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(w.shown)) {
		if _, ok := now[uuid]; !ok {
			out = append(out, uuid+" is no longer in the list")
		}
	}
	w.shown = now
	if len(out) == 0 {
		return nil
	}
	to := w.Stdout
	if w.palette(w.Stdout) {
		to = termtext.Raw(to) // the cells are escaped
	}
	_, err := io.WriteString(to, strings.Join(out, "\n")+"\n")
	return err
}

// printObjects prints each bundle that has changed as a line of JSON, and one of its uuid and "removed" for each that is
// no longer there.
func (w *watch) printObjects(ctx context.Context, found listed) error {
	objects := map[string]any{}
	if w.l.cmd.Flags().Changed("field") {
		values, err := found.at.fileValues(ctx, found.bundles, w.fields)
		if err != nil {
			return err
		}
		for i, one := range viewFields(found.bundles, w.fields, values) {
			one["uuid"] = found.bundles[i].UUID
			objects[found.bundles[i].UUID] = one
		}
	} else {
		for i, one := range viewBundles(found.bundles) {
			objects[found.bundles[i].UUID] = one
		}
	}
	now := map[string]string{}
	for _, b := range found.bundles {
		line, err := json.Marshal(objects[b.UUID])
		if err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		now[b.UUID] = string(line)
		if w.shown[b.UUID] == string(line) {
			continue
		}
		if err := w.print(string(line)); err != nil {
			return err
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(w.shown)) {
		if _, ok := now[uuid]; !ok {
			if err := w.print(fmt.Sprintf(`{"uuid":%q,"removed":true}`, uuid)); err != nil {
				return err
			}
		}
	}
	w.shown = now
	return nil
}
