package fetch

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// directory brings a target that is a directory.
func (r *run) directory(ctx context.Context, kept bool) error {
	info, err := os.Lstat(r.tmp)
	d := &directory{run: r, begun: kept && err == nil && info.IsDir()}
	return d.persist(ctx, func() error { return d.try(ctx) })
}

// directory is a directory on its way.
type directory struct {
	*run

	begun    bool // something of it may be there
	archives int  // how often it was asked for as a whole
	listing  *listing
	blind    bool // it cannot be listed
}

// try brings what is missing: all of it as one archive at first, and then what
// the listing shows.
func (d *directory) try(ctx context.Context) error {
	if !d.begun || d.blind {
		return d.anew(ctx)
	}
	err := d.list(ctx)
	if err == nil {
		err = d.complete(ctx)
	}
	if errors.Is(err, errBlind) {
		d.blind = true
		return d.anew(ctx)
	}
	return err
}

// anew brings the whole directory as one archive.
func (d *directory) anew(ctx context.Context) error {
	if err := d.clear(); err != nil {
		return err
	}
	if err := os.Mkdir(d.tmp, 0o700); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	root, err := os.OpenRoot(d.tmp)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	d.archives++
	d.begun, err = d.archive(ctx, root, ".")
	return errors.Join(err, root.Close())
}

// list asks what the directory holds. Where that cannot be had, it is errBlind.
func (d *directory) list(ctx context.Context) error {
	if d.listing != nil {
		return nil
	}
	var info codalab.TargetInfo
	err := d.turn(ctx, func() error {
		var err error
		info, err = d.From.ContentsInfo(ctx, d.Target, listDepth)
		return err
	})
	switch {
	case err != nil && (mayPass(err) || ctx.Err() != nil):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errBlind, err)
	}
	d.listing, err = newListing(info, d.Limits)
	return err
}

// complete brings what the listing has and the disk lacks.
func (d *directory) complete(ctx context.Context) error {
	root, err := os.OpenRoot(d.tmp)
	if err != nil {
		return fmt.Errorf("%w: %w", errBlind, err) // it was never made
	}
	defer func() { _ = root.Close() }() // only used to name files
	for first := true; ; first = false {
		there, err := d.journal.read()
		if err != nil {
			return err
		}
		m := d.listing.missing(there)
		if first && d.archives < 2 && m.costly(d.listing.root.bytes) {
			return d.anew(ctx)
		}
		d.total.Store(d.listing.root.bytes)
		d.done.Store(0)
		d.add(d.listing.root.bytes - m.bytes)
		if err := d.listing.shape(root); err != nil {
			return err
		}
		if m.empty() {
			return d.listing.verify(root)
		}
		if err := d.bring(ctx, root, m, there); err != nil {
			return err
		}
	}
}

// bring brings archives and files, some at a time. An archive that breaks off
// is no error: what it lacks is brought file by file. After a failure that may
// pass no other is begun, and those that run come to their ends.
func (d *directory) bring(ctx context.Context, root *os.Root, m missing, there remembered) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(streams)
	var failed atomic.Pointer[error]
	begin := func(do func() error) {
		g.Go(func() error {
			if failed.Load() != nil {
				return nil
			}
			err := do()
			if err != nil && mayPass(err) {
				failed.CompareAndSwap(nil, &err)
				return nil
			}
			return err
		})
	}
	for _, e := range m.archives {
		begin(func() error {
			began, err := d.archive(ctx, root, e.path)
			e.tried = began
			if began && err != nil && ctx.Err() == nil && mayPass(err) {
				return nil
			}
			return err
		})
	}
	for _, e := range m.files {
		w := wanted{target: below(d.Target, e.path), root: root, name: e.path, info: e.TargetInfo, part: there.parts[e.path]}
		begin(func() error { return d.file(ctx, w, once) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// below is a target inside a directory.
func below(t codalab.Target, name string) codalab.Target {
	return codalab.Target{BundleUUID: t.BundleUUID, Subpath: path.Join(t.Subpath, name)}
}

// archive brings a directory of the target as one archive. began says whether
// the server gave one out.
func (d *directory) archive(ctx context.Context, root *os.Root, dir string) (began bool, err error) {
	root, err = root.OpenRoot(dir)
	if err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	defer func() { _ = root.Close() }() // only used to name files
	err = d.turn(ctx, func() error {
		s, err := d.open(ctx, below(d.Target, dir), nil)
		if err != nil {
			return err
		}
		defer s.close()
		if s.Type != codalab.TargetDirectory {
			return fmt.Errorf("%w: a %s, not a directory", ErrDiffers, s.Type)
		}
		began = true
		if dir == "." && s.Size > 0 {
			d.total.Store(s.Size)
		}
		_, err = tarstream.UnpackWatched(ctx, s, root, d.Limits, tarstream.Watch{
			Wrote: d.add,
			Entry: func(name string, header *tar.Header) { d.note(root, dir, name, header) },
		})
		if s.broken != nil {
			return s.broken
		}
		return err
	})
	return began, err
}

// note remembers an entry of an archive that is whole.
func (d *directory) note(root *os.Root, dir, name string, header *tar.Header) {
	size := header.Size
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeSymlink:
		return // the listing knows all about them
	case tar.TypeLink:
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		size = info.Size()
	}
	if !d.blind { // else it is unpacked again after a break
		d.gained.Add(1)
	}
	d.journal.whole(path.Join(dir, name), size)
}
