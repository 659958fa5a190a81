package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/rows"
)

// readAtOnce is the number of files, or of questions for values, that are under way at a time.
const readAtOnce = 8

// fileField is a field of a bundle that is in one of its files.
type fileField struct{ uuid, field string }

// fileValues asks for all fields of bundles that are in files. CodaLab's own server reads one file after another for each
// question, so that questions are small, and a few are under way at a time.
func (w *workspace) fileValues(ctx context.Context, bundles []client.BundleInfo, fields []string) (map[fileField]any, error) {
	var queries []codalab.FileQuery
	lines := map[codalab.Target][]string{} // the fields of files of rows
	for _, b := range bundles {
		for _, f := range fields {
			if r, isRow := parseRowField(f); isRow {
				at := codalab.Target{BundleUUID: b.UUID, Subpath: r.path}
				lines[at] = append(lines[at], f)
			} else if isFile(f) {
				queries = append(queries, codalab.FileQuery{BundleUUID: b.UUID, Genpath: f})
			}
		}
	}
	if len(lines) > mostRead {
		return nil, refusef("Last rows are read of at most %d files, and these are %d: choose fewer bundles, with .limit", mostRead, len(lines))
	}
	r := valueReader{workspace: w, values: map[fileField]any{}, count: w.owner.reading(len(queries) + len(lines))}
	defer r.count.end()
	if err := r.lastRows(ctx, lines); err != nil {
		return nil, err
	}
	return r.values, r.ask(ctx, queries)
}

// valueReader reads values in files. Its goroutines hold mu while they use the others.
type valueReader struct {
	*workspace
	mu     sync.Mutex
	values map[fileField]any
	count  *reading
}

// lastRows reads the last rows of files, and adds the fields in them. A bundle without the file has no value.
func (r *valueReader) lastRows(ctx context.Context, files map[codalab.Target][]string) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for at, names := range files {
		g.Go(func() error {
			row, err := r.lastRow(within, at)
			if err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, name := range names {
				field, _ := parseRowField(name)
				r.values[fileField{at.BundleUUID, name}] = rows.Value(row, field.key)
			}
			r.count.add(1)
			return nil
		})
	}
	return g.Wait()
}

// ask asks for the values of other files.
func (r *valueReader) ask(ctx context.Context, queries []codalab.FileQuery) error {
	g, within := errgroup.WithContext(ctx)
	size := batchSize(firstBatch)
	for range readAtOnce {
		g.Go(func() error {
			for {
				r.mu.Lock()
				n := min(int(size), len(queries))
				batch := queries[:n]
				queries = queries[n:]
				r.mu.Unlock()
				if n == 0 {
					return nil
				}
				asked := r.owner.Now()
				found, err := r.FileValues(within, batch)
				if err != nil {
					return err
				}
				r.mu.Lock()
				for i, v := range found {
					r.values[fileField{batch[i].BundleUUID, batch[i].Genpath}] = v
				}
				size = size.after(r.owner.Now().Sub(asked))
				r.count.add(n)
				r.mu.Unlock()
			}
		})
	}
	return g.Wait()
}

// batchSize is the number of files of a question.
type batchSize int

const (
	firstBatch = 16
	mostBatch  = 1024
)

// after returns the size of the next questions after one that took so long: a quick server gets fewer and larger ones.
func (s batchSize) after(took time.Duration) batchSize {
	switch {
	case took < 200*time.Millisecond:
		return min(2*s, mostBatch)
	case took > time.Second:
		return max(s/2, 1)
	}
	return s
}

// reading counts on the terminal how many files were read, if that takes long.
type reading struct {
	line      *repaint.Line // nil for none
	now       func() time.Time
	begun     time.Time
	done, all int
}

// reading begins to count.
func (c *cli) reading(all int) *reading {
	r := &reading{now: c.Now, begun: c.Now(), all: all}
	if !c.quiet && !c.drawing {
		r.line = c.statusLine()
	}
	return r
}

func (r *reading) add(n int) {
	if r.done += n; r.line != nil && r.now().Sub(r.begun) > showAfter {
		_ = r.line.Show(fmt.Sprintf("%d of %d files read", r.done, r.all)) // only a display
	}
}

// end removes the count.
func (r *reading) end() {
	if r.line != nil {
		_ = r.line.Clear() // only a display
	}
}
