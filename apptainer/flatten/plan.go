package flatten

import "archive/tar"

// plan lists the entries of a tree, without the contents of files, and the layers of those
// contents.
type plan struct {
	root  *inode
	dirs  []link // parents first
	other []link // symbolic links, devices, fifos
	// files maps, for each layer, the ordinal of a file's entry to the file's visible names. It
	// omits files without one.
	files []map[int][]string
	// newest is the latest time stamp, in seconds since 1970.
	newest int64
}

// link is a name for an inode.
type link struct {
	name string
	*inode
}

// plan lists the visible entries of the tree, in an order that depends only on its content.
func (t *tree) plan() plan {
	p := plan{root: t.root.inode, files: make([]map[int][]string, t.layer+1), newest: t.root.mtime}
	for i := range p.files {
		p.files[i] = map[int][]string{}
	}
	t.visit(func(name string, n *node) {
		p.newest = max(p.newest, n.mtime)
		switch n.kind {
		case tar.TypeDir:
			p.dirs = append(p.dirs, link{name, n.inode})
		case tar.TypeReg:
			names := p.files[n.inode.layer][n.ordinal]
			p.files[n.inode.layer][n.ordinal] = append(names, name)
		default:
			p.other = append(p.other, link{name, n.inode})
		}
	})
	return p
}
