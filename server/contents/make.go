package contents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// Makers makes make bundles of others.
type Makers struct {
	log     *slog.Logger
	now     func() time.Time
	store   *store.Store
	files   *Files
	uploads *Uploads
	changed func(uuids ...string)

	all sync.WaitGroup
	// copying shares the places to copy among the owners of bundles.
	copying *turns.Turns

	mu     sync.Mutex
	making map[string]context.CancelFunc // by uuid
}

// Wait waits until no bundle is being made.
func (s *Makers) Wait() { s.all.Wait() }

// begin records that a bundle is being made; stop ends that. It returns false if it is being made already.
func (s *Makers) begin(uuid string, stop context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.making[uuid] != nil {
		return false
	}
	s.making[uuid] = stop
	return true
}

// Stop stops the making of a bundle, if it is being made.
func (s *Makers) Stop(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.making[uuid]; stop != nil {
		stop()
	}
}

func (s *Makers) end(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making[uuid]()
	delete(s.making, uuid)
}

// Start begins to make a staged make bundle. One in state making that nobody makes was cut off
// by a crash, and is staged again (codalab/server/bundle_manager.py: _make_bundles). It returns the
// bundles that it changed.
func (s *Makers) Start(ctx context.Context, uuid string) ([]string, error) {
	making, stop := context.WithCancel(ctx)
	if !s.begin(uuid, stop) {
		stop()
		return nil, nil
	}
	crashed, started := false, false
	b, err := s.store.Change(ctx, uuid, func(b *store.Bundle) error {
		next, begin := stored.Plan(*b).Making()
		started, crashed = begin, !begin && next.State != b.State
		stored.Become(b, next)
		return nil
	})
	if err != nil || !started {
		s.end(uuid)
		if crashed && err == nil {
			return []string{uuid}, nil
		}
		return nil, err
	}
	s.all.Go(func() {
		defer s.changed(uuid)
		defer s.end(uuid)
		s.make(ctx, making, b)
	})
	return nil, nil
}

// make makes a bundle, or fails it. making ends when the bundle is killed: then nothing of it remains.
// ctx ends when the server stops: then the next server makes the bundle.
func (s *Makers) make(ctx, making context.Context, b store.Bundle) {
	leave, err := s.copying.Take(making, turns.Party{Owner: b.OwnerID})
	if err == nil {
		defer leave()
		err = s.uploads.storeContents(ctx, b, func(in *store.Upload, room *reservation) error {
			return s.copyDependencies(making, b, in.Root(), room)
		}, func(b *store.Bundle) error {
			next, ok := stored.Plan(*b).Made()
			if !ok {
				return errFinal(*b) // killed
			}
			stored.Become(b, next)
			return nil
		})
	}
	var no *rest.RefusalError
	var quota *quotaError
	if err == nil || making.Err() != nil {
		return
	}
	message := "The server could not make the bundle (see its log)"
	switch {
	case errors.As(err, &no), errors.As(err, &quota):
		message = err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		message = "The server's disk is full"
	}
	failures.Log(ctx, s.log, "make bundle "+b.UUID, err)
	_, err = stored.Change(ctx, s.store, s.now(), []string{b.UUID}, func(b plan.Bundle) plan.Bundle { return b.FailMaking(message) })
	failures.Log(ctx, s.log, "fail make bundle "+b.UUID, err)
}

// copyDependencies copies the targets of a bundle's dependencies to their keys. If the only key is
// empty, its target becomes the whole contents (codalab/server/bundle_manager.py: _make_bundle).
func (s *Makers) copyDependencies(ctx context.Context, b store.Bundle, to *os.Root, room *reservation) error {
	owner, err := s.store.User(ctx, b.OwnerID)
	if err != nil {
		return err
	}
	if len(b.Dependencies) != 1 || path.Clean(b.Dependencies[0].ChildPath) != "." {
		if err := to.Mkdir(store.ContentsPath, 0o755); err != nil {
			return fmt.Errorf("make bundle: %w", err)
		}
	}
	entries := maxEntries
	for _, d := range b.Dependencies {
		target := codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}
		p, err := s.files.locate(ctx, owner, d.ParentUUID, d.ParentPath)
		if err != nil {
			return err
		}
		from, at, err := s.files.openStored(p)
		if rest.HasStatus(err, http.StatusNotFound) {
			return rest.Refuse(400, "Invalid dependency %s", target)
		}
		if err != nil {
			return err
		}
		// Contents that the server itself has stored do not change. A worker may still write to its results.
		linked := p.Metadata.String("link_url") == "" && p.Contents != p.LocationName()
		c := copier{ctx: ctx, from: from, to: to, room: room, linked: linked, left: &entries}
		err = errors.Join(c.copyTarget(at, path.Join(store.ContentsPath, d.ChildPath)), from.Close())
		switch {
		case errors.Is(err, fs.ErrExist):
			return rest.Refuse(400, "Invalid key for dependency: %s: it is there already", d.ChildPath)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoCopy), errors.Is(err, syscall.ENOTDIR):
			return rest.Refuse(400, "Invalid dependency %s", target)
		case err != nil:
			return err
		}
	}
	return nil
}

