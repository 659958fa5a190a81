package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/cmd/internal/plot"
	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The size of a drawing for a pipe, and the most lines of one on a terminal.
const (
	plotWidth  = 80
	plotHeight = 20
	plotTall   = 24
)

// plotView is a series in JSON.
type plotView struct {
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	State string `json:"state"`
	Value string `json:"value"`
	// Points are pairs of numbers; null is a gap.
	Points [][2]*float64 `json:"points"`
	// Thinned is set if of each section only the lowest and the highest point are there.
	Thinned bool `json:"thinned"`
}

func (p *plotter) printPoints() error {
	views := []plotView{}
	for _, s := range p.drawn() {
		b := s.file.bundle
		v := plotView{UUID: b.UUID, Name: b.Metadata.String("name"), State: string(b.State), Value: s.value.word, Points: [][2]*float64{}, Thinned: s.points.IsThin()}
		for _, point := range s.points.Points() {
			pair := [2]*float64{&point.X, &point.Y}
			if math.IsNaN(point.Y) {
				pair[1] = nil
			}
			v.Points = append(v.Points, pair)
		}
		views = append(views, v)
	}
	return p.printJSON(views)
}

func (p *plotter) printTable() error {
	number := func(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
	x := p.o.x
	if x == "" {
		x = "row"
	}
	table := [][]string{{"uuid", "name", "value", x, "y"}}
	thin := 0
	for _, s := range p.drawn() {
		b := s.file.bundle
		for _, point := range s.points.Points() {
			table = append(table, []string{b.UUID, b.Metadata.String("name"), s.value.word, number(point.X), number(point.Y)})
		}
		if s.points.IsThin() {
			thin++
		}
	}
	if thin > 0 {
		p.warn("%s more points than are printed: the lowest and the highest of each section. cl cat prints a file.", have(thin))
	}
	return p.writeCSV(table)
}

// have is "1 series has" or "2 series have".
func have(n int) string {
	if n == 1 {
		return "1 series has"
	}
	return fmt.Sprintf("%d series have", n)
}

// draw prints the drawing.
func (p *plotter) draw() error {
	width, height := plotWidth, plotHeight
	t, ok := repaint.OnTerminal(p.Stdout, p.Getenv)
	if ok {
		width, height = t.Size()
		height = min(height-1, plotTall)
	} else if w := screenWidth(p.Stdout); w != nil {
		width = w()
	}
	if p.o.width > 0 {
		width = p.o.width
	}
	if p.o.height > 0 {
		height = p.o.height
	}
	lines := p.chart(width, height, p.style(ok)).Lines()
	if lines == nil {
		return refusef("There is nothing to draw: no number is above 0, as --log needs")
	}
	if _, err := io.WriteString(termtext.Raw(p.Stdout), strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// plotStyles are the values of --style.
func plotStyles() []string { return []string{"braille", "box", "ascii"} }

// style returns the style that the user wants; else ASCII for a pipe, and for a terminal Braille if it has the characters:
// its locale is one of UTF-8, and it is not the console of Linux or the old one of Windows, whose fonts lack them.
func (p *plotter) style(terminal bool) plot.Style {
	locale := strings.ToLower(cmp.Or(p.Getenv("LC_ALL"), p.Getenv("LC_CTYPE"), p.Getenv("LANG")))
	unicode := p.Getenv("WT_SESSION") != "" || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	switch {
	case p.o.style == "ascii" || p.o.style == "" && !terminal:
		return plot.ASCII
	case p.o.style == "braille" || p.o.style == "" && unicode && p.Getenv("TERM") != "linux":
		return plot.Braille
	}
	return plot.Box
}

// chart is the drawing for a screen.
func (p *plotter) chart(width, height int, style plot.Style) plot.Chart {
	var words []string
	for _, v := range p.values {
		words = append(words, termtext.OneLine(v.word))
	}
	x := p.o.x
	if x == "" {
		x = "row"
	}
	drawn := p.drawn()
	c := plot.Chart{
		Title: strings.Join(words, ", ") + " over " + termtext.OneLine(x), Width: width, Height: height, Style: style,
		Colour: bool(p.palette(p.Stdout)), Log: p.o.log,
	}
	if len(drawn) == 1 {
		c.Title = termtext.OneLine(drawn[0].file.bundle.Metadata.String("name")) + ": " + c.Title
	}
	names := seriesNames(drawn, len(p.values) > 1)
	for i, s := range drawn {
		c.Series = append(c.Series, plot.Series{Name: termtext.OneLine(names[i]), Points: s.points.Points()})
	}
	return c
}

// seriesNames names series by their bundles; those whose bundles have one name, by their settings in a sweep or their
// uuids, too.
func seriesNames(series []*plotSeries, values bool) []string {
	uuids := map[string]map[string]bool{}
	for _, s := range series {
		name := s.file.bundle.Metadata.String("name")
		if uuids[name] == nil {
			uuids[name] = map[string]bool{}
		}
		uuids[name][s.file.bundle.UUID] = true
	}
	names := make([]string, len(series))
	for i, s := range series {
		b := s.file.bundle
		name := b.Metadata.String("name")
		if len(uuids[name]) > 1 {
			settings := b.Metadata.Settings()
			for _, one := range settings {
				name += " " + one.Name + "=" + one.Value
			}
			if len(settings) == 0 {
				name += "(" + shortUUID(b.UUID) + ")"
			}
		}
		if values {
			name += " " + s.value.word
		}
		names[i] = name
	}
	return names
}

// watch draws anew until all bundles have ended, and leaves the last drawing on the terminal.
func (p *plotter) watch(ctx context.Context) error {
	t, ok := repaint.OnTerminal(p.Stdout, p.Getenv)
	if !ok {
		return refusef("--watch draws on a terminal, and this is none")
	}
	screen := t.Screen()
	err := p.redraw(ctx, screen)
	if e := screen.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return p.print()
}

func (p *plotter) redraw(ctx context.Context, screen *repaint.Screen) error {
	err := p.watchLoop(ctx, screen, p.refresh, func(m moment) error {
		if len(p.drawn()) > plotMost { // more never become fewer
			return p.check()
		}
		width, height := screen.Size()
		status := watchStatus(p.bundles, m, p.palette(p.Stdout).Faint)
		err := screen.Show(append([]string{status}, p.chart(width, height-1, p.style(true)).Lines()...))
		if err == nil && !m.away && p.ended() {
			return errWatched
		}
		return err
	})
	if errors.Is(err, errWatched) {
		return nil
	}
	return err
}

// refresh asks for the states of the bundles, and then reads what is new in their files. So a file is read to its end after
// its run has ended.
func (p *plotter) refresh(ctx context.Context) error {
	var uuids []string
	for _, b := range p.bundles {
		if !b.State.Final() {
			uuids = append(uuids, b.UUID)
		}
	}
	if len(uuids) > 0 {
		found, err := p.at.Bundles(ctx, "", uuids)
		if err != nil {
			return err
		}
		for i, b := range p.bundles {
			for _, now := range found {
				if now.UUID == b.UUID {
					p.bundles[i] = now
				}
			}
		}
		for _, f := range p.files {
			for _, now := range found {
				if now.UUID == f.bundle.UUID {
					f.bundle = now.Bundle
				}
			}
		}
	}
	return p.look(ctx)
}
