package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cmd/internal/compare"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// The most that cl diff reads.
const (
	// diffText is the size of a file whose lines and values are shown.
	diffText = 256 << 10
	// diffFile and diffAll are the sizes of a file, and of all files of a side, that are read to compare them.
	diffFile = 16 << 20
	diffAll  = 256 << 20
	// diffDetails is the number of files whose insides are shown.
	diffDetails = 100
)

// diffReader compares the files of two sides.
type diffReader struct {
	a, b diffSide
	o    diffOptions
	// named is set if the user has named files: then larger ones are shown.
	named bool
}

// read adds the files that differ to a report.
func (d diffReader) read(ctx context.Context, r *diffReport) error {
	if d.a.at.Address() == d.b.at.Address() && d.a.base == d.b.base {
		return nil
	}
	tree := compare.Trees(d.a.tree, d.b.tree)
	r.SameFiles = tree.Same
	changed := tree.Differ
	more, err := d.readOpen(ctx, tree.Open, r)
	if err != nil {
		return err
	}
	changed = append(changed, more...)
	slices.SortFunc(changed, func(a, b compare.Pair) int { return strings.Compare(a.Path, b.Path) })
	for _, p := range changed {
		r.Files = append(r.Files, fileDiff{Path: p.Path, Change: changeOf(p), A: p.A, B: p.B})
	}
	for _, at := range tree.Deep {
		r.NotCompared = append(r.NotCompared, unreadFile{Path: at, Why: fmt.Sprintf("more than %d directories deep", diffLevels)})
	}
	if d.o.stat {
		return nil
	}
	return d.details(ctx, r.Files)
}

// changeOf names the change of an entry.
func changeOf(p compare.Pair) string {
	switch {
	case p.A == nil:
		return "added"
	case p.B == nil:
		return "removed"
	}
	return "changed"
}

// readOpen compares files of the same size, the smallest first, and returns those that differ.
func (d diffReader) readOpen(ctx context.Context, open []compare.Pair, r *diffReport) ([]compare.Pair, error) {
	open = slices.Clone(open)
	slices.SortStableFunc(open, func(a, b compare.Pair) int { return cmp.Compare(a.A.Size, b.A.Size) })
	outcomes := make([]struct{ same, unread bool }, len(open))
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	var sum int64
	for i, p := range open {
		if sum += p.A.Size; !d.o.whole && (p.A.Size > diffFile || sum > diffAll) {
			outcomes[i].unread = true
			continue
		}
		g.Go(func() (err error) {
			outcomes[i].same, err = d.sameContents(within, p.Path)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var differ []compare.Pair
	for i, p := range open {
		switch {
		case outcomes[i].unread:
			r.NotCompared = append(r.NotCompared, unreadFile{Path: p.Path, Size: p.A.Size, Why: whyLarge})
		case outcomes[i].same:
			r.SameFiles++
		default:
			differ = append(differ, p)
		}
	}
	slices.SortFunc(r.NotCompared, func(a, b unreadFile) int { return strings.Compare(a.Path, b.Path) })
	return differ, nil
}

// sameContents compares two files as they come.
func (d diffReader) sameContents(ctx context.Context, at string) (bool, error) {
	a, err := d.a.open(ctx, at)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := d.b.open(ctx, at)
	if err != nil {
		return false, err
	}
	defer b.Close()
	return equalStreams(a, b)
}

func (s diffSide) open(ctx context.Context, at string) (*client.Contents, error) {
	in, err := s.at.OpenContents(ctx, s.file(at), nil)
	if err != nil {
		return nil, err
	}
	if in.Type != codalab.TargetFile {
		return nil, errors.Join(refusef("%s is no file any more; try again", s.name(at)), in.Close())
	}
	return in, nil
}

// equalStreams reports whether two streams have the same bytes.
func equalStreams(a, b io.Reader) (bool, error) {
	const chunk = 64 << 10
	var chunkA, chunkB bytes.Buffer
	for {
		chunkA.Reset()
		chunkB.Reset()
		// Unlike io.ReadFull, io.CopyN tells the end of a stream from io.ErrUnexpectedEOF, that of a connection.
		_, errA := io.CopyN(&chunkA, a, chunk)
		_, errB := io.CopyN(&chunkB, b, chunk)
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) {
				return false, fmt.Errorf("read contents: %w", err)
			}
		}
		if !bytes.Equal(chunkA.Bytes(), chunkB.Bytes()) {
			return false, nil
		}
		if chunkA.Len() < chunk { // the end of both
			return true, nil
		}
	}
}

// details reads the insides of files that differ.
func (d diffReader) details(ctx context.Context, files []fileDiff) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	n := 0
	for i := range files {
		f := &files[i]
		switch {
		case f.A == nil || f.B == nil || f.A.Type != codalab.TargetFile || f.B.Type != codalab.TargetFile:
		case !d.shown(*f):
			f.Unshown = "large"
		case n >= diffDetails:
			f.Unshown = "many files differ"
		default:
			n++
			g.Go(func() error { return d.detail(within, f) })
		}
	}
	return g.Wait()
}

// shown reports whether the insides of a file are shown.
func (d diffReader) shown(f fileDiff) bool {
	most := int64(diffText)
	if d.named {
		most *= 4
	}
	return f.A.Size <= most && f.B.Size <= most
}

// detail reads the insides of one file.
func (d diffReader) detail(ctx context.Context, f *fileDiff) error {
	a, err := d.a.text(ctx, f.Path)
	if err != nil {
		return err
	}
	b, err := d.b.text(ctx, f.Path)
	if err != nil {
		return err
	}
	switch {
	case bytes.Equal(a, b): // only the mode differs
		return nil
	case !compare.IsText(a) || !compare.IsText(b):
		f.Unshown = "binary"
		return nil
	}
	name := f.Path
	if name == "" {
		name = path.Base(joinPath(d.a.bundle.Metadata.String("name"), d.a.target.Subpath))
	}
	if f.Values, _ = compare.Values(name, a, b); len(f.Values) > 0 && !d.o.text {
		return nil
	}
	f.Diff, err = compare.Text(d.a.name(f.Path), d.b.name(f.Path), string(a), string(b))
	return err
}

// text reads a small file.
func (s diffSide) text(ctx context.Context, at string) ([]byte, error) {
	in, err := s.open(ctx, at)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(in, 8*diffText))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.name(at), err)
	}
	return data, nil
}
