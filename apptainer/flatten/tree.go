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

// tree is the file system of an image. Layers are applied to it from the lowest up, as containerd
// unpacks them into one directory (pkg/archive/tar.go: applyNaive).
type tree struct {
	root   *node
	layer  int // the current one
	limits Limits
	// What is left of further names, of the bytes of their paths, and of steps along names and symbolic
	// links. Names that are hidden later count, too.
	room, pathRoom, steps int64
}

// node is one name in the tree.
type node struct {
	*inode
	layer    int              // the last one with an entry for the name
	length   int              // of its path, in bytes, with a leading slash
	children map[string]*node // of a directory
	cleared  int              // the last layer that hid entries of lower layers in it
}

// inode is the object of a name. Hard links share one.
type inode struct {
	entry

	layer   int // the layer with the entry, and a file's content
	ordinal int // of the entry in that layer
}

const (
	whiteoutPrefix = ".wh."
	// whiteoutMeta begins the names that aufs itself used.
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
	maxSymlinks    = 40 // Linux's limit for one path
)

// stepsPerName limits the steps that a tree may use for each of its possible names. Without it,
// many short names could each lead along a long chain of symbolic links.
const stepsPerName = 100

var errSymlinkLoop = errors.New("too many symbolic links")

func newTree(limits Limits) *tree {
	t := &tree{layer: -1, limits: limits, room: limits.Entries, pathRoom: limits.NameBytes, steps: stepsPerName * (limits.Entries + stepsPerName)}
	t.root = t.impliedDir(0)
	return t
}

// impliedDir returns a directory that no entry describes.
func (t *tree) impliedDir(length int) *node {
	return &node{
		inode:    &inode{entry: entry{kind: tar.TypeDir, mode: 0o755}, layer: t.layer, ordinal: -1},
		layer:    t.layer,
		length:   length,
		children: map[string]*node{},
	}
}

// apply applies the entries of the next layer. It fails if a container runtime would.
func (t *tree) apply(entries []entry) error {
	t.layer++
	for i, e := range entries {
		if e.kind == 0 {
			continue
		}
		if err := t.applyEntry(i, e); err != nil {
			return fmt.Errorf("%s: %w", quoted(e.name), err)
		}
	}
	return nil
}

func (t *tree) applyEntry(ordinal int, e entry) error {
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
	length, err := t.spend(parent, base)
	if err != nil {
		return err
	}
	n := &node{inode: &inode{entry: e, layer: t.layer, ordinal: ordinal}, layer: t.layer, length: length}
	switch e.kind {
	case tar.TypeDir:
		n.children = map[string]*node{}
		if old := parent.children[base]; old != nil && old.kind == tar.TypeDir {
			n.children, n.cleared = old.children, old.cleared
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

// linkTarget finds the target of a hard link. Like link(2), it follows symbolic links on the way to
// the target, and not at its end.
func (t *tree) linkTarget(name string) (*node, error) {
	dir, base := path.Split(name)
	parent, err := t.lookup(dir)
	if err != nil {
		return nil, fmt.Errorf("hard link to %s: %w", quoted(name), err)
	}
	if parent == nil || parent.children[base] == nil {
		return nil, fmt.Errorf("hard link to %s, which does not exist", quoted(name))
	}
	target := parent.children[base]
	if target.kind == tar.TypeDir {
		return nil, fmt.Errorf("hard link to %s, which is a directory", quoted(name))
	}
	return target, nil
}

// whiteout hides the entries of lower layers for a name or, for an opaque whiteout, in a directory.
// Entries of this layer stay, in any order (image-spec, layer.md: Whiteouts).
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
		parent.children[name] = t.ownPart(n)
	}
	return nil
}

// hide removes the entries of lower layers from a directory, at any depth.
func (t *tree) hide(n *node) {
	if n.cleared == t.layer {
		return // later entries are of this layer
	}
	n.cleared = t.layer
	t.steps -= int64(len(n.children))
	for name, child := range n.children {
		t.hide(child)
		switch {
		case child.layer == t.layer:
		case len(child.children) == 0:
			delete(n.children, name)
		default:
			n.children[name] = t.ownPart(child)
		}
	}
}

// ownPart returns the rest of a hidden directory: this layer's entries in it.
func (t *tree) ownPart(n *node) *node {
	kept := t.impliedDir(n.length)
	kept.children, kept.cleared = n.children, n.cleared
	return kept
}

// lookup finds the directory at name, through symbolic links. It returns nil if there is none.
func (t *tree) lookup(name string) (*node, error) {
	n, err := t.walk(name, false)
	if err != nil || n == nil || n.kind != tar.TypeDir {
		return nil, err
	}
	return n, nil
}

// makeDirs finds the directory at name, and makes its missing parts.
func (t *tree) makeDirs(name string) (*node, error) { return t.walk(name, true) }

// exists reports whether the tree has an entry at name. A symbolic link counts, even one that leads
// nowhere.
func (t *tree) exists(name string) (bool, error) {
	dir, base := path.Split(name)
	parent, err := t.lookup(dir)
	if err != nil || parent == nil {
		return false, err
	}
	return parent.children[base] != nil, nil
}

// walk follows name from the root through directories and symbolic links, which cannot leave the
// root. If a directory is missing, walk makes it if create is set, and otherwise returns nil.
func (t *tree) walk(name string, create bool) (*node, error) {
	trail := []*node{t.root}
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		if t.steps--; t.steps < 0 {
			return nil, fmt.Errorf("its names lead too far along symbolic links: %w", ErrTooLarge)
		}
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
			t.steps -= int64(len(rest))
		case !create:
			return nil, nil
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

// makeDir makes a directory that an entry's name implies. It replaces a lower layer's file, as
// unpacking the layers one by one does.
func (t *tree) makeDir(parent *node, base string) (*node, error) {
	if old := parent.children[base]; old != nil && old.layer == t.layer {
		return nil, fmt.Errorf("the same layer has %q as a file", base)
	}
	length, err := t.spend(parent, base)
	if err != nil {
		return nil, err
	}
	made := t.impliedDir(length)
	parent.children[base] = made
	return made, nil
}

// spend counts one more name, and returns the length of its path.
func (t *tree) spend(parent *node, base string) (length int, err error) {
	length = parent.length + len("/") + len(base)
	t.room--
	t.pathRoom -= int64(length)
	switch {
	case length > len("/")+pathMax:
		return 0, fmt.Errorf("symbolic links lead it to a path longer than %d bytes", pathMax)
	case t.room < 0:
		return 0, tooMany(t.limits.Entries)
	case t.pathRoom < 0:
		return 0, tooManyNames(t.limits.NameBytes)
	}
	return length, nil
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

// checkCrowd counts the names in directories exactly: a cover does not see that symbolic links lead
// names into one directory.
func (t *tree) checkCrowd() error {
	sum := crowd{limit: t.limits.Crowd}
	var count func(name string, n *node) error
	count = func(name string, n *node) error {
		if err := sum.grow(name, 0, int64(len(n.children))); err != nil {
			return err
		}
		for base, child := range n.children {
			if len(child.children) == 0 {
				continue
			}
			if err := count(path.Join(name, base), child); err != nil {
				return err
			}
		}
		return nil
	}
	return count("", t.root)
}
