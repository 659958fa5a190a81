package nfstest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// A client is one host's NFS client with its own caches. The kernel's own caches are off, except
// for the pages of files, which the kernel drops at each open and at a new time of change
// (fs/nfs/inode.c: nfs_revalidate_mapping).
//
// The kernel calls a method for one system call, or for a part of one.
type client struct {
	fuse.RawFileSystem // returns ENOSYS for missing methods
	o                  Options
	export             *export
	faults             *faults

	mu       sync.Mutex // never held during a call to the server
	random   *rand.Rand
	nodes    []*node // by the kernel's number, less one
	byObject map[*object]*node
	handles  map[uint64]*handle
	lastFh   uint64
	released chan struct{} // closed, and replaced, when a handle has ended
	gen      uint64        // counts this client's own changes
	renamed  uint32        // counts silly renames
}

// A node is a client's cached knowledge of an object.
type node struct {
	id     uint64
	object *object

	// The client's mu guards these.
	gone    bool       // from the server: its names are looked up again
	known   bool       // attr is set
	attr    attributes // as of some time
	until   time.Time  // attr is trusted until then
	changed uint64     // the client's gen at its last change; older replies are ignored

	// Of a directory.
	names   map[string]*node // looked-up names; nil for a missing one
	listing []fuse.DirEntry  // as of attr; nil if not known

	// Of a file.
	opens map[*handle]struct{}
	silly []place // names left by its removals

	opening sync.RWMutex // read-locked to open it, locked to remove it
	writing sync.Mutex   // guards dirty and pending, and orders the calls that write
	dirty   []extent
	pending int // bytes in dirty
}

// A place is a name in a directory.
type place struct {
	dir  *node
	name string
}

func newClient(e *export, f *faults, o Options, number uint64) *client {
	c := &client{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, export: e, faults: f,
		random:   rand.New(rand.NewPCG(o.Seed, number+2)),
		byObject: map[*object]*node{}, handles: map[uint64]*handle{}, released: make(chan struct{}),
	}
	c.node(e.root)
	return c
}

// node returns the node of an object. The caller has mu.
func (c *client) node(o *object) *node {
	n := c.byObject[o]
	if n == nil {
		n = &node{id: uint64(len(c.nodes)) + 1, object: o, names: map[string]*node{}, opens: map[*handle]struct{}{}}
		c.nodes, c.byObject[o] = append(c.nodes, n), n
	}
	n.gone = false
	return n
}

// get returns the node with the kernel's number.
func (c *client) get(id uint64) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id-1]
}

// own records a change of nodes by this client, which invalidates the replies to earlier calls. The
// caller has mu.
func (c *client) own(nodes ...*node) {
	c.gen++
	for _, n := range nodes {
		n.changed = c.gen
	}
}

// learn takes attributes from a reply to a call that began at the given gen. If they show that a
// directory has changed, it forgets the directory's names (fs/nfs/dir.c:
// nfs_force_lookup_revalidate). It reports whether the reply was used. The caller has mu.
func (c *client) learn(n *node, a *attributes, began uint64) bool {
	if n.changed > began {
		return false
	}
	if n.known && a.isDir() && !a.same(&n.attr) {
		c.own(n)
		n.forgetNames()
	}
	c.believe(n, a)
	return true
}

// expire makes the next use of the node ask for its attributes. The caller has mu.
func (n *node) expire() {
	if n != nil {
		n.until = time.Time{}
	}
}

func (n *node) forgetNames() {
	clear(n.names)
	n.listing = nil
}

// believe takes attributes as the current ones, for a random time between the limits. The caller
// has mu.
func (c *client) believe(n *node, a *attributes) {
	least, most := c.o.AcregMin, c.o.AcregMax
	if a.isDir() {
		least, most = c.o.AcdirMin, c.o.AcdirMax
	}
	n.attr, n.known = *a, true
	n.until = time.Now().Add(least + time.Duration(c.random.Float64()*float64(most-least)))
}

// fresh reports whether the attributes are still trusted. The caller has mu.
func (n *node) fresh() bool { return n.known && time.Now().Before(n.until) }

// markGone drops a node that the server no longer has, so that its names are looked up again, once.
// A StaleHandle fault prevents it. The caller has mu.
func (c *client) markGone(n *node, err error) {
	if errors.Is(err, syscall.ESTALE) && !n.gone && !c.faults.strike(StaleHandle, Open) {
		n.gone = true
	}
}

// revalidate returns a node's attributes. It asks the server if the known ones are too old, and for
// every open (nfs(5): close-to-open cache consistency).
func (c *client) revalidate(n *node, op Op) (attributes, error) {
	c.mu.Lock()
	if op != Open && n.fresh() {
		a := n.attr
		c.mu.Unlock()
		if now, err := c.export.getattr(n.object); err != nil || !now.same(&a) {
			c.faults.count(StaleAttributes)
		}
		return a, nil
	}
	began := c.gen
	c.mu.Unlock()
	var a attributes
	_, err := c.faults.call(op, func() (err error) {
		a, err = c.export.getattr(n.object)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.learn(n, &a, began)
	}
	c.markGone(n, err)
	return a, err
}

// update makes a call that changes an object's attributes, and takes them from the reply. Without a
// reply it keeps the old ones (fs/nfs/nfs3proc.c: nfs3_proc_setattr).
func (c *client) update(n *node, op Op, do func() (attributes, error)) (attributes, error) {
	c.mu.Lock()
	c.own(n)
	c.mu.Unlock()
	var a attributes
	_, err := c.faults.call(op, func() (err error) {
		a, err = do()
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own(n)
	if err == nil {
		c.believe(n, &a)
	}
	c.markGone(n, err)
	return a, err
}
