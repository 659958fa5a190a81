package apptainer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"
)

// entry is what flattening needs to know of one entry of a layer: everything
// but the content of files.
type entry struct {
	name         string // rooted and clean, without the leading slash; "" is the root
	kind         byte   // tar.TypeReg, TypeDir, TypeSymlink, TypeLink, TypeChar, TypeBlock or TypeFifo
	link         string // of symlinks as written, of hard links like name
	mode         int64  // permission bits with setuid, setgid and sticky
	uid, gid     int
	mtime        int64 // seconds since 1970, as squashfs keeps them
	size         int64
	major, minor int64
	capability   string // the security.capability attribute, in its binary form
}

// budget is what an image may still unpack to. Layers that are read at the
// same time share one.
type budget struct {
	entries   atomic.Int64
	bytes     atomic.Int64 // of file contents
	nameBytes atomic.Int64 // of names, which are held in memory
}

// spend takes an entry off the budget; a nil budget has no bounds.
func (b *budget) spend(e entry) error {
	if b == nil {
		return nil
	}
	names := int64(len(e.name) + len(e.link) + len(e.capability))
	if e.size < 0 || b.entries.Add(-1) < 0 || b.bytes.Add(-e.size) < 0 || b.nameBytes.Add(-names) < 0 {
		return errTooLarge
	}
	return nil
}

// The attribute that keeps file capabilities, as PAX headers name it. Other
// attributes mean nothing in a container's root, and those of overlayfs would
// even be obeyed there.
const paxCapability = "SCHILY.xattr.security.capability"

// Linux's NAME_MAX, and PATH_MAX without its zero byte.
const (
	nameMax = 255
	pathMax = 4095
)

// errTooLarge is the cause when an image unpacks to more than the limits.
var errTooLarge = errors.New("unpacks to more than is allowed")

// readEntries lists the entries of the layer whose tar stream is r, in order
// and one for each header that tar.Reader shows, and reads r to its end.
func readEntries(r io.Reader, room *budget) ([]entry, error) {
	var entries []entry
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("unreadable tar entry after %d others: %w", len(entries), err)
		}
		e, err := newEntry(hdr)
		if err != nil {
			return nil, err
		}
		if err := room.spend(e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, fmt.Errorf("after the tar entries: %w", err)
	}
	return entries, nil
}

// newEntry reads a header. One that stands for nothing in the file system
// becomes an entry of kind 0, so that entries and headers keep step.
func newEntry(hdr *tar.Header) (entry, error) {
	e := entry{
		name:  cleanName(hdr.Name),
		kind:  hdr.Typeflag,
		mode:  hdr.Mode & 0o7777,
		uid:   hdr.Uid,
		gid:   hdr.Gid,
		mtime: min(max(hdr.ModTime.Unix(), 0), 1<<32-1),
		size:  0,
	}
	if err := checkName(e.name); err != nil {
		return entry{}, err
	}
	if len(hdr.Linkname) > pathMax {
		return entry{}, fmt.Errorf("%q links to a name longer than %d bytes", e.name, pathMax)
	}
	e.capability = hdr.PAXRecords[paxCapability]
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // layers hold TypeRegA
		e.kind, e.size = tar.TypeReg, hdr.Size
	case tar.TypeSymlink:
		e.link = hdr.Linkname
	case tar.TypeLink:
		e.link = cleanName(hdr.Linkname)
	case tar.TypeChar, tar.TypeBlock:
		e.major, e.minor = hdr.Devmajor, hdr.Devminor
	case tar.TypeDir, tar.TypeFifo:
	case tar.TypeXGlobalHeader:
		e.kind = 0
	default:
		return entry{}, fmt.Errorf("%q has the tar entry type %q, which is not handled", hdr.Name, hdr.Typeflag)
	}
	if e.uid < 0 || e.gid < 0 || int64(e.uid) >= 1<<32 || int64(e.gid) >= 1<<32 {
		return entry{}, fmt.Errorf("%q has the owner %d:%d, which no file can have", hdr.Name, e.uid, e.gid)
	}
	return e, nil
}

// cleanName reads a name in a layer as Docker does: whatever it says, it is
// inside the root.
func cleanName(name string) string { return path.Clean("/" + name)[1:] }

func checkName(name string) error {
	if len(name) > pathMax {
		return fmt.Errorf("a path is longer than %d bytes: %.40q…", pathMax, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > nameMax {
			return fmt.Errorf("a file name is longer than %d bytes: %.40q…", nameMax, part)
		}
		if strings.IndexByte(part, 0) >= 0 {
			return fmt.Errorf("a file name holds a zero byte: %q", part)
		}
	}
	return nil
}