// errNoCopy means a target that is neither a file nor a directory.
var errNoCopy = errors.New("neither a file nor a directory")

// copier copies files and directories from one root to another, and follows no links.
type copier struct {
	ctx      context.Context //nolint:containedctx // of one bundle
	from, to *os.Root
	room     *reservation
	linked   bool // files may get another name instead of a copy, since nobody changes them
	left     *int // entries
}

// copyTarget copies a file or a directory to a path, which must be free.
func (c copier) copyTarget(at, to string) error {
	info, err := c.from.Lstat(at)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if dir := path.Dir(to); dir != "." {
		if err := c.to.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	switch {
	case info.IsDir():
		return c.directory(at, to, info)
	case info.Mode().IsRegular():
		return c.files(path.Dir(at), path.Dir(to), map[string]fs.FileInfo{path.Base(at): info}, path.Base(to))
	}
	return errNoCopy
}

// directory copies a directory. It holds only one directory of each root open at a time.
func (c copier) directory(at, to string, info fs.FileInfo) error {
	if err := c.room.takeEntry(); err != nil {
		return err
	}
	if err := c.to.Mkdir(to, info.Mode().Perm()|0o700); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	d, err := c.from.Open(at)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	files, directories := map[string]fs.FileInfo{}, map[string]fs.FileInfo{}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		info, err := c.from.Lstat(path.Join(at, e.Name()))
		if *c.left--; *c.left < 0 || err != nil {
			return errors.Join(err, rest.Refuse(400, "The bundle would have more than %d files", maxEntries))
		}
		switch {
		case info.IsDir():
			directories[e.Name()] = info
		case info.Mode().IsRegular():
			files[e.Name()] = info
		case info.Mode().Type() == fs.ModeSymlink:
			if err := c.room.takeEntry(); err != nil {
				return err
			}
			target, err := c.from.Readlink(path.Join(at, e.Name()))
			if err == nil {
				err = c.to.Symlink(target, path.Join(to, e.Name()))
			}
			if err != nil {
				return fmt.Errorf("copy: %w", err)
			}
		}
	}
	if err := c.files(at, to, files, ""); err != nil {
		return err
	}
	for name, info := range directories {
		if err := c.directory(path.Join(at, name), path.Join(to, name), info); err != nil {
			return err
		}
	}
	return nil
}

// files copies files of one directory to another, under their own names or as the only one.
func (c copier) files(at, to string, files map[string]fs.FileInfo, as string) error {
	from, err := c.from.Open(at)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	into, err := c.to.Open(to)
	if err != nil {
		return errors.Join(fmt.Errorf("copy: %w", err), from.Close())
	}
	for name, info := range files {
		target := name
		if as != "" {
			target = as
		}
		if err = c.ctx.Err(); err == nil {
			err = c.room.take(codalab.Extent{Bytes: info.Size(), Entries: 1}.Space())
		}
		if err != nil {
			break
		}
		if c.linked {
			err = unix.Linkat(int(from.Fd()), name, int(into.Fd()), target, 0)
			if err == nil {
				continue
			}
		}
		if err = c.file(path.Join(at, name), path.Join(to, target), info); err != nil {
			break
		}
	}
	return errors.Join(err, from.Close(), into.Close())
}

// file copies one file, as long as it was.
func (c copier) file(at, to string, info fs.FileInfo) error {
	in, err := c.from.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	out, err := c.to.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("copy: %w", err), in.Close())
	}
	_, err = io.Copy(out, io.LimitReader(interruptible.Reader(c.ctx, in), info.Size()))
	if err == nil {
		err = out.Chmod(info.Mode().Perm() | 0o400)
	}
	return errors.Join(err, out.Close(), in.Close())
}
