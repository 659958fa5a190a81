package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// Contents are contents outside of a data directory, which an import copies.
type Contents struct {
	// UUID is that of their bundle.
	UUID string
	// Path is the file or the directory.
	Path string
}

// imported is the name of a bundle's complete contents, importing that of contents that are being copied.
func imported(uuid string) string  { return uuid + "-imported" }
func importing(uuid string) string { return uuid + "-importing" }

// AddContents copies contents of some bundles, several at once. With link, files are hard links if the file
// system allows that. It keeps contents that an earlier import has copied, unless their files have another
// size, time or kind now. It leaves out pipes, sockets and devices. It calls copied with the bytes of each
// file, from several goroutines.
//
// It returns the contents' extents. After it, even after a crash of the machine,
// either all of these contents are complete, or they count as not copied.
func (in *Import) AddContents(ctx context.Context, some []Contents, link bool, copied func(bytes int64)) (extents []codalab.Extent, err error) {
	const atOnce = 4
	dir := filepath.Join(in.store.dir, "bundles")
	extents = make([]codalab.Extent, len(some))
	fresh := make([]bool, len(some))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, c := range some {
		g.Go(func() (err error) {
			extents[i], fresh[i], err = in.copyContents(ctx, c, link, copied)
			if err != nil {
				err = fmt.Errorf("copy contents of bundle %s: %w", c.UUID, err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := atomicfile.SyncDisk(dir); err != nil {
		return nil, err
	}
	for i, c := range some {
		if !fresh[i] {
			continue
		}
		if err := os.Rename(filepath.Join(dir, importing(c.UUID)), filepath.Join(dir, imported(c.UUID))); err != nil {
			return nil, fmt.Errorf("copy contents of bundle %s: %w", c.UUID, err)
		}
	}
	return extents, nil
}

// copyContents copies one bundle's contents to their provisional name, unless they are there already.
func (in *Import) copyContents(ctx context.Context, c Contents, link bool, copied func(int64)) (extent codalab.Extent, fresh bool, err error) {
	from, err := filepath.EvalSymlinks(c.Path) // it may have been moved to another disk
	if err != nil {
		return extent, false, err
	}
	whole := filepath.Join(in.store.dir, "bundles", imported(c.UUID))
	t := tree{ctx: ctx, from: from, to: filepath.Join(whole, ContentsPath), link: link, copied: copied}
	same, found, err := t.isCopied()
	if same || err != nil {
		copied(found.Bytes)
		return found.Extent, false, err
	}
	partial := filepath.Join(in.store.dir, "bundles", importing(c.UUID))
	t.to = filepath.Join(partial, ContentsPath)
	if err := errors.Join(os.RemoveAll(whole), os.RemoveAll(partial), os.Mkdir(partial, 0o700)); err != nil {
		return extent, false, err
	}
	found, err = t.copy()
	return found.Extent, true, err
}

// ImportedContents is the name of contents that AddContents has copied, for Bundle.Contents.
func ImportedContents(uuid string) string { return imported(uuid) }

// IsImported reports whether an import has copied contents of a bundle into the data directory dir.
func IsImported(dir, uuid string) bool {
	found, err := exists(filepath.Join(dir, "bundles"), imported(uuid))
	return err == nil && found
}
