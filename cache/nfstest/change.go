package nfstest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// change makes a call that changes directories, and updates the client's caches from the reply. If
// the reply's attributes from before the call are those that the client has, no other client has
// changed the directory: the client's names of it were right, and it trusts them for a new period.
// Otherwise it drops them all. It always drops the listing (fs/nfs/inode.c: nfs_wcc_update_inode).
// Without a reply, the client revalidates the directory at its next use (nfs_post_op_update_inode).
func (c *client) change(op Op, dirs []*node, do func() ([]wcc, error)) (replied bool, err error) {
	c.mu.Lock()
	c.own(dirs...)
	c.mu.Unlock()
	var reply []wcc
	replied, err = c.faults.call(op, func() (err error) {
		reply, err = do()
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own(dirs...)
	for i, dir := range dirs {
		dir.listing = nil
		c.markGone(dir, err)
		if !replied || !reply[i].after.isDir() {
			dir.expire()
			continue
		}
		if !dir.known || !reply[i].before.same(&dir.attr) {
			dir.forgetNames()
		}
		c.believe(dir, &reply[i].after)
	}
	return replied, err
}

// make makes a name. If that fails, the client forgets the name (fs/nfs/dir.c: nfs_mkdir and
// similar functions drop the dentry).
func (c *client) make(op Op, parent uint64, name string, do func(dir *object) (made, error)) (*node, *attributes, error) {
	dir := c.get(parent)
	var m made
	_, err := c.change(op, []*node{dir}, func() (_ []wcc, err error) {
		m, err = do(dir.object)
		return []wcc{m.dir}, err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(dir.names, name)
		return nil, nil, err
	}
	n := c.node(m.object)
	c.own(n)
	c.believe(n, &m.attr)
	dir.names[name] = n
	return n, &m.attr, nil
}

// entry makes a name and describes it to the kernel.
func (c *client) entry(op Op, h *fuse.InHeader, name string, out *fuse.EntryOut, do func(dirfd int) error) fuse.Status {
	n, a, err := c.make(op, h.NodeId, name, func(dir *object) (made, error) { return c.export.create(dir, name, do) })
	if err == nil {
		fill(out, n, a)
	}
	return fuse.ToStatus(err)
}

// Mkdir is mkdir(2).
func (c *client) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return c.entry(MkDir, &in.InHeader, name, out, func(dirfd int) error { return unix.Mkdirat(dirfd, name, in.Mode) })
}

// Symlink is symlink(2).
func (c *client) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return c.entry(SymLink, h, name, out, func(dirfd int) error { return unix.Symlinkat(target, dirfd, name) })
}

// Create is an open(2) with O_CREAT of a name that the client does not know or believes absent. The
// server decides.
func (c *client) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	n, a, err := c.make(Create, in.NodeId, name, func(dir *object) (made, error) {
		return c.export.createFile(dir, name, in.Mode, in.Flags&syscall.O_EXCL != 0)
	})
	if err != nil {
		return fuse.ToStatus(err)
	}
	if in.Flags&syscall.O_TRUNC != 0 && a.Size > 0 {
		truncate := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{Valid: fuse.FATTR_SIZE}}
		cut, err := c.update(n, SetAttr, func() (attributes, error) { return c.export.setattr(n.object, &truncate) })
		if err != nil {
			return fuse.ToStatus(err)
		}
		a = &cut
	}
	fill(&out.EntryOut, n, a)
	out.Fh = c.opened(n, in.Flags)
	return fuse.OK
}

// Link is link(2). The server's answer has the file's attributes, even if the name exists. Without
// an answer, the client trusts the old ones.
func (c *client) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n, dir := c.get(in.Oldnodeid), c.get(in.NodeId)
	c.mu.Lock()
	c.own(n)
	c.mu.Unlock()
	var m made
	replied, err := c.change(Link, []*node{dir}, func() (_ []wcc, err error) {
		m, err = c.export.link(n.object, dir.object, name)
		return []wcc{m.dir}, err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own(n)
	if replied && m.attr.Nlink > 0 {
		c.believe(n, &m.attr)
	}
	if err != nil {
		delete(dir.names, name)
		return fuse.ToStatus(err)
	}
	dir.names[name] = n
	fill(out, n, &m.attr)
	return fuse.OK
}

// Rmdir is rmdir(2).
func (c *client) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fuse.ToStatus(c.remove(c.get(h.NodeId), name, RmDir))
}

