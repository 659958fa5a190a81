package flatten

import (
	"archive/tar"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// tree is the file system of an image while layer after layer is applied to
// it, as containerd unpacks them one over the other into one directory
// (pkg/archive/tar.go: applyNaive).
type tree struct {
	root  *node
	layer int // the one that is being applied
	room  int // how many more names it may make
}

// node is one name in the tree.
type node struct {
	*inode
	layer    int              // the last one that had an entry for the name
	children map[string]*node // of a directory
}

// inode is what a name stands for; hard links share one.
type inode struct {
	entry

	layer   int // where the entry stands, which for a file is where its content is
	ordinal int // which entry of that layer
}

const (
	whiteoutPrefix = ".wh."
	// whiteoutMeta begins the names that aufs kept for itself.
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
	maxSymlinks    = 40 // as Linux follows in one path
)

var errSymlinkLoop = errors.New("too many symbolic links")

// newTree returns an empty root that takes at most room names, also such as
// are hidden later.
func newTree(room int) *tree {
	t := &tree{layer: -1, room: room}
	t.root = t.impliedDir()
	return t
}

// impliedDir is a directory that no entry describes.
func (t *tree) impliedDir() *node {
	return &node{
		inode:    &inode{entry: entry{kind: tar.TypeDir, mode: 0o755}, layer: t.layer, ordinal: -1},
		layer:    t.layer,
		children: map[string]*node{},
	}
}

// apply unpacks the entries of the next layer over the tree. What it cannot do
// as a container runtime would is an error.
func (t *tree) apply(entries []entry) error {
	t.layer++
	for i, e := range entries {
		if e.kind == 0 {
			continue
		}
		if err := t.applyOne(i, e); err != nil {
			return fmt.Errorf("%q: %w", e.name, err)
		}
	}
	return nil
}

func (t *tree) applyOne(ordinal int, e entry) error {
	dir, base := path.Split(e.name)
	if strings.HasPrefix(base, whiteoutPrefix) {
		return t.whiteout(dir, base)
	}
	if base == "" {
		if e.kind != tar.TypeDir {
			return errors.New("the root is not a directory")
		}
		t.root.inode = &inode{entry: e, layer: t.layer, ordinal: ordinal}
		return nil
	}
	parent, err := t.makeDirs(dir)
	if err != nil {
		return err
	}
	if err := t.spend(); err != nil {
		return err
	}
	n := &node{inode: &inode{entry: e, layer: t.layer, ordinal: ordinal}, layer: t.layer}
	switch e.kind {
	case tar.TypeDir:
		n.children = map[string]*node{}
		if old := parent.children[base]; old != nil && old.kind == tar.TypeDir {
			n.children = old.children
		}
	case tar.TypeLink:
		target, err := t.linkTarget(e.link)
		if err != nil {
			return err
		}
		n.inode = target.inode
	}
	parent.children[base] = n
	return nil
}

// linkTarget finds what a hard link shares. As link(2), it follows symbolic
// links on the way there and not at the end.
func (t *tree) linkTarget(name string) (*node, error) {
	dir, base := path.Split(name)
	parent, err := t.lookup(dir)
	if err != nil {
		return nil, fmt.Errorf("hard link to %q: %w", name, err)
	}
	if parent == nil || parent.children[base] == nil {
		return nil, fmt.Errorf("hard link to %q, which does not exist", name)
	}
	target := parent.children[base]
	if target.kind == tar.TypeDir {
		return nil, fmt.Errorf("hard link to %q, which is a directory", name)
	}
	return target, nil
}

// whiteout hides what lower layers have put under a name, or, by an opaque
// whiteout, in a directory. What the layer itself put there stays, whatever
// the order (image-spec, layer.md: Whiteouts).
func (t *tree) whiteout(dir, base string) error {
	parent, err := t.lookup(dir)
	if err != nil || parent == nil {
		return err
	}
	if base == whiteoutOpaque {
		t.hide(parent)
		return nil
	}
	if strings.HasPrefix(base, whiteoutMeta) {
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return errors.New("a whiteout that names no file")
	}
	n := parent.children[name]
	if n == nil {
		return nil
	}
	t.hide(n)
	switch {
	case n.layer == t.layer:
	case len(n.children) == 0:
		delete(parent.children, name)
	default:
		kept := t.impliedDir()
		kept.children = n.children
		parent.children[name] = kept
	}
	return nil
}

// hide removes from a directory, at any depth, what lower layers have put
// there.
func (t *tree) hide(n *node) {
	for name, child := range n.children {
		t.hide(child)
		switch {
		case child.layer == t.layer:
		case len(child.children) == 0:
			delete(n.children, name)
		default:
			kept := t.impliedDir()
			kept.children = child.children
			n.children[name] = kept
		}
	}
}

// lookup finds the directory that name stands for, through symbolic links; nil
// when there is none.
func (t *tree) lookup(name string) (*node, error) {
	n, err := t.walk(name, false)
	if err != nil || n == nil || n.kind != tar.TypeDir {
		return nil, err
	}
	return n, nil
}

// makeDirs finds the directory that name stands for and makes what is missing
// on the way.
func (t *tree) makeDirs(name string) (*node, error) { return t.walk(name, true) }

// exists says whether the tree has something at name; a symbolic link at its
// end counts, wherever it leads.
func (t *tree) exists(name string) (bool, error) {
	dir, base := path.Split(name)
	parent, err := t.lookup(dir)
	if err != nil || parent == nil {
		return false, err
	}
	return parent.children[base] != nil, nil
}

// walk follows name from the root through directories and symbolic links,
// which cannot leave it. Without create it returns nil where something is
// missing; with create, missing directories are made.
func (t *tree) walk(name string, create bool) (*node, error) {
	trail := []*node{t.root}
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		at := trail[len(trail)-1]
		next := at.children[part]
		switch {
		case part == "" || part == ".":
		case part == "..":
			trail = trail[:max(1, len(trail)-1)]
		case next != nil && next.kind == tar.TypeDir:
			trail = append(trail, next)
		case next != nil && next.kind == tar.TypeSymlink:
			if links++; links > maxSymlinks {
				return nil, errSymlinkLoop
			}
			if strings.HasPrefix(next.link, "/") {
				trail = trail[:1]
			}
			rest = slices.Concat(strings.Split(next.link, "/"), rest)
		case !create:
			return nil, nil //nolint:nilnil // nothing there is an answer
		default:
			made, err := t.makeDir(at, part)
			if err != nil {
				return nil, err
			}
			trail = append(trail, made)
		}
	}
	return trail[len(trail)-1], nil
}

// makeDir makes a directory that an entry's name implies. A lower layer's file
// gives way to it, as it does where each layer is unpacked by itself.
func (t *tree) makeDir(parent *node, base string) (*node, error) {
	if old := parent.children[base]; old != nil && old.layer == t.layer {
		return nil, fmt.Errorf("the same layer has %q as a file", base)
	}
	if err := t.spend(); err != nil {
		return nil, err
	}
	made := t.impliedDir()
	parent.children[base] = made
	return made, nil
}

// spend counts one more name.
func (t *tree) spend() error {
	if t.room--; t.room < 0 {
		return ErrTooLarge
	}
	return nil
}

// visit calls fn for every name below the root, sorted, parents first.
func (t *tree) visit(fn func(name string, n *node)) {
	var walk func(prefix string, n *node)
	walk = func(prefix string, n *node) {
		for _, base := range slices.Sorted(maps.Keys(n.children)) {
			child := n.children[base]
			fn(prefix+base, child)
			walk(prefix+base+"/", child)
		}
	}
	walk("", t.root)
}
