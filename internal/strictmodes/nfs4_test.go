package strictmodes

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// listOf returns a list of NFSv4. Each entry is a type, flags, an access mask and a name.
func listOf(entries ...any) []byte {
	list := binary.BigEndian.AppendUint32(nil, uint32(len(entries)/4))
	for i := 0; i < len(entries); i += 4 {
		name, _ := entries[i+3].(string)
		for _, n := range entries[i : i+3] {
			number, _ := n.(int)
			list = binary.BigEndian.AppendUint32(list, uint32(number))
		}
		list = binary.BigEndian.AppendUint32(list, uint32(len(name)))
		list = append(list, name+strings.Repeat("\x00", (4-len(name)%4)%4)...)
	}
	return list
}

func TestWritersOfAnNFSv4ListAreFound(t *testing.T) {
	t.Parallel()
	const onlyLater = nfs4Inherited | nfs4InheritOnly
	user := func(name string, by Reason) Writer { return Writer{Principal{Kind: User, Name: name}, by} }
	for name, c := range map[string]struct {
		list []byte
		want []Writer
	}{
		"no list":                         {},
		"the owner":                       {listOf(nfs4Allow, 0, 0x1f01ff, nfs4Owner), nil},
		"readers":                         {listOf(nfs4Allow, 0, 0x1200a9, "bob@lab.example", nfs4Allow, 0, 0x1200a9, nfs4Everybody), nil},
		"a user":                          {listOf(nfs4Allow, 0, nfs4Append, "bob@lab.example"), []Writer{user("bob", ByNFSv4ACL)}},
		"a user who may change the list":  {listOf(nfs4Allow, 0, nfs4WriteACL, "bob"), []Writer{user("bob", ByNFSv4Control)}},
		"a user who may take the file":    {listOf(nfs4Allow, 0, nfs4WriteOwner, "bob"), []Writer{user("bob", ByNFSv4Control)}},
		"a user who may remove it":        {listOf(nfs4Allow, 0, nfs4Delete, "bob"), []Writer{user("bob", ByNFSv4Control)}},
		"a number":                        {listOf(nfs4Allow, nfs4ForGroup, nfs4DeleteIn, "7"), []Writer{writer(Group, 7, ByNFSv4ACL)}},
		"the group":                       {listOf(nfs4Allow, nfs4ForGroup, nfs4WriteData, nfs4Group), []Writer{writer(Group, lab, ByNFSv4ACL)}},
		"everybody who makes directories": {listOf(nfs4Allow, 0, nfs4Append, nfs4Everybody), []Writer{writer(Everybody, 0, ByNFSv4ACL)}},
		"all who have signed in":          {listOf(nfs4Allow, 0, nfs4WriteData, "AUTHENTICATED@"), []Writer{writer(Everybody, 0, ByNFSv4ACL)}},
		"a user to whom it is denied":     {listOf(nfs4Deny, 0, nfs4WriteData, "bob", nfs4Allow, 0, nfs4WriteData, "bob"), nil},
		"a user to whom a part is denied": {listOf(nfs4Deny, 0, nfs4WriteData, "bob", nfs4Allow, 0, nfs4Write, "bob"), []Writer{user("bob", ByNFSv4ACL)}},
		"a denial that comes late":        {listOf(nfs4Allow, 0, nfs4WriteData, "bob", nfs4Deny, 0, nfs4WriteData, "bob"), []Writer{user("bob", ByNFSv4ACL)}},
		"a denial for everybody":          {listOf(nfs4Deny, 0, nfs4Write, nfs4Everybody, nfs4Allow, 0, nfs4WriteData, "bob"), nil},
		"a denial for a group so named":   {listOf(nfs4Deny, nfs4ForGroup, nfs4WriteData, "bob", nfs4Allow, 0, nfs4WriteData, "bob"), []Writer{user("bob", ByNFSv4ACL)}},
		"a denial for later files":        {listOf(nfs4Deny, onlyLater, nfs4WriteData, "bob", nfs4Allow, 0, nfs4WriteData, "bob"), []Writer{user("bob", ByNFSv4ACL)}},
		"an audit":                        {listOf(2, 0, nfs4WriteData, "bob"), nil},
		"later files":                     {listOf(nfs4Allow, onlyLater, nfs4WriteData, "bob"), []Writer{user("bob", ByInheritedNFSv4ACL)}},
		"both":                            {listOf(nfs4Allow, 0x01, nfs4WriteData, "bob"), []Writer{user("bob", ByNFSv4ACL), user("bob", ByInheritedNFSv4ACL)}},
	} {
		if got, err := NFS4Writers(lab, c.list); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// The lists of a directory and of a program as Linux's client has them from Linux's server, where they are POSIX lists:
//
//	setfacl -m u:2002:rwx,g:5012:rx,d:u:2002:rwx directory
//	setfacl -m u:2002:rw program
func TestListsOfALinuxServerAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Writer{
		"00000009" + "00000000" + "00000000" + "001601e7" + "000000064f574e4552400000" + // A::OWNER@:rwaDxtTcCy
			"00000000" + "00000000" + "001200e7" + "0000000432303032" + // A::2002:rwaDxtcy
			"00000000" + "00000000" + "001200a1" + "0000000647524f5550400000" + // A::GROUP@:rxtcy
			"00000000" + "00000040" + "001200a1" + "0000000435303132" + // A:g:5012:rxtcy
			"00000000" + "00000000" + "001200a1" + "0000000945564552594f4e4540000000" + // A::EVERYONE@:rxtcy
			"00000000" + "0000000b" + "001601e7" + "000000064f574e4552400000" + // A:fdi:OWNER@:rwaDxtTcCy
			"00000000" + "0000000b" + "001200e7" + "0000000432303032" + // A:fdi:2002:rwaDxtcy
			"00000000" + "0000000b" + "001200a1" + "0000000647524f5550400000" + // A:fdi:GROUP@:rxtcy
			"00000000" + "0000000b" + "001200a1" + "0000000945564552594f4e4540000000": // A:fdi:EVERYONE@:rxtcy
		{writer(User, 2002, ByNFSv4ACL), writer(User, 2002, ByInheritedNFSv4ACL)},

		"00000005" + "00000000" + "00000000" + "001601a7" + "000000064f574e4552400000" + // A::OWNER@:rwaxtTcCy
			"00000001" + "00000000" + "00000020" + "0000000432303032" + // D::2002:x
			"00000000" + "00000000" + "00120087" + "0000000432303032" + // A::2002:rwatcy
			"00000000" + "00000000" + "001200a1" + "0000000647524f5550400000" + // A::GROUP@:rxtcy
			"00000000" + "00000000" + "001200a1" + "0000000945564552594f4e4540000000": // A::EVERYONE@:rxtcy
		{writer(User, 2002, ByNFSv4ACL)},
	} {
		list, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NFS4Writers(lab, list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
}

func TestListThatEndsEarlyIsRefused(t *testing.T) {
	t.Parallel()
	whole := listOf(nfs4Allow, 0, nfs4WriteData, "bob@lab.example")
	for n := 1; n < len(whole); n++ {
		if got, err := NFS4Writers(lab, whole[:n]); err == nil {
			t.Errorf("%d bytes: %v", n, got)
		}
	}
}

// A server may give such a file the mode 0600, in which the named entries are not (RFC 8881, 6.3.2).
func TestSecretIsRefusedIfAnNFSv4ListNamesOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list  []byte
		owner int
		want  string
	}{
		"no list":              {owner: ann},
		"the user":             {list: listOf(nfs4Allow, 0, nfs4ReadData, "ann@lab.example"), owner: ann},
		"root":                 {list: listOf(nfs4Allow, 0, nfs4ReadData, "0"), owner: ann},
		"attributes alone":     {list: listOf(nfs4Allow, 0, 0x120080, "bob@lab.example"), owner: ann},
		"a reader":             {list: listOf(nfs4Allow, 0, nfs4ReadData, "bob@lab.example"), owner: ann, want: "the user bob"},
		"a reader's group":     {list: listOf(nfs4Allow, nfs4ForGroup, nfs4ReadData, "lab"), owner: ann, want: "the group lab"},
		"who changes lists":    {list: listOf(nfs4Allow, 0, nfs4WriteACL, "bob"), owner: ann, want: "the user bob"},
		"a denied reader":      {list: listOf(nfs4Deny, 0, nfs4ReadData, "bob", nfs4Allow, 0, nfs4ReadData, "bob"), owner: ann},
		"all who sign in":      {list: listOf(nfs4Allow, 0, nfs4ReadData, "AUTHENTICATED@"), owner: 0, want: "everybody"},
		"root's group":         {list: listOf(nfs4Allow, nfs4ForGroup, nfs4ReadData, "ssl-cert"), owner: 0},
		"a writer of root's":   {list: listOf(nfs4Allow, nfs4ForGroup, nfs4WriteData, "ssl-cert"), owner: 0, want: "the group ssl-cert"},
		"what nobody inherits": {list: listOf(nfs4Allow, nfs4Inherited|nfs4InheritOnly, nfs4ReadData, "bob"), owner: ann},
	} {
		entries, err := parseNFS4(c.list)
		if err != nil {
			t.Fatal(err)
		}
		got, want := "", c.want
		if err := checkList("password", "/p", entries, c.owner, lab, account); err != nil {
			got = err.Error()
		}
		if want != "" {
			want = "the password file /p may be read by others: take " + want + " out of its access control list with nfs4_editfacl"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func FuzzListsOfOthersAreReadOrRefused(f *testing.F) {
	f.Add(posixList([3]int{aclUser, 7, bob}))
	f.Add(listOf(nfs4Allow, 0, nfs4WriteData, "bob@lab.example"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, list []byte) {
		if got, err := NFS4Writers(1, list); err == nil && len(got)*5 > len(list) {
			t.Errorf("%d writers in %d bytes", len(got), len(list))
		}
		_, _ = Writers(0o700, 1, list)
	})
}
