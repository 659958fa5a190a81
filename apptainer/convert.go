package apptainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// Converter writes images as SIFs. The zero value is usable. Several goroutines may use a Converter
// at the same time.
type Converter struct {
	// Source reads the images.
	Source source.Source
	// TempDir holds an image's compressed layers during a conversion, in a directory named for the
	// image; empty means the directory of the SIF.
	TempDir string
	// Compression is the compression of the file system: "zstd", "gzip", "lz4" or "xz"; empty means
	// zstd. The kernel or program that mounts the SIF must support it.
	Compression string
	// Level is the compression level of zstd or gzip, from 1; zero means 1. The
	// tools' own defaults cost ten times the time for a tenth of the size.
	Level int
	// BlockSize is the file system's block size in bytes, a power of two from 4 KiB to 1 MiB; zero
	// means 128 KiB.
	BlockSize int
	// Processors limits the processors of the program that writes the file system. One or two more
	// unpack layers. Zero means DefaultProcessors.
	Processors int
	// MemoryMiB limits that program's memory; zero means DefaultMemoryMiB.
	MemoryMiB int
	// Mksquashfs and Tar2sqfs are the programs that write the file system; empty means that they
	// are searched on the PATH. The package comment explains the choice between them.
	Mksquashfs, Tar2sqfs string
	// Nice is added to the nice value of pulling, unpacking and writing, in this process and in
	// those programs (nice(1)).
	Nice int
	// Reserve returns the bytes that must stay free on the SIF's disk, given the disk's size; nil
	// means none.
	Reserve func(total int64) int64
	// MaxBytes and MaxEntries limit the unpacked image, so that a few hostile kilobytes cannot fill
	// a disk; zero means 256 GiB and two million. A SIF of more than twice the size of its layers may
	// also not use the bytes of Reserve.
	MaxBytes   int64
	MaxEntries int
}

// Defaults of a Converter's fields. More memory does not reduce mksquashfs's processor time.
const (
	DefaultProcessors = 2
	DefaultMemoryMiB  = 128
)

const (
	// maxNameBytes limits the memory for the names in an image.
	maxNameBytes = 256 << 20
	// maxCrowd limits the names in one directory. mksquashfs 4.5 takes half a minute for 50,000, and
	// half an hour for as many as this.
	maxCrowd = 400_000
)

func (c Converter) withDefaults() Converter {
	c.Compression = cmp.Or(c.Compression, "zstd")
	if c.hasLevels() {
		c.Level = cmp.Or(c.Level, 1)
	}
	c.BlockSize = cmp.Or(c.BlockSize, 128<<10)
	c.Processors = cmp.Or(c.Processors, DefaultProcessors)
	c.MemoryMiB = cmp.Or(c.MemoryMiB, DefaultMemoryMiB)
	c.Mksquashfs = cmp.Or(c.Mksquashfs, "mksquashfs")
	c.Tar2sqfs = cmp.Or(c.Tar2sqfs, "tar2sqfs")
	c.MaxBytes = cmp.Or(c.MaxBytes, sifconfig.MaxBytes)
	c.MaxEntries = cmp.Or(c.MaxEntries, sifconfig.MaxEntries)
	return c
}

func (c Converter) hasLevels() bool { return c.Compression == "zstd" || c.Compression == "gzip" }

// maxLayerBytes limits the sum of all layers, packed or not, including their tar headers. An image
// within the other limits stays far below it.
func (c Converter) maxLayerBytes() int64 { return 2*c.MaxBytes + maxNameBytes }

// Settings returns one short line with every setting that affects the files of a SIF: two SIFs of
// equal digest, architecture and settings have the same files.
func (c Converter) Settings() string {
	c = c.withDefaults()
	s := "squashfs " + c.Compression
	if c.hasLevels() {
		s += fmt.Sprintf("-%d", c.Level)
	}
	return fmt.Sprintf("%s %dK layout-3", s, c.BlockSize>>10)
}

// Check refuses settings with which no SIF can be written.
func (c Converter) Check() error {
	c = c.withDefaults()
	highest, known := map[string]int{"zstd": 22, "gzip": 9, "lz4": 0, "xz": 0}[c.Compression]
	levels := "none"
	if highest > 0 {
		levels = fmt.Sprintf("1 to %d", highest)
	}
	switch size := c.BlockSize; {
	case !known:
		return fmt.Errorf("the compression is %q, and has to be zstd, gzip, lz4 or xz", c.Compression)
	case c.Level < 0 || c.Level > highest:
		return fmt.Errorf("the level of compression is %d, and %s has %s", c.Level, c.Compression, levels)
	case size < 4<<10 || size > 1<<20 || size&(size-1) != 0:
		return fmt.Errorf("the block size is %d bytes, and has to be a power of two from 4 KiB to 1 MiB", size)
	case c.Nice < 0 || c.Nice > 19:
		return fmt.Errorf("the nice value is %d, and has to be from 0 to 19", c.Nice)
	}
	return nil
}

