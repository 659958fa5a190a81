package nfstest

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Lookup answers from the client's cache while the directory's attributes are trusted, and
// otherwise asks the server (fs/nfs/dir.c: nfs_lookup_revalidate, nfs_neg_need_reval,
// nfs_check_verifier).
func (c *client) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	n, a, err := c.lookup(c.get(h.NodeId), name)
	if err != nil {
		return fuse.ToStatus(err)
	}
	if c.flush(n) == nil { // the size must include this client's writes
		c.mu.Lock()
		if n.known {
			a = n.attr
		}
		c.mu.Unlock()
	}
	fill(out, n, &a)
	return fuse.OK
}

// lookup returns the node of a name. Its attributes may be old: the kernel asks for them when it
// needs them.
func (c *client) lookup(dir *node, name string) (*node, attributes, error) {
	n, a, known := c.remembered(dir, name)
	if known {
		c.mu.Lock()
		fresh := dir.fresh()
		c.mu.Unlock()
		if !fresh {
			if _, err := c.revalidate(dir, GetAttr); err != nil {
				return nil, a, err
			}
			n, a, known = c.remembered(dir, name)
		}
	}
	if !known { // or the directory has changed
		return c.lookUpOnServer(dir, name)
	}
	if n == nil {
		return nil, a, syscall.ENOENT
	}
	return n, a, nil
}

// remembered answers from the cache, at any age.
func (c *client) remembered(dir *node, name string) (n *node, a attributes, known bool) {
	c.mu.Lock()
	n, known = dir.names[name]
	if known && n != nil && (n.gone || !n.known) {
		delete(dir.names, name)
		known = false
	}
	if !known {
		c.mu.Unlock()
		return nil, a, false
	}
	var o *object
	kind := StaleAbsence
	if n != nil {
		a, o, kind = n.attr, n.object, StaleName
	}
	c.mu.Unlock()
	if !c.export.leads(dir.object, name, o) {
		c.faults.count(kind)
	}
	return n, a, true
}

// lookUpOnServer asks the server, and caches the answer.
func (c *client) lookUpOnServer(dir *node, name string) (n *node, a attributes, err error) {
	var o *object
	var dirAttr attributes
	c.mu.Lock()
	began := c.gen
	c.mu.Unlock()
	replied, err := c.faults.call(LookUp, func() (err error) {
		o, a, dirAttr, err = c.export.lookup(dir.object, name)
		return err
	})
	if !replied {
		return nil, a, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		n = c.node(o)
		c.learn(n, &a, began)
	}
	if (err == nil || errors.Is(err, syscall.ENOENT)) && c.learn(dir, &dirAttr, began) {
		dir.names[name] = n
	}
	c.markGone(dir, err)
	return n, a, err
}

// fill describes a node to the kernel. The kernel must not cache it, and asks again.
func fill(out *fuse.EntryOut, n *node, a *attributes) {
	*out = fuse.EntryOut{NodeId: n.id}
	out.FromStat(&a.Stat_t)
}

// GetAttr is stat(2).
func (c *client) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := c.get(in.NodeId)
	_ = c.flush(n) // the writer gets the error
	a, err := c.revalidate(n, GetAttr)
	out.FromStat(&a.Stat_t)
	return fuse.ToStatus(err)
}

// SetAttr is chmod(2), truncate(2) and utimensat(2).
func (c *client) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := c.get(in.NodeId)
	_ = c.flush(n) // the writer gets the error
	a, err := c.update(n, SetAttr, func() (attributes, error) { return c.export.setattr(n.object, in) })
	out.FromStat(&a.Stat_t)
	return fuse.ToStatus(err)
}

// Readlink always asks the server.
func (c *client) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, status fuse.Status) {
	_, err := c.faults.call(ReadLink, func() (err error) {
		target, err = c.export.readlink(c.get(h.NodeId).object)
		return err
	})
	return target, fuse.ToStatus(err)
}

// StatFs is statfs(2). It always asks the server.
func (c *client) StatFs(_ <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	_, err := c.faults.call(FsStat, func() error {
		var disk syscall.Statfs_t
		err := c.export.statfs(c.get(h.NodeId).object, &disk)
		out.FromStatfsT(&disk)
		return err
	})
	return fuse.ToStatus(err)
}

// OpenDir asks nothing of the server.
func (c *client) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFh++
	c.handles[c.lastFh] = &handle{node: c.nodes[in.NodeId-1]}
	out.Fh = c.lastFh
	return fuse.OK
}

// ReleaseDir ends a handle.
func (c *client) ReleaseDir(in *fuse.ReleaseIn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handles, in.Fh)
}

// FsyncDir does nothing: the server's changes are stable when it answers.
func (c *client) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	if c.faults.strike(NoSuchCall, FsyncDir) {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	return fuse.OK
}

// ReadDir returns the client's listing of the directory.
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

// list returns the cached listing while the directory's attributes are trusted, and otherwise the
// server's (fs/nfs/dir.c: nfs_readdir, nfs_revalidate_mapping).
func (c *client) list(dir *node) ([]fuse.DirEntry, error) {
	if _, err := c.revalidate(dir, GetAttr); err != nil {
		return nil, err
	}
	c.mu.Lock()
	old, attr, began := dir.listing, dir.attr, c.gen
	c.mu.Unlock()
	if old != nil {
		if now, err := c.export.getattr(dir.object); err != nil || !now.same(&attr) {
			c.faults.count(StaleListing)
		}
		return old, nil
	}
	var a attributes
	var entries []fuse.DirEntry
	_, err := c.faults.call(ReadDir, func() (err error) {
		entries, a, err = c.export.list(dir.object)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.learn(dir, &a, began) {
		dir.listing = entries
	}
	c.markGone(dir, err)
	return entries, err
}
