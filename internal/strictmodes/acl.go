package strictmodes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
)

// Writers returns who may write by the mode of a file of this group, and by its access control list as the kernel
// gives it (system.posix_acl_access); no bytes mean no list.
func Writers(mode fs.FileMode, gid int, list []byte) ([]Writer, error) {
	var found []Writer
	if mode&0o002 != 0 {
		found = append(found, Writer{Principal: Principal{Kind: Everybody}})
	}
	if len(list) == 0 {
		if mode&0o020 != 0 {
			found = append(found, Writer{Principal: Principal{Kind: Group, ID: gid}})
		}
		return found, nil
	}
	entries, err := parsePOSIX(list)
	if err != nil {
		return nil, err
	}
	return append(found, entries.writers(gid, ByACL)...), nil
}

// DefaultWriters returns who else may write to what is made in a directory of this group, by the directory's default
// access control list (system.posix_acl_default).
func DefaultWriters(gid int, list []byte) ([]Writer, error) {
	if len(list) == 0 {
		return nil, nil
	}
	entries, err := parsePOSIX(list)
	return entries.writers(gid, ByDefaultACL), err
}

// posixACL are the entries of a POSIX access control list.
type posixACL []posixEntry

// posixEntry is an entry (include/uapi/linux/posix_acl_xattr.h: struct posix_acl_xattr_entry).
type posixEntry struct {
	tag, perm uint16
	id        uint32
}

// The tags, the version and the permission (include/uapi/linux/posix_acl.h).
const (
	aclUser       = 0x02
	aclGroupOwner = 0x04
	aclGroup      = 0x08
	aclMask       = 0x10
	aclOther      = 0x20
	aclVersion    = 2
	aclWrite      = 0x02
)

var errACL = errors.New("the access control list cannot be read")

func parsePOSIX(list []byte) (posixACL, error) {
	const head, entry = 4, 8
	if len(list) < head || (len(list)-head)%entry != 0 || binary.LittleEndian.Uint32(list) != aclVersion {
		return nil, errACL
	}
	var entries posixACL
	for list = list[head:]; len(list) > 0; list = list[entry:] {
		entries = append(entries, posixEntry{binary.LittleEndian.Uint16(list), binary.LittleEndian.Uint16(list[2:]), binary.LittleEndian.Uint32(list[4:])})
	}
	return entries, nil
}

// writers returns who may write: the mask bounds named users and all groups (acl(5): ACCESS CHECK ALGORITHM). In a
// list of access, the entry of all others is in the mode, too.
func (a posixACL) writers(gid int, by Reason) []Writer {
	mask := uint16(aclWrite)
	for _, e := range a {
		if e.tag == aclMask {
			mask = e.perm
		}
	}
	var found []Writer
	for _, e := range a {
		var who Principal
		switch {
		case e.perm&aclWrite == 0:
			continue
		case e.tag == aclOther && by == ByDefaultACL:
			found = append(found, Writer{Principal{Kind: Everybody}, by})
			continue
		case e.tag == aclUser:
			who = Principal{Kind: User, ID: int(e.id)}
		case e.tag == aclGroup:
			who = Principal{Kind: Group, ID: int(e.id)}
		case e.tag == aclGroupOwner:
			who = Principal{Kind: Group, ID: gid}
		default:
			continue
		}
		if mask&aclWrite != 0 {
			found = append(found, Writer{who, by})
		}
	}
	return found
}

// String describes the principal by its number or its name.
func (p Principal) String() string {
	switch {
	case p.Kind == Everybody:
		return "everybody"
	case p.Kind == Group && p.Name != "":
		return "the group " + p.Name
	case p.Kind == Group:
		return fmt.Sprintf("the group %d", p.ID)
	case p.Name != "":
		return "the user " + p.Name
	}
	return fmt.Sprintf("the user %d", p.ID)
}
