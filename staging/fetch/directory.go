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

func (r *session) directory(ctx context.Context, kept bool) error {
	info, err := os.Lstat(r.tmp)
	d := &directory{session: r, begun: kept && err == nil && info.IsDir()}
	return d.retry(ctx, func() error { return d.try(ctx) })
}

type directory struct {
	*session

	begun    bool // tmp may have some of it
	archives int  // requests for the whole directory
	tree     *tree
	noTree   bool // no tree can be used
}

// try fetches the missing part: first everything as one archive, and then the missing entries of
// the tree.
func (d *directory) try(ctx context.Context) error {
	if !d.begun || d.noTree {
		return d.fetchWhole(ctx)
	}
	err := d.askTree(ctx)
	if err == nil {
		err = d.complete(ctx)
	}
	if errors.Is(err, errNoTree) {
		d.noTree = true
		return d.fetchWhole(ctx)
	}
	return err
}

func (d *directory) fetchWhole(ctx context.Context) error {
	if err := d.reset(); err != nil {
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

// askTree asks for the directory's tree. It returns errNoTree if the server has no usable one.
func (d *directory) askTree(ctx context.Context) error {
	if d.tree != nil {
		return nil
	}
	var info codalab.TargetInfo
	err := d.turn(ctx, func() error {
		var err error
		info, err = d.From.ContentsInfo(ctx, d.Target, treeDepth)
		return err
	})
	switch {
	case err != nil && (isTransient(err) || ctx.Err() != nil):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errNoTree, err)
	}
	d.tree, err = newTree(info, d.Limits)
	return err
}

func (d *directory) complete(ctx context.Context) error {
	root, err := os.OpenRoot(d.tmp)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTree, err) // it was never made
	}
	defer func() { _ = root.Close() }() // only used for paths
	for first := true; ; first = false {
		there, err := d.journal.read()
		if err != nil {
			return err
		}
		m := d.tree.missing(there)
		if first && d.archives < 2 && m.isCostly(d.tree.root.bytes) {
			return d.fetchWhole(ctx)
		}
		d.total.Store(d.tree.root.bytes)
		d.done.Store(0)
		d.add(d.tree.root.bytes - m.bytes)
		if err := d.tree.makeTree(root); err != nil {
			return err
		}
		if m.empty() {
			return d.tree.verify(root)
		}
		if err := d.fetchMissing(ctx, root, m, there); err != nil {
			return err
		}
	}
}

// fetchMissing fetches archives and files, some at a time. A broken archive is no error, because
// its missing files are then fetched one by one. After a transient failure it begins no other
// fetch, and lets the running ones end.
func (d *directory) fetchMissing(ctx context.Context, root *os.Root, m missing, there remembered) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(streams)
	var failed atomic.Pointer[error]
	begin := func(do func() error) {
		g.Go(func() error {
			if failed.Load() != nil {
				return nil
			}
			err := do()
			if err != nil && isTransient(err) {
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
			if began && err != nil && ctx.Err() == nil && isTransient(err) {
				return nil
			}
			return err
		})
	}
	for _, e := range m.files {
		t := file{session: d.session, target: below(d.Target, e.path), root: root, name: e.path, info: e.TargetInfo, at: there.parts[e.path]}
		once := func(_ context.Context, try func() error) error { return try() } // d.retry calls it again
		begin(func() error { return t.fetch(ctx, once) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// below returns a target inside a directory.
func below(t codalab.Target, name string) codalab.Target {
	return codalab.Target{BundleUUID: t.BundleUUID, Subpath: path.Join(t.Subpath, name)}
}

// archive fetches a directory of the target as one archive. began reports whether the server sent
// one.
func (d *directory) archive(ctx context.Context, root *os.Root, dir string) (began bool, err error) {
	root, err = root.OpenRoot(dir)
	if err != nil {
		return false, fmt.Errorf("write: %w", err)
	}
	defer func() { _ = root.Close() }() // only used for paths
	err = d.turn(ctx, func() error {
		s, err := d.openStream(ctx, below(d.Target, dir), nil)
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

// note adds a complete entry of an archive to the journal.
func (d *directory) note(root *os.Root, dir, name string, header *tar.Header) {
	size := header.Size
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeSymlink:
		return // the tree describes them completely
	case tar.TypeLink:
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		size = info.Size()
	}
	if !d.noTree { // without a tree it is unpacked again after a break
		d.gained.Add(1)
	}
	d.journal.whole(path.Join(dir, name), size)
}
