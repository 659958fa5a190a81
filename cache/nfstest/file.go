package nfstest

import (
	"cmp"
	"iter"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// mostPending is how many bytes of one file a client holds back at most.
const mostPending = 1 << 20

// leaving is how long a removal waits for the end of a file that was closed.
const leaving = 2 * time.Second

// A handle is what open(2) made. The client's mu guards at, err and closed.
type handle struct {
	node    *node
	at      place // the name that was opened, wherever it is now
	closed  bool  // a descriptor of it was, and it was not used since
	writes  bool
	appends bool
	err     error // of a write that was held back: fsync reports it once, and close until then
	before  error // the same, of one before the open, of which nobody had been told: only fsync does

	listing []fuse.DirEntry // of a directory, since it was read from the start
}

// An extent is what was written and is held back.
type extent struct {
	off  int64
	data []byte
}

func (c *client) handle(fh uint64) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handles[fh]
}

// use is the handle of a number, which is in use.
func (c *client) use(fh uint64) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handles[fh]
	if h != nil {
		h.closed = false
	}
	return h
}

// isOpen is whether a program has opened a file by this name. The kernel tells
// the end of a handle after the close(2) that ended it, and so perhaps late:
// where each handle was closed as far as can be seen, the end is waited for.
func (c *client) isOpen(n *node, at place) bool {
	for late := time.After(leaving); ; {
		c.mu.Lock()
		opens, used, released := 0, 0, c.released
		for h := range n.openedAt(at) {
			opens++
			if !h.closed {
				used++
			}
		}
		c.mu.Unlock()
		if opens == 0 || used > 0 {
			return used > 0
		}
		select {
		case <-released:
		case <-late:
			return true
		}
	}
}

// openedAt are the handles of a file that was opened by this name. The caller
// has the client's mu.
func (n *node) openedAt(at place) iter.Seq[*handle] {
	return func(yield func(*handle) bool) {
		for h := range n.opens {
			if h.at == at && !yield(h) {
				return
			}
		}
	}
}

// Open asks the server for the file's attributes, whatever is known of them;
// the kernel drops the file's pages. When the file is gone the program gets
// ESTALE, unless a look-up of its name, which the kernel repeats, helps.
func (c *client) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := c.get(in.NodeId)
	n.opening.RLock()
	defer n.opening.RUnlock()
	_ = c.flush(n) // the error is the writer's
	if _, err := c.revalidate(n, Open); err != nil {
		return fuse.ToStatus(err)
	}
	c.mu.Lock()
	at := c.looked[in.Pid] // by the same system call
	c.mu.Unlock()
	out.Fh = c.opened(n, at, in.Flags)
	return fuse.OK
}

// opened makes the handle of a file.
func (c *client) opened(n *node, at place, flags uint32) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &handle{node: n, at: at, before: n.failed, writes: flags&syscall.O_ACCMODE != syscall.O_RDONLY, appends: flags&syscall.O_APPEND != 0}
	n.opens[h] = struct{}{}
	c.lastFh++
	c.handles[c.lastFh] = h
	return c.lastFh
}

// Release is the end of a handle. The last one takes the silly names along, as
// fs/nfs/unlink.c does (nfs_complete_unlink): after close(2) has returned.
func (c *client) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	h := c.handle(in.Fh)
	_ = c.flush(h.node) // pages that were written through a mapping; nobody is there to hear of an error
	c.mu.Lock()
	delete(c.handles, in.Fh)
	delete(h.node.opens, h)
	close(c.released)
	c.released = make(chan struct{})
	c.mu.Unlock()
	c.removeSilly(h.node)
}

// removeSilly removes the silly names of a file that are not open any more.
func (c *client) removeSilly(n *node) {
	c.mu.Lock()
	var over []place
	n.silly = slices.DeleteFunc(n.silly, func(p place) bool {
		for range n.openedAt(p) {
			return false
		}
		over = append(over, p)
		return true
	})
	c.mu.Unlock()
	for _, p := range over {
		_ = c.remove(p.dir, p.name, Remove) // what fails stays, as in life
		c.mu.Lock()
		p.dir.pins--
		c.mu.Unlock()
	}
}

// Read asks the server. What it says the kernel keeps.
func (c *client) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := c.get(in.NodeId)
	c.use(in.Fh)
	_ = c.flush(n) // the error is the writer's
	got := 0
	_, err := c.faults.call(Read, c.nameOf(n), func() (err error) {
		got, err = c.export.read(n.object, buf, int64(in.Offset))
		return err
	})
	if err != nil {
		return nil, fuse.ToStatus(err)
	}
	return fuse.ReadResultData(buf[:got]), fuse.OK
}

// Write holds the data back: they are sent when there are many, and when
// something wants to know of them, at the latest when the file is closed.
func (c *client) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, off := c.get(in.NodeId), int64(in.Offset)
	if h := c.use(in.Fh); h != nil && h.appends && in.WriteFlags&fuse.WRITE_CACHE == 0 {
		_ = c.flush(n)
		a, err := c.revalidate(n, Open) // fs/nfs/file.c: nfs_file_write asks for the size; another host may append meanwhile
		if err != nil {
			return 0, fuse.ToStatus(err)
		}
		off = max(off, a.Size)
	}
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

// flush sends what was held back. When that fails it is lost. The fsync of each
// handle says so once, also of those that are opened before anybody was told, and
// so does the close of each that could write then (fs/nfs/file.c: nfs_file_flush,
// nfs_file_fsync; lib/errseq.c).
func (c *client) flush(n *node) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	var failed error
	for _, x := range n.dirty {
		n.unsure = true
		if _, failed = c.update(n, Write, func() (attributes, error) { return c.export.write(n.object, x.data, x.off) }); failed != nil {
			break
		}
	}
	n.dirty, n.pending = nil, 0
	c.fail(n, failed)
	return failed
}

// commit flushes, and has the server put it on stable storage.
func (c *client) commit(n *node) error {
	if err := c.flush(n); err != nil {
		return err
	}
	n.writing.Lock()
	defer n.writing.Unlock()
	if !n.unsure {
		return nil
	}
	n.unsure = false
	_, err := c.faults.call(Commit, c.nameOf(n), func() error {
		_, err := c.export.getattr(n.object)
		return err
	})
	c.fail(n, err)
	return err
}

// fail keeps an error for those who have the file open, and for those who open it.
func (c *client) fail(n *node, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n.failed = err
	for h := range n.opens {
		h.err = err
	}
}

// Flush is close(2), and the same of a copy of the descriptor: also that which a
// program has between fork(2) and execve(2). So it takes no error from others.
func (c *client) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h := c.handle(in.Fh)
	c.mu.Lock()
	h.closed = true
	c.mu.Unlock()
	if !h.writes {
		return fuse.OK
	}
	err := c.commit(h.node)
	c.mu.Lock()
	defer c.mu.Unlock()
	return fuse.ToStatus(cmp.Or(h.err, err))
}

// Fsync is fsync(2).
func (c *client) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := c.handle(in.Fh)
	err := c.commit(h.node)
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed := cmp.Or(h.err, h.before); failed != nil {
		err, h.err, h.before, h.node.failed = failed, nil, nil, nil
	}
	return fuse.ToStatus(err)
}
