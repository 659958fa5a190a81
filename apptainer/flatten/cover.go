package flatten

import (
	"archive/tar"
	"path"
	"strings"
)

// nameUse describes the entries of layers for a name.
type nameUse uint8

const (
	hasDirectory nameUse = 1 << iota // an entry for it, or for a name below it
	hasOther                         // a file, a link or a device
	isWhiteout
	isOpaque // a directory whose contents in lower layers are hidden
)

// cover predicts the visible files of a layer. It knows the names in higher layers and in the
// current layer as they are written. It does not know symbolic links of lower layers, which may
// redirect names.
type cover struct {
	above, own map[string]nameUse
	names      map[string]int64 // in a directory, in all layers, also those that are hidden later
	crowd      crowd
	room, most int64 // for directories that names imply: what is left, and the limit
}

// newCover returns the cover of the highest layer. Files with the names in taken are written later
// in any case.
func newCover(taken []string, limits Limits) *cover {
	c := &cover{above: map[string]nameUse{}, own: map[string]nameUse{}, names: map[string]int64{}, crowd: crowd{limit: limits.Crowd}, room: limits.Entries, most: limits.Entries}
	for _, name := range taken {
		c.above[name] = hasOther
	}
	return c
}

// shows predicts whether a file of this layer is visible under its name.
func (c *cover) shows(name string) bool {
	if c.above[name] != 0 || c.own[name] != 0 || strings.HasPrefix(path.Base(name), whiteoutPrefix) {
		return false
	}
	for dir := parent(name); dir != ""; dir = parent(dir) {
		if c.above[dir]&(hasOther|isWhiteout|isOpaque) != 0 || c.own[dir]&hasOther != 0 {
			return false
		}
	}
	return c.above[""]&isOpaque == 0
}

func (c *cover) add(e entry) error {
	dir, base := path.Split(e.name)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case e.kind == 0:
		return nil
	case base == whiteoutOpaque:
		c.own[dir] |= isOpaque
		return nil
	case strings.HasPrefix(base, whiteoutPrefix):
		c.own[path.Join(dir, strings.TrimPrefix(base, whiteoutPrefix))] |= isWhiteout
		return nil
	}
	if err := c.countName(e.name); err != nil {
		return err
	}
	if e.kind == tar.TypeDir {
		c.own[e.name] |= hasDirectory
	} else {
		c.own[e.name] |= hasOther
	}
	for ; dir != "" && c.own[dir]&hasDirectory == 0; dir = parent(dir) {
		if c.own[dir] == 0 && c.above[dir] == 0 {
			c.room--
		}
		if err := c.countName(dir); err != nil {
			return err
		}
		c.own[dir] |= hasDirectory
	}
	if c.room < 0 {
		return tooMany(c.most)
	}
	return nil
}

// countName counts a name in its directory if it is new. The root has none.
func (c *cover) countName(name string) error {
	const there = hasDirectory | hasOther
	if name == "" || c.own[name]&there != 0 || c.above[name]&there != 0 {
		return nil
	}
	dir := parent(name)
	before := c.names[dir]
	c.names[dir] = before + 1
	return c.crowd.grow(dir, before, before+1)
}

// nextLayer moves to the next lower layer.
func (c *cover) nextLayer() {
	for name, use := range c.own {
		c.above[name] |= use
	}
	clear(c.own)
}

// parent returns the directory of a clean name; "" is the root.
func parent(name string) string {
	return name[:max(0, strings.LastIndexByte(name, '/'))]
}
