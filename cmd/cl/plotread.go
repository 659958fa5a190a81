package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cmd/internal/plot"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/curve"
	"github.com/cl-slurm/cl-slurm/internal/rows"
)

// plotFiles is the most files that are read: each has points of its own in memory.
const plotFiles = 1_000

// plotMost is the number of series of a drawing.
const plotMost = plot.MostSeries

// plotter draws series of files of bundles.
type plotter struct {
	*cli
	at      *workspace
	o       plotOptions
	values  []plotValue
	bundles []client.BundleInfo
	// files are in the order of the bundles.
	files []*plotFile
	// keys are some that the files of a path have, for a hint.
	keys map[string][]string
}

// plotFile is a file of a bundle, which may be growing.
type plotFile struct {
	bundle codalab.Bundle
	path   string
	rows   rows.Reader
	// offset is the number of bytes that were read, and row the number of rows in them.
	offset int64
	row    int
	// missing is set while there is no file, and away while its worker does not answer.
	missing, away bool
	// noX counts rows without a number over which to draw.
	noX    int
	series []*plotSeries
	// keys are those of the first row.
	keys []string
}

// plotSeries are the numbers of a file at one key.
type plotSeries struct {
	file   *plotFile
	value  plotValue
	points curve.Thinned
	// wrong counts values that are no numbers, and first is the first of them.
	wrong int
	first string
}

func newPlotter(c *cli, at *workspace, o plotOptions, values []plotValue) *plotter {
	return &plotter{cli: c, at: at, o: o, values: values, keys: map[string][]string{}}
}

// paths are the paths of the values.
func (p *plotter) paths() (paths []string) {
	for _, v := range p.values {
		if !slices.Contains(paths, v.path) {
			paths = append(paths, v.path)
		}
	}
	return paths
}

// add adds the files of bundles.
func (p *plotter) add(bundles []client.BundleInfo) error {
	p.bundles = bundles
	if n := len(bundles) * len(p.paths()); n > plotFiles {
		return refusef("Files are read of at most %d bundles, and these are %d: choose fewer", plotFiles/len(p.paths()), len(bundles))
	}
	for _, b := range bundles {
		for _, path := range p.paths() {
			f := &plotFile{bundle: b.Bundle, path: path}
			for _, v := range p.values {
				if v.path == path {
					f.series = append(f.series, &plotSeries{file: f, value: v})
				}
			}
			f.restart()
			p.files = append(p.files, f)
		}
	}
	return nil
}

// restart forgets what was read.
func (f *plotFile) restart() {
	f.rows, f.offset, f.row, f.noX = rows.Reader{Kind: rows.KindOf(f.path)}, 0, 0, 0
	for _, s := range f.series {
		s.points, s.wrong, s.first = curve.Thinned{}, 0, ""
	}
}

// look reads what is new in the files, a few at a time.
func (p *plotter) look(ctx context.Context) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for _, f := range p.files {
		g.Go(func() error { return p.lookAt(within, f) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, f := range p.files {
		if len(p.keys[f.path]) == 0 {
			p.keys[f.path] = f.keys
		}
	}
	return nil
}

// lookAt reads what is new in a file. A run that has not ended may have no file yet, and no worker that answers.
func (p *plotter) lookAt(ctx context.Context, f *plotFile) error {
	err := p.readMore(ctx, f)
	f.missing = isAbsent(err)
	cut := errors.Is(err, io.ErrUnexpectedEOF) // the rest is read at the next look
	f.away = !f.missing && err != nil && ctx.Err() == nil && !f.bundle.State.Final() && (cut || transient(err))
	if f.missing || f.away {
		return nil
	}
	return err
}

func (p *plotter) readMore(ctx context.Context, f *plotFile) error {
	target := codalab.Target{BundleUUID: f.bundle.UUID, Subpath: f.path}
	info, err := p.at.ContentsInfo(ctx, target, 0)
	if err != nil {
		return err
	}
	if info.Resolved != nil {
		target = *info.Resolved
	}
	if info.Size < f.offset {
		f.restart()
	}
	var part *client.Range
	switch {
	case info.Type != codalab.TargetFile:
		return &codalab.Error{Status: 404, Message: f.path + " is no file"}
	case info.Size == f.offset:
		return nil
	case f.offset > 0:
		part = &client.Range{Offset: f.offset, Length: info.Size - f.offset}
	}
	in, err := p.at.OpenContents(ctx, target, part)
	if err != nil {
		return err
	}
	read, err := f.rows.Read(in, f.bundle.State.Final(), func(row map[string]any) { f.add(row, p.o.x) })
	f.offset += read
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("read %s: %w", target, err)
	}
	return nil
}

// add adds a row.
func (f *plotFile) add(row map[string]any, x string) {
	if f.row++; f.keys == nil {
		f.keys = slices.Sorted(maps.Keys(row))
	}
	at := float64(f.row)
	if x != "" {
		_, number, _ := codalab.ScalarValue(rows.Value(row, x))
		if number == nil {
			f.noX++
			return
		}
		at = *number
	}
	for _, s := range f.series {
		s.add(at, rows.Value(row, s.value.key))
	}
}

// add adds a value, nil for a row without one.
func (s *plotSeries) add(x float64, value any) {
	if value == nil {
		return
	}
	text, number, ok := codalab.ScalarValue(value)
	switch {
	case number != nil:
		s.points.Add(curve.Point{X: x, Y: *number})
		return
	case !ok:
		text = "a list or a dictionary"
	case text == "": // a table has a cell for each column
		return
	}
	if s.wrong++; s.wrong == 1 {
		s.first = text[:min(len(text), 40)]
	}
	s.points.Add(curve.Gap(x))
}

// drawn are the series that have a number.
func (p *plotter) drawn() (drawn []*plotSeries) {
	for _, f := range p.files {
		for _, s := range f.series {
			if s.points.HasNumber() {
				drawn = append(drawn, s)
			}
		}
	}
	return drawn
}
