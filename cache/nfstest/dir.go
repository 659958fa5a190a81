package nfstest

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

// OpenDir asks nothing.
func (c *client) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFh++
	c.handles[c.lastFh] = &handle{node: c.nodes[in.NodeId]}
	out.Fh = c.lastFh
	return fuse.OK
}

// ReleaseDir is the end of a handle.
func (c *client) ReleaseDir(in *fuse.ReleaseIn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handles, in.Fh)
}

// FsyncDir has nothing to do: the server's changes are stable when it answers.
func (c *client) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status { return fuse.OK }

// ReadDir gives the directory as the client knows it.
func (c *client) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	h := c.handle(in.Fh)
	if in.Offset == 0 || h.listing == nil {
		listing, err := c.list(h.node)
		if err != nil {
			return fuse.ToStatus(err)
		}
		h.listing = listing
	}
	for _, e := range h.listing[min(in.Offset, uint64(len(h.listing))):] {
		if !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

// list is a listing from memory, while the directory's attributes are believed
// (fs/nfs/dir.c: nfs_readdir, nfs_revalidate_mapping), or the server's.
func (c *client) list(dir *node) ([]fuse.DirEntry, error) {
	c.mu.Lock()
	fresh, old, attr := dir.fresh(), dir.listing, dir.attr
	c.mu.Unlock()
	if old != nil && !fresh {
		if _, err := c.revalidate(dir, GetAttr); err != nil {
			return nil, err
		}
		c.mu.Lock()
		old, attr = dir.listing, dir.attr
		c.mu.Unlock()
	}
	if old != nil {
		if now, err := c.export.getattr(dir.object); err != nil || !now.same(&attr) {
			c.faults.count(StaleListing)
		}
		return old, nil
	}
	began, name := c.now(), c.nameOf(dir)
	var a attributes
	var entries []fuse.DirEntry
	_, err := c.faults.call(ReadDir, name, func() (err error) {
		entries, a, err = c.export.list(dir.object)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.learn(dir, &a, began) {
		dir.listing = entries
	}
	c.mourn(dir, err)
	return entries, err
}
