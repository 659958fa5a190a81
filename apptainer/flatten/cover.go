package flatten

import (
	"archive/tar"
	"path"
	"strings"
)

// mark is what layers have at a name.
type mark uint8

const (
	hasDirectory mark = 1 << iota // an entry, or one below it
	hasOther                      // a file, a link, a device
	isGone                        // a whiteout
	isOpaque                      // a directory whose lower content is hidden
)

// cover is what the layers above the one that is read put over it, and what
// that one has had so far. It takes names as they are written: symbolic links
// of lower layers, which may lead elsewhere, are not known yet.
type cover struct {
	above, own map[string]mark
	room       int64 // for how many more directories that names imply
}

// newCover begins above the highest layer, with names that are written later in
// any case.
func newCover(taken []string, room int64) *cover {
	c := &cover{above: map[string]mark{}, own: map[string]mark{}, room: room}
	for _, name := range taken {
		c.above[name] = hasOther
	}
	return c
}

// shows says whether a file of this layer shows under its name, as far as is
// known, and may be written beside what was written before.
func (c *cover) shows(name string) bool {
	if c.above[name] != 0 || c.own[name] != 0 || strings.HasPrefix(path.Base(name), whiteoutPrefix) {
		return false
	}
	for dir := parent(name); dir != ""; dir = parent(dir) {
		if c.above[dir]&(hasOther|isGone|isOpaque) != 0 || c.own[dir]&hasOther != 0 {
			return false
		}
	}
	return c.above[""]&isOpaque == 0
}

// add takes the next entry of the layer in.
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
		c.own[path.Join(dir, strings.TrimPrefix(base, whiteoutPrefix))] |= isGone
		return nil
	case e.kind == tar.TypeDir:
		c.own[e.name] |= hasDirectory
	default:
		c.own[e.name] |= hasOther
	}
	for ; dir != "" && c.own[dir]&hasDirectory == 0; dir = parent(dir) {
		if c.own[dir] == 0 && c.above[dir] == 0 {
			c.room--
		}
		c.own[dir] |= hasDirectory
	}
	if c.room < 0 {
		return ErrTooLarge
	}
	return nil
}

// next goes on to the next lower layer.
func (c *cover) next() {
	for name, m := range c.own {
		c.above[name] |= m
	}
	clear(c.own)
}

// parent is the directory of a clean name; that of the first level is "".
func parent(name string) string {
	return name[:max(0, strings.LastIndexByte(name, '/'))]
}
