package nfstest

import (
	"cmp"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// mostPending limits the bytes of one file that a client holds back.
const mostPending = 1 << 20

// leaving limits the time that a removal waits for the end of a closed file's handle.
const leaving = 2 * time.Second

// A handle is the result of open(2). The client's mu guards err and closed.
type handle struct {
	node   *node
	closed bool // one of its descriptors was closed, and it was not used since
	writes bool
	err    error // of a write that was held back: the next fsync reports it, and each close until then

	listing []fuse.DirEntry // of a directory, since the last reading from its start
}

// An extent is written data that is held back.
type extent struct {
	off  int64
	data []byte
}

func (c *client) handle(fh uint64) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handles[fh]
}

// use records a use of a handle.
func (c *client) use(fh uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.handles[fh]; h != nil {
		h.closed = false
	}
}

// isOpen reports whether a program has a file open. The kernel reports the end of a handle after
// the close(2) that ended it, and perhaps late. If each handle seems closed, isOpen waits for their
// ends.
func (c *client) isOpen(n *node) bool {
	for late := time.After(leaving); ; {
		c.mu.Lock()
		used, released := false, c.released
		for h := range n.opens {
			used = used || !h.closed
		}
		opens := len(n.opens)
		c.mu.Unlock()
		if opens == 0 || used {
			return used
		}
		select {
		case <-released:
		case <-late:
			return true
		}
	}
}

// Open always asks the server for the file's attributes. The kernel drops the file's pages. If the
// file is gone, the kernel repeats the look-up of its name, and the program gets ESTALE if that
// does not help.
func (c *client) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := c.get(in.NodeId)
	n.opening.RLock()
	defer n.opening.RUnlock()
	_ = c.flush(n) // the writer gets the error
	if _, err := c.revalidate(n, Open); err != nil {
		return fuse.ToStatus(err)
	}
	out.Fh = c.opened(n, in.Flags)
	return fuse.OK
}

// opened makes the handle of a file.
func (c *client) opened(n *node, flags uint32) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &handle{node: n, writes: flags&syscall.O_ACCMODE != syscall.O_RDONLY}
	n.opens[h] = struct{}{}
	c.lastFh++
	c.handles[c.lastFh] = h
	return c.lastFh
}

// Release ends a handle. The end of the last one removes the silly names, as in fs/nfs/unlink.c
// (nfs_complete_unlink), after close(2) has returned.
func (c *client) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	h := c.handle(in.Fh)
	_ = c.flush(h.node) // of pages written through a mapping; no program waits for the error
	c.mu.Lock()
	delete(c.handles, in.Fh)
	delete(h.node.opens, h)
	close(c.released)
	c.released = make(chan struct{})
	c.mu.Unlock()
	c.removeSilly(h.node)
}

// removeSilly removes the silly names of a file that is not open any more.
func (c *client) removeSilly(n *node) {
	c.mu.Lock()
	var over []place
	if len(n.opens) == 0 {
		over, n.silly = n.silly, nil
	}
	c.mu.Unlock()
	for _, p := range over {
		_ = c.remove(p.dir, p.name, Remove) // a name that cannot be removed stays, as on real clients
	}
}

// Read asks the server. The kernel keeps the data.
func (c *client) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := c.get(in.NodeId)
	c.use(in.Fh)
	_ = c.flush(n) // the writer gets the error
	got := 0
	_, err := c.faults.call(Read, func() (err error) {
		got, err = c.export.read(n.object, buf, int64(in.Offset))
		return err
	})
	if err != nil {
		return nil, fuse.ToStatus(err)
	}
	return fuse.ReadResultData(buf[:got]), fuse.OK
}

// Write holds data back. They are sent when there are many, when a call needs them, and at the
// latest when the file is closed.
func (c *client) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, off := c.get(in.NodeId), int64(in.Offset)
	c.use(in.Fh)
	n.writing.Lock()
	n.dirty = append(n.dirty, extent{off: off, data: append([]byte(nil), data...)})
	n.pending += len(data)
	full := n.pending >= mostPending
	n.writing.Unlock()
	if full {
		if err := c.flush(n); err != nil {
			return 0, fuse.ToStatus(err)
		}
	}
	return uint32(len(data)), fuse.OK
}

// flush sends the data that was held back. Failed data is lost. The next fsync of each handle
// reports the error, and so does each close of a writable handle until then (fs/nfs/file.c:
// nfs_file_flush, nfs_file_fsync).
func (c *client) flush(n *node) (failed error) {
	n.writing.Lock()
	defer n.writing.Unlock()
	for _, x := range n.dirty {
		if _, failed = c.update(n, Write, func() (attributes, error) { return c.export.write(n.object, x.data, x.off) }); failed != nil {
			break
		}
	}
	n.dirty, n.pending = nil, 0
	if failed != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for h := range n.opens {
			h.err = failed
		}
	}
	return failed
}

// Flush is close(2) of a descriptor or of a copy of it, such as a program's between fork(2) and
// execve(2). So it must not take an error away from others.
func (c *client) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h := c.handle(in.Fh)
	c.mu.Lock()
	h.closed = true
	c.mu.Unlock()
	if !h.writes {
		return fuse.OK
	}
	err := c.flush(h.node)
	c.mu.Lock()
	defer c.mu.Unlock()
	return fuse.ToStatus(cmp.Or(h.err, err))
}

// Fsync is fsync(2).
func (c *client) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := c.handle(in.Fh)
	err := c.flush(h.node)
	c.mu.Lock()
	defer c.mu.Unlock()
	err, h.err = cmp.Or(h.err, err), nil
	return fuse.ToStatus(err)
}
