package strictmodes

import (
	"encoding/binary"
	"io/fs"
	"slices"
	"testing"
)

const (
	ann, bob  = 1001, 1002
	lab, mine = 5012, 1001
)

// account is ann's, with a group of her own.
var account = Account{UID: ann, Name: "ann", Groups: []int{mine}}

// dir is a directory on the way to a path, as ls -l shows it.
func dir(path string, uid int, mode fs.FileMode, writers ...Writer) Step {
	return Step{Path: path, UID: uid, Mode: fs.ModeDir | mode, Writers: writers}
}

func writer(kind Kind, id int, by Reason) Writer { return Writer{Principal{Kind: kind, ID: id}, by} }

func TestWhoeverCanWriteOnTheWayToAPathIsFound(t *testing.T) {
	t.Parallel()
	root, own := dir("/", 0, 0o755), dir("/s/own", ann, 0o700)
	everybody, members := writer(Everybody, 0, ByMode), writer(Group, lab, ByMode)
	sticky := fs.ModeSticky | fs.FileMode(0o777)
	link := Step{Path: "/s/own", UID: bob, Mode: fs.ModeSymlink | 0o777}
	inSticky := link
	inSticky.InSticky = true
	for _, c := range []struct {
		name  string
		steps []Step
		part  bool // the path does not exist
		want  string
	}{
		{name: "own", steps: []Step{root, dir("/s", 0, 0o755), own}},
		{name: "of root", steps: []Step{root, dir("/s", 0, 0o755), dir("/s/own", 0, 0o755)}},
		{name: "of another", steps: []Step{root, dir("/s", 0, 0o755), dir("/s/own", bob, 0o755)}, want: "/s/own belongs to the user 1002: name one that belongs to you"},
		{name: "below another's", steps: []Step{root, dir("/s", bob, 0o755), own}, want: "/s belongs to the user 1002: name a path on which all directories belong to you or to root"},
		{name: "open", steps: []Step{root, dir("/s", 0, 0o755), dir("/s/own", ann, 0o777, everybody)}, want: "everybody can write to /s/own (mode 0777): chmod o-w /s/own"},
		{name: "open to a group", steps: []Step{root, dir("/s/own", ann, 0o770|fs.ModeSetgid, members)}, want: "the group 5012 can write to /s/own (mode 2770): chmod g-w /s/own"},
		{name: "open to the group of root, which may have other members", steps: []Step{root, dir("/s/own", ann, 0o775, writer(Group, 0, ByMode))}, want: "the group 0 can write to /s/own (mode 0775): chmod g-w /s/own"},
		{name: "open to the user's own group", steps: []Step{root, dir("/s/own", ann, 0o775, writer(Group, mine, ByMode))}},
		{name: "in an open one", steps: []Step{root, dir("/s", 0, 0o777, everybody), own}, want: "everybody can write to /s (mode 0777): chmod o-w /s, or chmod +t /s, so that others can rename only what is theirs"},
		{name: "in a sticky one", steps: []Step{root, dir("/tmp", 0, sticky, everybody), own}},
		{name: "a sticky one", steps: []Step{root, dir("/tmp", 0, sticky, everybody)}, want: "everybody can write to /tmp (mode 1777): chmod o-w /tmp"},
		{name: "another's in a sticky one", steps: []Step{root, dir("/tmp", 0, sticky, everybody), dir("/tmp/own", bob, 0o755)}, want: "/tmp/own belongs to the user 1002: name one that belongs to you"},
		{name: "to be made in a sticky one", steps: []Step{root, dir("/tmp", 0, sticky, everybody)}, part: true},
		{name: "to be made in an open one", steps: []Step{root, dir("/s", ann, 0o777, everybody)}, part: true, want: "everybody can write to /s (mode 0777): chmod o-w /s, or chmod +t /s, so that others can rename only what is theirs"},
		{name: "in a lab's tree", steps: []Step{root, dir("/lab", 0, 0o770|fs.ModeSetgid, members), own}, want: "the group 5012 can write to /lab (mode 2770): chmod g-w /lab, or chmod +t /lab, so that others can rename only what is theirs"},
		{name: "by a list", steps: []Step{root, dir("/s/own", ann, 0o770, writer(User, bob, ByACL))}, want: "the user 1002 can write to /s/own (its access control list): setfacl -x u:1002 /s/own"},
		{name: "by a group's entry", steps: []Step{root, dir("/s/own", ann, 0o770, writer(Group, lab, ByACL))}, want: "the group 5012 can write to /s/own (its access control list): setfacl -x g:5012 /s/own"},
		{name: "later", steps: []Step{root, dir("/s/own", ann, 0o700, writer(User, bob, ByDefaultACL))}, want: "the user 1002 can write what is made in /s/own (its default access control list): setfacl -k /s/own"},
		{name: "later, above", steps: []Step{root, dir("/s", ann, 0o700, writer(User, bob, ByDefaultACL)), own}},
		{name: "by NFS's list", steps: []Step{root, dir("/s/own", ann, 0o700, Writer{Principal{Kind: User, Name: "bob"}, ByNFSv4ACL})}, want: "the user bob can write to /s/own (its access control list): nfs4_editfacl /s/own"},
		{name: "by NFS's list, in a sticky directory", steps: []Step{root, dir("/s", ann, sticky, writer(User, bob, ByNFSv4ACL)), own}},
		{name: "control of a sticky directory", steps: []Step{root, dir("/s", ann, sticky, writer(User, bob, ByNFSv4Control)), own}, want: "the user 1002 can remove /s or change its mode (its access control list): nfs4_editfacl /s"},
		{name: "later by NFS's list", steps: []Step{root, dir("/s/own", ann, 0o700, writer(User, bob, ByInheritedNFSv4ACL))}, want: "the user 1002 can write what is made in /s/own (the inherited entries of its access control list): nfs4_editfacl /s/own"},
		{name: "later by NFS's list, above", steps: []Step{root, dir("/s", ann, 0o700, writer(User, bob, ByInheritedNFSv4ACL)), own}},
		{name: "by NFS's list of the account", steps: []Step{root, dir("/s/own", ann, 0o700, Writer{Principal{Kind: User, Name: "ann"}, ByNFSv4ACL})}},
		{name: "a link of another in root's directory", steps: []Step{root, link, dir("/t", ann, 0o700)}},
		{name: "a link of another in a sticky directory", steps: []Step{root, inSticky, dir("/t", ann, 0o700)}, want: "/s/own belongs to the user 1002: name a path on which all directories belong to you or to root"},
	} {
		got := ""
		if f := account.Judge(c.steps, !c.part); f != nil {
			found, cure := f.describe(Principal.String)
			got = found + ": " + cure
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	trusting, err := account.Trust("@5012", "1002")
	if err != nil {
		t.Fatal(err)
	}
	if f := trusting.Judge([]Step{root, dir("/lab", bob, 0o770|fs.ModeSetgid, members), own}, true); f != nil {
		t.Errorf("at fault in spite of the trust: %+v", f)
	}
	if f := account.Judge([]Step{root, dir("/lab", bob, 0o755)}, true); f == nil {
		t.Error("Trust has changed the account")
	}
}

// posixList returns a list as the kernel gives it. Each entry is a tag, permissions and an id.
func posixList(entries ...[3]int) []byte {
	list := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range entries {
		list = binary.LittleEndian.AppendUint16(list, uint16(e[0]))
		list = binary.LittleEndian.AppendUint16(list, uint16(e[1]))
		list = binary.LittleEndian.AppendUint32(list, uint32(e[2]))
	}
	return list
}

func TestWritersOfAPOSIXListAreThoseThatItsMaskLetsWrite(t *testing.T) {
	t.Parallel()
	const userObj = 0x01
	for _, c := range []struct {
		name string
		mode fs.FileMode
		list []byte
		want []Writer
	}{
		{"no list", 0o755, nil, nil},
		{"everybody", 0o707, nil, []Writer{writer(Everybody, 0, ByMode)}},
		{"group", 0o770, nil, []Writer{writer(Group, lab, ByMode)}},
		{"a user", 0o770, posixList([3]int{userObj, 7, -1}, [3]int{aclUser, 7, bob}, [3]int{aclGroupOwner, 5, -1}, [3]int{aclMask, 7, -1}, [3]int{aclOther, 0, -1}), []Writer{writer(User, bob, ByACL)}},
		{"a masked user", 0o750, posixList([3]int{userObj, 7, -1}, [3]int{aclUser, 7, bob}, [3]int{aclGroupOwner, 7, -1}, [3]int{aclMask, 5, -1}, [3]int{aclOther, 0, -1}), nil},
		{"groups", 0o770, posixList([3]int{userObj, 7, -1}, [3]int{aclGroupOwner, 7, -1}, [3]int{aclGroup, 2, 7}, [3]int{aclMask, 7, -1}, [3]int{aclOther, 0, -1}), []Writer{writer(Group, lab, ByACL), writer(Group, 7, ByACL)}},
		{"no mask", 0o770, posixList([3]int{userObj, 7, -1}, [3]int{aclGroupOwner, 7, -1}, [3]int{aclOther, 0, -1}), []Writer{writer(Group, lab, ByACL)}},
	} {
		got, err := Writers(c.mode, lab, c.list)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	later, err := DefaultWriters(lab, posixList([3]int{userObj, 7, -1}, [3]int{aclUser, 7, bob}, [3]int{aclGroupOwner, 5, -1}, [3]int{aclMask, 7, -1}, [3]int{aclOther, 2, -1}))
	if want := []Writer{writer(User, bob, ByDefaultACL), writer(Everybody, 0, ByDefaultACL)}; err != nil || !slices.Equal(later, want) {
		t.Errorf("default: %v, %v", later, err)
	}
}

func TestGroupIsPrivateOnlyIfNobodyElseIsInIt(t *testing.T) {
	t.Parallel()
	const passwd = "root:x:0:0::/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\nbob:x:1002:100::/home/bob:/bin/sh\ncarl:x:1003:100::/home/carl:/bin/sh\ndora:x:1004:1004::/:/bin/sh\n"
	const group = "root:x:0:\nann:x:1001:\nusers:x:100:\ndora:x:1004:dora,eve\n"
	for uid, want := range map[int][]int{1001: {1001}, 1002: nil, 1004: nil, 4711: nil} {
		if got := privateGroups(uid, passwd, group); !slices.Equal(got, want) {
			t.Errorf("%d: %v", uid, got)
		}
	}
	if got := privateGroups(1001, passwd, "other:x:7:\n"); got != nil {
		t.Errorf("a group that is not known: %v", got)
	}
}

func TestSecretIsRefusedIfOthersCanReadIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode        fs.FileMode
		owner, user int
		want        string
	}{
		{0o600, ann, ann, ""},
		{0o400, ann, ann, ""},
		{0o640, ann, ann, "the password file /p may be read by others: chmod 600 it"},
		{0o604, ann, ann, "the password file /p may be read by others: chmod 600 it"},
		{0o620, ann, ann, "the password file /p may be read by others: chmod 600 it"},
		{0o640, 0, ann, ""}, // a key that services share by a group, such as Debian's ssl-cert
		{0o644, 0, ann, "the password file /p may be read by others: chmod 600 it, or, as it is root's, 640 for a group"},
		{0o660, 0, ann, "the password file /p may be read by others: chmod 600 it, or, as it is root's, 640 for a group"},
		{0o640, 0, 0, "the password file /p may be read by others: chmod 600 it"},
		{0o600, bob, ann, "the password file /p belongs to another user: give a file of your own"},
		{0o600, ann, 0, ""},
		{0o644, ann, 0, "the password file /p may be read by others: chmod 600 it"},
	} {
		got := ""
		if err := checkSecret("password", "/p", c.mode, c.owner, c.user); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("mode %04o of %d for %d: %q, want %q", c.mode, c.owner, c.user, got, c.want)
		}
	}
}
