package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// Converter writes images as SIFs. The zero value is usable, and a Converter
// may be used by several goroutines at once.
type Converter struct {
	// Source is where images come from.
	Source source.Source
	// TempDir holds an image's compressed layers while it is converted, in a
	// directory named for the image; empty means the directory that the SIF is
	// written to.
	TempDir string
	// Compression is that of the file system: "zstd", "gzip", "lz4" or "xz";
	// empty means zstd. What runs the SIF has to know it.
	Compression string
	// Level is how hard zstd or gzip tries, from 1; zero means 1. The tools'
	// own defaults cost ten times as much for a tenth of the size.
	Level int
	// BlockSize is that of the file system in bytes, a power of two from 4 KiB
	// to 1 MiB; zero means 128 KiB.
	BlockSize int
	// Processors bounds how many processors the writer of the file system keeps
	// busy, besides the one or two that unpack; zero means two.
	Processors int
	// MemoryMiB bounds the memory of that writer; zero means 128.
	MemoryMiB int
	// Mksquashfs and Tar2sqfs are the programs that write the file system; empty
	// means those of that name on the PATH. See doc.go for which is taken.
	Mksquashfs, Tar2sqfs string
	// Nice is added to the nice value of what pulls, unpacks and writes, here and
	// in those programs, so that others go first (nice(1)); zero leaves it.
	Nice int
	// Reserve is how much of the SIF's disk, whose whole size it is given, has to
	// stay free, in bytes; nil for nothing.
	Reserve func(total int64) int64
	// MaxBytes and MaxEntries bound what an image may unpack to, so that a
	// few hostile kilobytes cannot fill a disk; zero means 256 GiB and two
	// million.
	MaxBytes   int64
	MaxEntries int
}

// maxNameBytes bounds the memory that the names in an image take.
const maxNameBytes = 256 << 20

// Settings names, in one short line, everything that decides how an image of
// a given digest and architecture is written: two SIFs of equal digest,
// architecture and settings hold the same files.
func (c Converter) Settings() string {
	s := "squashfs " + c.compression()
	if c.levels() {
		s += fmt.Sprintf("-%d", c.level())
	}
	return fmt.Sprintf("%s %dK layout-2", s, c.blockSize()>>10)
}

// Check refuses settings that no SIF can be written with.
func (c Converter) Check() error {
	known := map[string]int{"zstd": 22, "gzip": 9, "lz4": 0, "xz": 0} // with the highest level
	highest, ok := known[c.compression()]
	switch size := c.blockSize(); {
	case !ok:
		return fmt.Errorf("the compression is %q, and has to be zstd, gzip, lz4 or xz", c.Compression)
	case c.Level < 0 || c.Level > highest:
		return fmt.Errorf("the level of compression is %d, and %s has %s", c.Level, c.compression(), levelsUpTo(highest))
	case size < 4<<10 || size > 1<<20 || size&(size-1) != 0:
		return fmt.Errorf("the block size is %d bytes, and has to be a power of two from 4 KiB to 1 MiB", size)
	case c.Nice < 0 || c.Nice > 19:
		return fmt.Errorf("the nice value is %d, and has to be from 0 to 19", c.Nice)
	}
	return nil
}

func levelsUpTo(highest int) string {
	if highest == 0 {
		return "none"
	}
	return fmt.Sprintf("1 to %d", highest)
}

// Convert writes the image as a SIF at dst, which must not exist and whose
// directory is the caller's own: other processes could see the file while it
// grows. When Convert returns nil the file is whole, verified against the
// image's digests, and flushed; else there is none. Owners, modes, time stamps
// in whole seconds, hard links, file capabilities and attributes of users are
// the image's; other extended attributes are dropped, and the root directory
// belongs to who converts it. An error is an *source.ImageError; it wraps ctx's when that
// ended first.
//
// After an error that is Transient, but for a full disk, the layers that came
// stay where they lie, in TempDir or beside dst, and the next Convert of the same
// image goes on with them; in TempDir they are removed when that does not come
// within a day.
//
// A progress that is not nil is called from one goroutine at a time, and must
// return quickly.
func (c Converter) Convert(ctx context.Context, img source.Image, dst string, progress func(Progress)) error {
	parent := c.TempDir
	if parent == "" {
		parent = filepath.Dir(dst)
	} else {
		sweepLayers(parent, time.Now()) //nolint:forbidigo // how old a directory is
	}
	dir, err := useLayersDir(parent, img.Digest, c.TempDir != "")
	if err != nil {
		return imageError(ctx, img, err)
	}
	defer dir.letGo()
	err = c.convert(ctx, img, dir.path, dst, progress)
	failed := imageError(ctx, img, err)
	var e *source.ImageError
	if errors.As(failed, &e) && e.Transient() && !dir.own && !isFull(err) {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	image, err := c.Source.Open(ctx, img)
	if err != nil {
		return err
	}
	defer image.Close()
	if err := checkImage(image, img.Architecture, c.room()); err != nil {
		return err
	}
	l := c.newLayers(dir, image, progress)
	if err := c.makeRoom(l, dir, filepath.Dir(dst)); err != nil {
		return err
	}
	pulled := make(chan error, 1)
	go func() {
		err := l.pull(ctx, image.Blob, l.report)
		pulled <- err
	}()
	c.nicely(func() { err = c.write(ctx, img, image.Config, l, dst) })
	if err != nil {
		cancel()
	}
	pullErr := <-pulled
	if pullErr != nil && !errors.Is(pullErr, context.Canceled) { // it is the cause, and tells which layer
		return pullErr
	}
	return err
}

// newLayers makes ready to pull layers into dir, or to read them where they lie.
func (c Converter) newLayers(dir string, image *source.Opened, progress func(Progress)) *layers {
	l := &layers{nicely: c.nicely, diffIDs: image.Config.RootFS.DiffIDs, verified: make([]bool, len(image.Manifest.Layers)), report: &reporter{fn: progress}}
	l.room.Store(c.room())
	known := map[v1.Hash]*blob{}
	for _, desc := range image.Manifest.Layers {
		b := known[desc.Digest]
		if b == nil {
			b = newBlob(dir, desc)
			known[desc.Digest] = b
			if image.IsLocal() { // what it unpacks to is checked
				b.local = func(ctx context.Context) (io.ReadCloser, error) { return image.Blob(ctx, desc, 0) }
			} else {
				l.report.toPull += desc.Size
			}
		}
		l.report.toConvert += desc.Size
		l.blobs = append(l.blobs, b)
	}
	return l
}

// write flattens the layers into dst. When they hold what could not be known
// while they were read, it is done again.
func (c Converter) write(ctx context.Context, img source.Image, config *v1.ConfigFile, l *layers, dst string) error {
	w := sifWriter{converter: c, image: img, config: config}
	w.flat = flatten.New(
		flatten.Layers{
			Number: len(l.blobs), Open: l.open,
			Top: func(exists func(string) (bool, error)) ([]byte, error) {
				return metadataLayer(exists, config)
			},
			Taken: metadataFiles(),
		},
		flatten.Limits{Entries: int64(c.maxEntries()), Bytes: c.maxBytes(), NameBytes: maxNameBytes},
		flatten.Root{Mode: 0o755, Newest: newest(config)},
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

// newest is the last time that an image's configuration tells of.
func newest(config *v1.ConfigFile) int64 {
	last := config.Created.Unix()
	for _, h := range config.History {
		last = max(last, h.Created.Unix())
	}
	return min(max(last+1, 1), 1<<32-1) // some builders set all files' times to 1
}
