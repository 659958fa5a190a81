package flatten

import (
	"archive/tar"
	"fmt"
	"math"
	"path"
	"strings"
)

// entry is one entry of a layer without a file's content.
type entry struct {
	name         string // rooted and clean, without the leading slash; "" is the root
	kind         byte   // tar.TypeReg, TypeDir, TypeSymlink, TypeLink, TypeChar, TypeBlock or TypeFifo
	link         string // a symbolic link's target as written; a hard link's target, clean like name
	mode         int64  // permission bits with setuid, setgid and sticky
	uid, gid     int
	mtime        int64 // seconds since 1970, as in squashfs
	size         int64
	major, minor int64
	// attributes are the supported extended attributes, as binary values; nil means none.
	attributes map[string]string
}

// attributePrefix begins the names of extended attributes in PAX headers of GNU tar and Docker.
const attributePrefix = "SCHILY.xattr."

// attributesOf returns a header's file capabilities and user extended attributes. It drops
// overlayfs's attributes, which overlayfs would obey in a container's root, and others such as
// security.selinux, which belong to the host that packed the layer.
func attributesOf(hdr *tar.Header) map[string]string {
	var kept map[string]string
	for record, value := range hdr.PAXRecords {
		name, ok := strings.CutPrefix(record, attributePrefix)
		user := strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.")
		if !ok || name != "security.capability" && !user {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[name] = value
	}
	return kept
}

// checkAttributes refuses attributes that setxattr(2) refuses on every file system. Some tools
// write them into layers.
func checkAttributes(attributes map[string]string) error {
	const sizeMax = 64 << 10 // XATTR_SIZE_MAX, and XATTR_LIST_MAX
	names := 0
	for name, value := range attributes {
		names += len(name) + 1
		if len(name) > nameMax || strings.HasSuffix(name, ".") && strings.Count(name, ".") == 1 || len(value) > sizeMax || names > sizeMax {
			return fmt.Errorf("an extended attribute has no name, or is too large: %.40q…", name)
		}
	}
	return nil
}

// Linux's NAME_MAX and XATTR_NAME_MAX, and PATH_MAX without its zero byte.
const (
	nameMax = 255
	pathMax = 4095
)

// newEntry reads a header. A global PAX header becomes an entry of kind 0, so that entries have the
// ordinals of their headers.
func newEntry(hdr *tar.Header) (entry, error) {
	e := entry{
		name:  cleanName(hdr.Name),
		kind:  hdr.Typeflag,
		mode:  hdr.Mode & 0o7777,
		uid:   ownerID(hdr.Uid),
		gid:   ownerID(hdr.Gid),
		mtime: min(max(hdr.ModTime.Unix(), 0), 1<<32-1),
		size:  0,
	}
	if err := checkName(e.name); err != nil {
		return entry{}, err
	}
	if len(hdr.Linkname) > pathMax {
		return entry{}, fmt.Errorf("%s links to a name longer than %d bytes", quoted(e.name), pathMax)
	}
	e.attributes = attributesOf(hdr)
	if err := checkAttributes(e.attributes); err != nil {
		return entry{}, fmt.Errorf("%s: %w", quoted(e.name), err)
	}
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // layers hold TypeRegA
		e.kind, e.size = tar.TypeReg, hdr.Size
	case tar.TypeSymlink:
		if e.link = hdr.Linkname; e.link == "" {
			return entry{}, fmt.Errorf("%s is a symbolic link to nothing, which no file system can hold", quoted(e.name))
		}
	case tar.TypeLink:
		e.link = cleanName(hdr.Linkname)
	case tar.TypeChar, tar.TypeBlock:
		e.major, e.minor = hdr.Devmajor, hdr.Devminor
		if e.major < 0 || e.minor < 0 || e.major >= 1<<12 || e.minor >= 1<<20 {
			return entry{}, fmt.Errorf("%s has the device number %d:%d, which no file can have", quoted(e.name), e.major, e.minor)
		}
	case tar.TypeDir, tar.TypeFifo:
	case tar.TypeXGlobalHeader:
		e.kind = 0
	default:
		return entry{}, fmt.Errorf("%s has the tar entry type %q, which is not handled", quoted(e.name), hdr.Typeflag)
	}
	return e, nil
}

// ownerID returns the id that a file gets for one in a layer. Docker and containerd give it to
// chown(2), which takes 32 bits, and keeps the owner if all of these are ones: root, who unpacks
// (moby/go-archive archive.go: createTarFile; containerd pkg/archive/tar.go: createTarFile).
func ownerID(id int) int {
	if id := uint32(id); id != math.MaxUint32 { //nolint:gosec // the lower 32 bits are meant
		return int(id)
	}
	return 0
}

// cleanName cleans a name in a layer as Docker does: it never leaves the root.
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

// quoted returns a name as a part of a one-line error.
func quoted(name string) string {
	const most = 80
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
