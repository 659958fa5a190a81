package nfstest

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// A client is one host's NFS client: it has caches of its own. The kernel's
// own caches are off but for the pages of files, which the kernel drops when a
// file is opened, and when its time of change is another (fs/nfs/inode.c:
// nfs_revalidate_mapping).
//
// A method that is called by the kernel is one system call, or a part of one.
type client struct {
	fuse.RawFileSystem // what is not here is ENOSYS
	o                  Options
	export             *export
	faults             *faults

	mu       sync.Mutex // never held during a call to the server
	random   *rand.Rand
	nodes    map[uint64]*node // by the number that the kernel has
	byObject map[*object]*node
	lastNode uint64
	handles  map[uint64]*handle
	lastFh   uint64
	released chan struct{}    // closed, and made anew, when a handle has ended
	looked   map[uint32]place // what each thread has looked up last
	gen      uint64           // counts this client's own changes
	renamed  uint32           // counts silly renames
}

// A node is what a client knows of an object.
type node struct {
	id     uint64
	object *object

	// The client's mu guards these.
	name    string // by which it was last looked up
	lookups uint64 // how often the kernel was told of it, less what it forgot
	pins    int    // other reasons to remember it
	evicted bool
	gone    bool       // the server said so: its names are looked up again
	known   bool       // attr is set
	attr    attributes // as of some time
	until   time.Time  // till when attr is believed
	changed uint64     // the client's gen at its last change: an older reply says nothing

	// Of a directory.
	names   map[string]*node // what was looked up; nil is a name that is not there
	listing []fuse.DirEntry  // as the server had it when attr came; nil is not known

	// Of a file.
	opens map[*handle]struct{}
	silly []place // names that its removals have left

	opening sync.RWMutex // held by who opens, and alone by who removes
	writing sync.Mutex   // guards what follows, and orders the calls that write
	dirty   []extent
	pending int  // bytes in dirty
	unsure  bool // written, not committed

	failed error // of a write, of which nobody was told yet; guarded by the client's mu
}

// A place is a name in a directory.
type place struct {
	dir  *node
	name string
}

func newClient(e *export, f *faults, o Options, number uint64) *client {
	c := &client{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, export: e, faults: f,
		random: rand.New(rand.NewPCG(o.Seed, number+2)),
		nodes:  map[uint64]*node{}, byObject: map[*object]*node{}, handles: map[uint64]*handle{},
		released: make(chan struct{}), looked: map[uint32]place{},
	}
	e.mu.Lock()
	e.root.refs++
	e.mu.Unlock()
	root := c.node(e.root, "")
	root.lookups = 1 // for as long as it is mounted
	return c
}

// node returns what the client knows of an object, and takes over the
// reference to that. The caller has mu.
func (c *client) node(o *object, name string) *node {
	n := c.byObject[o]
	if n != nil {
		c.export.release(o)
		n.name, n.gone = name, false
		return n
	}
	if c.export.crowded() {
		c.evict()
	}
	c.lastNode++
	n = &node{id: c.lastNode, object: o, name: name, names: map[string]*node{}, opens: map[*handle]struct{}{}}
	c.nodes[n.id], c.byObject[o] = n, n
	return n
}

// evict forgets a tenth of the nodes, of those that no program uses, as want of
// memory does. The caller has mu.
func (c *client) evict() {
	left := len(c.nodes)/10 + 1
	for id, n := range c.nodes {
		if left == 0 {
			return
		}
		if n.lookups > 0 || n.pins > 0 || len(n.opens) > 0 {
			continue
		}
		n.evicted = true
		delete(c.nodes, id)
		delete(c.byObject, n.object)
		c.export.release(n.object)
		left--
	}
}

// get is the node of a number that the kernel has.
func (c *client) get(id uint64) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

// nameOf is the name by which a node was last looked up.
func (c *client) nameOf(n *node) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.name
}

// Forget gives back what the kernel was told.
func (c *client) Forget(id, lookups uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[id]; n != nil {
		n.lookups -= min(lookups, n.lookups)
	}
}

// now is when a call to the server begins: it is the client's number of
// changes so far.
func (c *client) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gen
}

// own notes that this client changes the node: what was asked before is no
// answer any more. The caller has mu.
func (c *client) own(nodes ...*node) {
	c.gen++
	for _, n := range nodes {
		n.changed = c.gen
	}
}

// learn takes attributes from a reply to a call that began at a time. When they
// show that a directory has changed, all that was known of its names goes
// (fs/nfs/dir.c: nfs_force_lookup_revalidate). It returns whether the reply
// counts. The caller has mu.
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

// doubt has the node's attributes asked for when they are needed next. The
// caller has mu.
func (n *node) doubt() {
	if n != nil {
		n.until = time.Time{}
	}
}

func (n *node) forgetNames() {
	clear(n.names)
	n.listing = nil
}

// believe takes attributes as those of now. For how long it does is drawn for
// each anew, between the bounds. The caller has mu.
func (c *client) believe(n *node, a *attributes) {
	least, most := c.o.AcregMin, c.o.AcregMax
	if a.isDir() {
		least, most = c.o.AcdirMin, c.o.AcdirMax
	}
	n.attr, n.known = *a, true
	n.until = time.Now().Add(least + time.Duration(c.random.Float64()*float64(most-least)))
}

// fresh is whether the attributes are believed. The caller has mu.
func (n *node) fresh() bool { return n.known && time.Now().Before(n.until) }

// revalidate returns a node's attributes: from the server when what is known is
// too old, or when the call is one of an open, which always asks (nfs(5):
// close-to-open cache consistency).
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
	began, name := c.gen, n.name
	c.mu.Unlock()
	var a attributes
	_, err := c.faults.call(op, name, func() (err error) {
		a, err = c.export.getattr(n.object)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.learn(n, &a, began)
	}
	c.mourn(n, err)
	return a, err
}
