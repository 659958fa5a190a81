package flatten

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
)

// Limits of the entries of others, and of their contents. Debian's image has a dozen such entries
// with a few hundred kilobytes.
const (
	maxOthers      = 1000
	maxOthersBytes = 8 << 20
)

// others collects the visible entries of a file system that belong to others than root, as a tar
// stream: files and links, and then directories, with the directories around all of them. It gives
// up if there are too many.
type others struct {
	stream        bytes.Buffer
	tw            *tar.Writer
	entries, left int64
	around        map[string]bool // directories around the entries
	files         map[string]bool
	tooMany       bool
}

func newOthers() *others {
	o := &others{left: maxOthersBytes, around: map[string]bool{}, files: map[string]bool{}}
	o.tw = tar.NewWriter(&o.stream)
	return o
}

// takes reports whether the entry belongs in the stream, and counts it.
func (o *others) takes(e entry) bool {
	if o.tooMany || e.uid == 0 && e.gid == 0 || e.kind == tar.TypeChar || e.kind == tar.TypeBlock {
		return false
	}
	return o.spend(e.size)
}

func (o *others) spend(bytes int64) bool {
	o.entries++
	o.left -= bytes
	if o.entries > maxOthers || o.left < 0 {
		*o = others{tooMany: true}
	}
	return !o.tooMany
}

// add writes an entry, whose content follows.
func (o *others) add(e entry, name string) error {
	o.surround(name)
	if e.kind == tar.TypeReg {
		o.files[name] = true
	}
	hdr := e.header(name)
	hdr.PAXRecords = nil // an overlay of one user copies no attributes
	return o.tw.WriteHeader(hdr)
}

// addLink adds a further name of a file, if the stream has the file.
func (o *others) addLink(name, target string) error {
	if !o.files[target] || !o.spend(0) {
		return nil
	}
	o.surround(name)
	return o.tw.WriteHeader(hardLink(name, target))
}

func (o *others) surround(name string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		o.around[dir] = true
	}
}

// copy returns a reader of an entry's content that also writes it to the stream.
func (o *others) copy(content io.Reader) io.Reader { return io.TeeReader(content, o.tw) }

// addDirs adds the directories, the last entries.
func (o *others) addDirs(dirs []link) error {
	for _, d := range dirs {
		if o.takes(d.entry) {
			o.surround(d.name + "/x")
		}
	}
	for _, d := range dirs {
		if !o.around[d.name] || !o.spend(0) {
			continue
		}
		if err := o.add(d.entry, d.name); err != nil {
			return err
		}
	}
	return nil
}

// Others returns, as a tar stream, the entries of the last Write that belong to others than root,
// with the directories around them; nil means that there are none, or more than 1000 or 8 MiB.
func (f *Flattener) Others() ([]byte, error) {
	if f.others == nil || f.others.tooMany || f.others.entries == 0 {
		return nil, nil
	}
	if err := f.others.tw.Close(); err != nil {
		return nil, fmt.Errorf("end the tar stream of other owners' files: %w", err)
	}
	return f.others.stream.Bytes(), nil
}
