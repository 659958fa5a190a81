package nfstest

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// mourn drops a node that the server says is gone, so that its names are looked
// up again, once: a fault StaleHandle leaves them. The caller has mu.
func (c *client) mourn(n *node, err error) {
	if !errors.Is(err, syscall.ESTALE) || n.gone {
		return
	}
	if _, kept := c.faults.strike(StaleHandle, Open, n.name); !kept {
		n.gone = true
	}
}

// Lookup answers for a name from what the client knows, while it believes its
// directory's attributes, and from the server else (fs/nfs/dir.c:
// nfs_lookup_revalidate, nfs_neg_need_reval, nfs_check_verifier).
func (c *client) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir := c.get(h.NodeId)
	n, a, err := c.lookup(dir, name)
	if err != nil {
		return fuse.ToStatus(err)
	}
	c.mu.Lock()
	c.looked[h.Pid] = place{dir, name}
	c.mu.Unlock()
	if c.flush(n) == nil { // the size is with what this client has written
		c.mu.Lock()
		if n.known {
			a = n.attr
		}
		c.mu.Unlock()
	}
	fill(out, n, &a)
	return fuse.OK
}

// lookup returns the node of a name, counted as one that the kernel was told
// of. Its attributes may be old: the kernel asks for them when it needs them.
func (c *client) lookup(dir *node, name string) (*node, attributes, error) {
	n, a, known := c.remembered(dir, name)
	if !known {
		return c.ask(dir, name)
	}
	c.mu.Lock()
	fresh := dir.fresh()
	c.mu.Unlock()
	if !fresh {
		c.forgetOne(n)
		if _, err := c.revalidate(dir, GetAttr); err != nil {
			return nil, a, err
		}
		if n, a, known = c.remembered(dir, name); !known { // the directory has changed
			return c.ask(dir, name)
		}
	}
	if n == nil {
		return nil, a, syscall.ENOENT
	}
	return n, a, nil
}

// forgetOne takes back that the kernel was told of a node.
func (c *client) forgetOne(n *node) {
	if n != nil {
		c.Forget(n.id, 1)
	}
}

// remembered answers from memory, whatever its age.
func (c *client) remembered(dir *node, name string) (n *node, a attributes, known bool) {
	c.mu.Lock()
	n, known = dir.names[name]
	if known && n != nil && (n.evicted || n.gone || !n.known) {
		delete(dir.names, name)
		known = false
	}
	if !known {
		c.mu.Unlock()
		return nil, a, false
	}
	var o *object
	if n != nil {
		n.lookups++
		n.name, a, o = name, n.attr, n.object
	}
	c.mu.Unlock()
	if !c.export.leads(dir.object, name, o) {
		if n == nil {
			c.faults.count(StaleAbsence)
		} else {
			c.faults.count(StaleName)
		}
	}
	return n, a, true
}

// ask asks the server, and remembers what it says.
func (c *client) ask(dir *node, name string) (*node, attributes, error) {
	var (
		o          *object
		a, dirAttr attributes
	)
	began := c.now()
	replied, err := c.faults.call(LookUp, name, func() (err error) {
		o, a, dirAttr, err = c.export.lookup(dir.object, name)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !replied {
		c.export.release(o)
		return nil, a, err
	}
	var n *node
	if err == nil {
		n = c.node(o, name)
		n.lookups++
		c.learn(n, &a, began)
	}
	absent := errors.Is(err, syscall.ENOENT)
	if (err == nil || absent) && c.learn(dir, &dirAttr, began) {
		dir.names[name] = n
	}
	c.mourn(dir, err)
	return n, a, err
}

// fill tells the kernel of a node, for no time at all: it asks again.
func fill(out *fuse.EntryOut, n *node, a *attributes) {
	*out = fuse.EntryOut{NodeId: n.id}
	out.FromStat(&a.Stat_t)
}

// GetAttr is stat(2).
func (c *client) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := c.get(in.NodeId)
	_ = c.flush(n) // the error is the writer's
	a, err := c.revalidate(n, GetAttr)
	out.FromStat(&a.Stat_t)
	return fuse.ToStatus(err)
}

// SetAttr is chmod(2), chown(2), truncate(2) and utimensat(2).
func (c *client) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := c.get(in.NodeId)
	_ = c.flush(n) // the error is the writer's
	a, err := c.update(n, SetAttr, func() (attributes, error) { return c.export.setattr(n.object, in) })
	out.FromStat(&a.Stat_t)
	return fuse.ToStatus(err)
}

// update does what changes an object's attributes, and learns what they are.
// Without a reply the old ones are believed (fs/nfs/nfs3proc.c:
// nfs3_proc_setattr).
func (c *client) update(n *node, op Op, do func() (attributes, error)) (attributes, error) {
	c.mu.Lock()
	name := n.name
	c.own(n)
	c.mu.Unlock()
	var a attributes
	_, err := c.faults.call(op, name, func() (err error) {
		a, err = do()
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own(n)
	if err == nil {
		c.believe(n, &a)
	}
	c.mourn(n, err)
	return a, err
}

// Readlink always asks.
func (c *client) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, status fuse.Status) {
	n := c.get(h.NodeId)
	_, err := c.faults.call(ReadLink, c.nameOf(n), func() (err error) {
		target, err = c.export.readlink(n.object)
		return err
	})
	return target, fuse.ToStatus(err)
}

// StatFs is statfs(2).
func (c *client) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	_, err := c.faults.call(FSStat, "", func() error { return c.export.statfs(out) })
	return fuse.ToStatus(err)
}
