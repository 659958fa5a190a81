package apptainer

import (
	"context"
	"errors"
)

// Converter writes images as SIFs. The zero value is usable, and a Converter
// may be used by several goroutines at once.
type Converter struct {
	// Registry is where images come from; its architecture is overruled by
	// the image's.
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
	// few hostile kilobytes cannot fill a disk; zero means 1 TiB and ten
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
	// contents while converting.
	Done, Total int64
}

// Settings names, in one short line, everything that decides how an image of
// a given digest and architecture is written: two SIFs of equal digest,
// architecture and settings hold the same.
func (c Converter) Settings() string { return "squashfs zstd 1 128K layout 1" }

// Convert writes the image as a SIF at dst, which must not exist and whose
// directory is the caller's own: other processes could see the file while it
// grows. When Convert returns nil the file is whole, verified against the
// image's digests, and flushed; else there is none. An error is an
// *ImageError, or wraps ctx's when that ended first.
//
// A progress that is not nil is called from one goroutine at a time, and must
// return quickly.
func (c Converter) Convert(ctx context.Context, img Image, dst string, progress func(Progress)) error {
	return errors.New("not implemented")
}