// Unlink is unlink(2). It renames a file that is open on this client.
func (c *client) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	dir := c.get(h.NodeId)
	target := c.peek(dir, name)
	open, unlock := c.close(target)
	defer unlock()
	if open {
		return fuse.ToStatus(c.sillyRename(dir, name, target))
	}
	return fuse.ToStatus(c.remove(dir, name, Remove))
}

// remove is REMOVE or RMDIR.
func (c *client) remove(dir *node, name string, op Op) error {
	target := c.peek(dir, name)
	_, err := c.change(op, []*node{dir}, func() ([]wcc, error) {
		w, err := c.export.remove(dir.object, name, op == RmDir)
		return []wcc{w}, err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || errors.Is(err, syscall.ENOENT) {
		target.expire()
		dir.names[name] = nil
	}
	return err
}

// Rename is rename(2), and renameat2(2) without flags (fs/nfs/dir.c: nfs_rename). A target that is
// open on this client first gets a silly name, so that the name is missing for a moment.
func (c *client) Rename(_ <-chan struct{}, in *fuse.RenameIn, old, name string) fuse.Status {
	if in.Flags != 0 {
		return fuse.EINVAL
	}
	from, to := c.get(in.NodeId), c.get(in.Newdir)
	moved, target := c.peek(from, old), c.peek(to, name)
	if moved == target {
		target = nil // two names of one file: nothing to do
	}
	open, unlock := c.close(target)
	defer unlock()
	if open {
		if err := c.sillyRename(to, name, target); err != nil {
			return fuse.ToStatus(err)
		}
	}
	return fuse.ToStatus(c.rename(from, old, to, name))
}

// rename is RENAME.
func (c *client) rename(from *node, old string, to *node, name string) error {
	moved, target := c.peek(from, old), c.peek(to, name)
	dirs := []*node{from, to}
	if from == to {
		dirs = dirs[:1]
	}
	_, err := c.change(Rename, dirs, func() ([]wcc, error) {
		w, toW, err := c.export.rename(from.object, old, to.object, name)
		return []wcc{w, toW}, err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(from.names, old)
	if err != nil {
		return err
	}
	moved.expire()
	target.expire()
	delete(to.names, name)
	if moved != nil && moved != target {
		to.names[name] = moved
	}
	return nil
}

// peek returns the node of a name, or nil.
func (c *client) peek(dir *node, name string) *node {
	n, _, _ := c.lookup(dir, name)
	return n
}

// close keeps a file, if it is not nil, from being opened on this client until unlock, and reports
// whether it is open.
func (c *client) close(n *node) (open bool, unlock func()) {
	if n == nil {
		return false, func() {}
	}
	n.opening.Lock()
	return c.isOpen(n), n.opening.Unlock
}

// sillyRename gives a file that is open on this client a name that stays until it is closed
// (fs/nfs/unlink.c: nfs_sillyrename). This client cannot remove such a name earlier.
func (c *client) sillyRename(dir *node, name string, n *node) error {
	c.mu.Lock()
	for _, p := range n.silly {
		if p.dir == dir && p.name == name {
			c.mu.Unlock()
			return syscall.EBUSY
		}
	}
	c.renamed++
	silly := place{dir, fmt.Sprintf(".nfs%016x%08x", n.object.id.ino, c.renamed)}
	c.mu.Unlock()
	if err := c.rename(dir, name, dir, silly.name); err != nil {
		return err
	}
	c.faults.count(SillyRename)
	c.mu.Lock()
	n.silly = append(n.silly, silly)
	dir.names[name] = nil
	c.mu.Unlock()
	c.removeSilly(n) // the file may just have been closed
	return nil
}
