package interpret

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
)

// resolve reads the files of blocks (codalab/rest/interpret.py: resolve_interpreted_blocks). A block
// whose files cannot be read becomes markup with the reason. For a brief answer resolve leaves tables
// unchanged.
func (in Interpreter) resolve(ctx context.Context, blocks []block, o Options) error {
	f := in.files()
	for i, b := range blocks {
		if b == nil {
			continue
		}
		err := f.resolve(ctx, b, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var mistake *UsageError
		switch {
		case err == nil:
			b.refine()
		case errors.As(err, &mistake):
			blocks[i] = newMarkup("ERROR: " + mistake.Message)
		case errors.Is(err, fs.ErrPermission):
			blocks[i] = newMarkup("ERROR: You do not have sufficient permissions to read this file.")
		default:
			in.Log.ErrorContext(ctx, "cannot read a file for a worksheet", slog.Any("error", err))
			blocks[i] = newMarkup("ERROR: Unexpected error interpreting item")
		}
	}
	return nil
}

func (f *files) resolve(ctx context.Context, b block, o Options) error {
	switch b := b.(type) {
	case *tableBlock:
		return f.resolveTable(ctx, b, o.Brief)
	case *contentsBlock:
		return f.resolveContents(ctx, b)
	case *imageBlock:
		if o.withoutImages {
			return f.findImage(ctx, b)
		}
		return f.resolveImage(ctx, b)
	case *graphBlock:
		return f.resolveGraph(ctx, b)
	}
	return nil
}

func (f *files) resolveTable(ctx context.Context, t *tableBlock, brief bool) error {
	t.Status.Code = codeReady
	for _, row := range t.Rows {
		for key, value := range row {
			cell, ok := value.(target)
			switch {
			case !ok:
			case brief:
				t.Status.Code = codeBriefly
			default:
				value, err := f.value(ctx, cell)
				if err != nil {
					return err
				}
				row[key] = value
			}
		}
	}
	return nil
}

func (f *files) resolveContents(ctx context.Context, c *contentsBlock) error {
	lines, err := f.shownHead(ctx, fileKey{c.uuid, c.TargetGenpath}, c.MaxLines)
	c.Status.Code = codeReady
	switch {
	case errors.Is(err, ErrDirectory):
		lines = []string{"<directory>"}
	case errors.Is(err, fs.ErrNotExist):
		c.Status.Code = codeNotFound
		return nil
	case err != nil:
		return err
	}
	c.Lines = append([]string{}, lines...)
	return f.countBytes(length(lines))
}

// length is the number of bytes of lines in an answer, whole or as points.
func length(lines []string) int64 {
	total := int64(0)
	for _, line := range lines {
		total += int64(len(line)) + 3*int64(strings.Count(line, "\t")) + 3
	}
	return total
}

func (f *files) resolveImage(ctx context.Context, i *imageBlock) error {
	data, err := f.load(ctx, fileKey{i.uuid, i.TargetGenpath}, maxImage+1)
	switch {
	case errors.Is(err, ErrDirectory) || errors.Is(err, fs.ErrNotExist):
		i.Status.Code = codeNotFound
		return nil
	case err != nil:
		return err
	case len(data) > maxImage:
		return usage("the image is larger than %d MiB", maxImage>>20)
	}
	i.Status.Code = codeReady
	text := base64.StdEncoding.EncodeToString(data)
	i.ImageData = &text
	return f.countBytes(int64(len(text)))
}

// findImage finds out whether the user may read the file of an image, and it exists. It asks no worker, which may be slow to tell.
func (f *files) findImage(ctx context.Context, i *imageBlock) error {
	if info := i.BundleInfos[0]; info != nil && info.bundle != nil && info.bundle.State.OnWorker() {
		return nil
	}
	_, err := f.load(ctx, fileKey{i.uuid, i.TargetGenpath}, 1)
	if errors.Is(err, ErrDirectory) || errors.Is(err, fs.ErrNotExist) {
		i.Status.Code = codeNotFound
		return nil
	}
	return err
}

// resolveGraph reads the points of a graph. Each line of a file is a point.
func (f *files) resolveGraph(ctx context.Context, g *graphBlock) error {
	for _, t := range g.Trajectories {
		lines, err := f.head(ctx, fileKey{t.BundleUUID, t.TargetGenpath}, g.MaxLines)
		if errors.Is(err, ErrDirectory) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := f.countBytes(length(lines)); err != nil {
			return err
		}
		for _, line := range lines {
			t.Points = append(t.Points, strings.Split(line, "\t"))
		}
	}
	return nil
}
