package apptainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Converter writes images as SIFs. The zero value is usable, and a Converter
// may be used by several goroutines at once.
type Converter struct {
	// Registry is where images come from.
	Registry Registry
	// TempDir holds an image's compressed layers while it is converted; empty
	// means the directory that the SIF is written to.
	TempDir string
	// Processors bounds how many processors one conversion keeps busy; zero
	// means two.
	Processors int
	// MemoryMiB bounds the memory of the squashfs writer; zero means 512.
	MemoryMiB int
	// MaxBytes and MaxEntries bound what an image may unpack to, so that a
	// few hostile kilobytes cannot fill a disk; zero means 1 TiB and two
	// million.
	MaxBytes   int64
	MaxEntries int
}

// Stage says what a conversion is doing.
type Stage string

// The stages of a conversion, in order. Pulling reads and checks the layers;
// Converting writes the file system.
const (
	Pulling    Stage = "pulling"
	Converting Stage = "converting"
)

// Progress says how far a conversion is.
type Progress struct {
	// Stage is what is being done.
	Stage Stage
	// Done and Total count bytes: of compressed layers while pulling, of file
	// contents while converting, where Done also counts what frames them and
	// may pass Total by a little.
	Done, Total int64
}

// maxNameBytes bounds the memory that the names in an image take.
const maxNameBytes = 256 << 20

// Settings names, in one short line, everything that decides how an image of
// a given digest and architecture is written: two SIFs of equal digest,
// architecture and settings hold the same files.
func (c Converter) Settings() string { return "squashfs zstd-1 128K layout-1" }

// Convert writes the image as a SIF at dst, which must not exist and whose
// directory is the caller's own: other processes could see the file while it
// grows. When Convert returns nil the file is whole, verified against the
// image's digests, and flushed; else there is none. Owners, modes, time stamps
// in whole seconds, hard links and file capabilities are the image's; other
// extended attributes are dropped, and the root directory belongs to root. An
// error is an *ImageError; it wraps ctx's when that ended first.
//
// A progress that is not nil is called from one goroutine at a time, and must
// return quickly.
func (c Converter) Convert(ctx context.Context, img Image, dst string, progress func(Progress)) error {
	dir := c.TempDir
	if dir == "" {
		dir = filepath.Dir(dst)
	}
	temp, err := os.MkdirTemp(dir, "layers-")
	if err != nil {
		return imageError(ctx, img.Reference, fmt.Errorf("make room for its layers: %w", err))
	}
	room := &budget{}
	room.entries.Store(int64(c.maxEntries()))
	room.bytes.Store(c.maxBytes())
	room.nameBytes.Store(maxNameBytes)
	image, err := c.Registry.pull(ctx, img, temp, room, progress)
	if err == nil {
		err = c.write(ctx, img, image, dst, progress)
	}
	if cleanErr := os.RemoveAll(temp); err == nil && cleanErr != nil {
		err = errors.Join(fmt.Errorf("remove its layers: %w", cleanErr), os.Remove(dst))
	}
	return imageError(ctx, img.Reference, err)
}

// write flattens the pulled layers into dst.
func (c Converter) write(ctx context.Context, img Image, image pulled, dst string, progress func(Progress)) error {
	t := newTree(c.maxEntries())
	for i := range image.layers {
		if ctx.Err() != nil {
			return fmt.Errorf("flatten: %w", ctx.Err())
		}
		if err := t.apply(image.layers[i].entries); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(image.layers), err)
		}
		image.layers[i].entries = nil
	}
	extra, err := metadataLayer(t, image.config)
	if err != nil {
		return err
	}
	entries, err := readEntries(bytes.NewReader(extra), nil)
	if err == nil {
		err = t.apply(entries)
	}
	if err != nil {
		return fmt.Errorf("add Apptainer's files: %w", err)
	}
	report := newReporter(Converting, progress)
	w := sifWriter{converter: c, image: img, config: image.config, plan: t.plan(), report: report}
	report.total = w.plan.bytes
	w.open = func(i int) (io.ReadCloser, error) {
		if i == len(image.layers) {
			return io.NopCloser(bytes.NewReader(extra)), nil
		}
		return image.layers[i].open()
	}
	return w.write(ctx, dst)
}

func (c Converter) processors() int {
	if c.Processors == 0 {
		return 2
	}
	return c.Processors
}

func (c Converter) memoryMiB() int {
	if c.MemoryMiB == 0 {
		return 512
	}
	return c.MemoryMiB
}

func (c Converter) maxBytes() int64 {
	if c.MaxBytes == 0 {
		return 1 << 40
	}
	return c.MaxBytes
}

func (c Converter) maxEntries() int {
	if c.MaxEntries == 0 {
		return 2_000_000
	}
	return c.MaxEntries
}
