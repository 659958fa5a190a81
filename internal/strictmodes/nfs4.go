package strictmodes

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// NFS4Writers returns the writers by the NFSv4 access control list of a file of this group (system.nfs4_acl), and those by
// the entries that files made in a directory inherit. No bytes mean no list.
//
// The mode is no summary of such a list, as it is of a POSIX one. Servers compute it from the entries of the owner, the
// group and everybody (RFC 8881, 6.3.2). So a file of mode 0600 can be open to users that the list names.
func NFS4Writers(gid int, list []byte) ([]Writer, error) {
	entries, err := parseNFS4(list)
	if err != nil {
		return nil, err
	}
	var found []Writer
	add := func(by Reason, mask uint32, inherited bool) {
		for _, p := range entries.allowed(gid, mask, inherited) {
			found = append(found, Writer{p, by})
		}
	}
	add(ByNFSv4Control, nfs4Control, false)
	add(ByNFSv4ACL, nfs4Write, false)
	add(ByInheritedNFSv4ACL, nfs4Write|nfs4Control, true)
	return found, nil
}

// nfs4ACL are the entries of an NFSv4 access control list, in its order.
type nfs4ACL []nfs4Entry

// nfs4Entry is an entry (RFC 8881, 6.2.1: nfsace4).
type nfs4Entry struct {
	kind, flags, access uint32
	who                 string
}

// The kinds, flags and permissions of an entry (RFC 8881, 6.2.1.1 to 6.2.1.4).
const (
	nfs4Allow = 0
	nfs4Deny  = 1

	nfs4Inherited   = 0x01 | 0x02 // ACE4_FILE_INHERIT_ACE, ACE4_DIRECTORY_INHERIT_ACE: also for what is made in the directory
	nfs4InheritOnly = 0x08        // ACE4_INHERIT_ONLY_ACE: and not for the directory
	nfs4ForGroup    = 0x40        // ACE4_IDENTIFIER_GROUP

	nfs4ReadData   = 0x01
	nfs4WriteData  = 0x02 // in a directory ACE4_ADD_FILE
	nfs4Append     = 0x04 // in a directory ACE4_ADD_SUBDIRECTORY
	nfs4DeleteIn   = 0x40 // ACE4_DELETE_CHILD
	nfs4Delete     = 0x010000
	nfs4WriteACL   = 0x040000 // the mode, too
	nfs4WriteOwner = 0x080000

	nfs4Write = nfs4WriteData | nfs4Append | nfs4DeleteIn
	// nfs4Control is the right to remove a file, or to give oneself all rights. The sticky bit does not bound it.
	nfs4Control = nfs4Delete | nfs4WriteACL | nfs4WriteOwner
)

// The names of no user and no group (RFC 8881, 6.2.1.5). There are more, such as AUTHENTICATED@ and NETWORK@: on a
// network disk they are everybody.
const (
	nfs4Owner     = "OWNER@"
	nfs4Group     = "GROUP@"
	nfs4Everybody = "EVERYONE@"
)

// allowed returns those whom a list allows something of an access mask, in the directory or file itself or in what
// inherits the list. The first entry for somebody decides: an entry that denies counts against later ones of the same
// name, and one for everybody against all later ones. Members of groups are not looked up, so that a user may be named
// to whom a group's entry denies it.
func (a nfs4ACL) allowed(gid int, mask uint32, inherited bool) []Principal {
	var found []Principal
	denied := map[string]uint32{}
	for _, e := range a {
		if inherited && e.flags&nfs4Inherited == 0 || !inherited && e.flags&nfs4InheritOnly != 0 {
			continue
		}
		who := e.who
		if e.flags&nfs4ForGroup != 0 && !strings.HasSuffix(who, "@") {
			who = "group " + who
		}
		switch {
		case e.kind == nfs4Deny && who == nfs4Everybody:
			mask &^= e.access
		case e.kind == nfs4Deny:
			denied[who] |= e.access
		case e.kind == nfs4Allow && who != nfs4Owner && e.access&mask&^denied[who] != 0:
			found = append(found, e.principal(gid))
		}
	}
	return found
}

// principal returns the principal of a name such as ann@lab.example or 1001. Servers without a table of names send
// numbers (RFC 8881, 5.9).
func (e nfs4Entry) principal(gid int) Principal {
	p := Principal{Kind: User}
	switch {
	case e.who == nfs4Group:
		return Principal{Kind: Group, ID: gid}
	case strings.HasSuffix(e.who, "@"):
		return Principal{Kind: Everybody}
	case e.flags&nfs4ForGroup != 0:
		p.Kind = Group
	}
	p.Name, _, _ = strings.Cut(e.who, "@")
	if id, err := strconv.Atoi(p.Name); err == nil {
		p.ID, p.Name = id, ""
	}
	return p
}

// parseNFS4 reads a list as the kernel gives it: in the protocol's own encoding (RFC 4506).
func parseNFS4(list []byte) (nfs4ACL, error) {
	if len(list) == 0 {
		return nil, nil
	}
	next := func() (n uint32, ok bool) {
		if len(list) < 4 {
			return 0, false
		}
		n, list = binary.BigEndian.Uint32(list), list[4:]
		return n, true
	}
	count, ok := next()
	var entries nfs4ACL
	for range count {
		var field [4]uint32 // kind, flags, access, and the length of the name
		for i := range field {
			if ok {
				field[i], ok = next()
			}
		}
		padded := (uint64(field[3]) + 3) &^ 3
		if !ok || padded > uint64(len(list)) {
			return nil, errACL
		}
		entries = append(entries, nfs4Entry{field[0], field[1], field[2], string(list[:field[3]])})
		list = list[padded:]
	}
	if !ok {
		return nil, errACL
	}
	return entries, nil
}