// Convert writes the image as a SIF at dst, which must not exist. The directory of dst must be the
// caller's own, because other processes could see the unfinished file. When Convert returns nil,
// the file is complete, verified against the image's digests, and flushed; otherwise there is none.
// Owners, modes, time stamps in whole seconds, hard links, file capabilities and user extended
// attributes are those of the image. Other extended attributes are dropped, and the root directory
// belongs to this process's user. An error is an *source.ImageError. It wraps ctx's error if that
// ended first.
//
// After an error that is Transient, except for a full disk, the pulled layers stay in TempDir or
// next to dst, and the next Convert of the same image continues with them. Convert removes layers
// in TempDir that no Convert has used for a day.
//
// progress may be nil. It is called from one goroutine at a time, and must return quickly.
func (c Converter) Convert(ctx context.Context, img source.Image, dst string, progress func(Progress)) error {
	parent := c.TempDir
	if parent == "" {
		parent = filepath.Dir(dst)
	} else {
		sweepLayers(parent, time.Now()) //nolint:forbidigo // this clock sets the directories' ages
	}
	dir, err := useLayersDir(parent, img.Digest, c.TempDir != "")
	if err != nil {
		return imageError(ctx, img, err)
	}
	defer dir.unlock()
	err = c.convert(ctx, img, dir.path, dst, progress)
	failed := imageError(ctx, img, err)
	if e, ok := errors.AsType[*source.ImageError](failed); ok && e.Transient() && !dir.own && !isDiskFull(err) {
		return failed
	}
	if cleanErr := dir.remove(); failed == nil && cleanErr != nil {
		return imageError(ctx, img, errors.Join(cleanErr, os.Remove(dst)))
	}
	return failed
}

func (c Converter) convert(ctx context.Context, img source.Image, dir, dst string, progress func(Progress)) error {
	if err := c.Check(); err != nil {
		return err
	}
	c = c.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened, l, err := c.openLayers(ctx, img, dir, filepath.Dir(dst), progress)
	if err != nil {
		return err
	}
	defer opened.Close()
	var pulling sync.WaitGroup
	var pullErr error
	pulling.Go(func() { pullErr = l.pull(ctx, opened.Blob) })
	c.nicely(func() { err = c.write(ctx, img, opened.Config, l, dst) })
	if err != nil {
		cancel()
	}
	pulling.Wait()
	if pullErr != nil && !errors.Is(pullErr, context.Canceled) { // it is the cause, and names the layer
		return pullErr
	}
	return err
}

// openLayers opens an image for pulling its layers into dir, and checks that it is supported and
// that there is room for it. The caller closes the image.
func (c Converter) openLayers(ctx context.Context, img source.Image, dir, sifDir string, progress func(Progress)) (*source.Opened, *layers, error) {
	opened, err := c.Source.Open(ctx, img)
	if err != nil {
		return nil, nil, err
	}
	l := c.newLayers(dir, opened, progress)
	err = checkImage(opened, img.Architecture, c.maxLayerBytes())
	if err == nil {
		err = c.checkRoom(l, dir, sifDir)
	}
	if err != nil {
		opened.Close()
		return nil, nil, err
	}
	return opened, l, nil
}

// write flattens the layers into dst. The first attempt predicts the files that upper layers hide.
// If the prediction was wrong, a second attempt uses the results of the first.
func (c Converter) write(ctx context.Context, img source.Image, config *v1.ConfigFile, l *layers, dst string) error {
	w := sifWriter{converter: c, img: img, config: config, layers: l.report.toConvert}
	w.flat = flatten.New(
		flatten.Layers{
			Number: len(l.blobs), Open: l.open,
			Top: func(exists func(string) (bool, error)) ([]byte, error) {
				return metadataLayer(exists, config.Config)
			},
			Taken: metadataFiles(),
		},
		flatten.Limits{Entries: int64(c.MaxEntries), Bytes: c.MaxBytes, NameBytes: maxNameBytes, Crowd: maxCrowd},
		flatten.Root{Mode: 0o755, Newest: newestTime(config)},
	)
	if _, err := os.Lstat(dst); err == nil {
		return fmt.Errorf("create the SIF: %w", &fs.PathError{Op: "open", Path: dst, Err: fs.ErrExist})
	}
	err := w.write(ctx, dst)
	if errors.Is(err, flatten.ErrAgain) {
		err = w.write(ctx, dst)
	}
	return err
}

// newestTime returns the time one second after the latest time in an image's configuration. Some
// builders set all files' times to 1.
func newestTime(config *v1.ConfigFile) int64 {
	last := config.Created.Unix()
	for _, h := range config.History {
		last = max(last, h.Created.Unix())
	}
	return min(max(last+1, 1), 1<<32-1)
}
