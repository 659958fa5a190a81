package strictmodes

import (
	"fmt"
	"io/fs"
	"slices"
)

// Principal is somebody who may do something: a user, a group, or everybody.
type Principal struct {
	Kind Kind
	// ID is the number of a user or a group. Name is the name in a list of NFSv4, which has no numbers; else empty.
	ID   int
	Name string
}

// Kind is the kind of a Principal.
type Kind int

// The kinds.
const (
	Everybody Kind = iota
	User
	Group
)

// Account is the account that a program works for, and those whom it trusts as itself.
type Account struct {
	UID int
	// Name is the user's name; empty if it has none.
	Name string
	// Users and Groups are trusted as the account. Root is always trusted.
	Users, Groups []int
	// UserNames and GroupNames are their names.
	UserNames, GroupNames []string
}

// trusts reports whether a principal can do nothing that the account does not permit.
func (a Account) trusts(p Principal) bool {
	switch {
	case p.Kind == User && p.Name != "":
		return p.Name == "root" || p.Name == a.Name || slices.Contains(a.UserNames, p.Name)
	case p.Kind == User:
		return p.ID == 0 || p.ID == a.UID || slices.Contains(a.Users, p.ID)
	case p.Kind == Group && p.Name != "":
		return slices.Contains(a.GroupNames, p.Name)
	case p.Kind == Group:
		return slices.Contains(a.Groups, p.ID)
	}
	return false
}

// Step is one name on the way to a path: a directory, a symbolic link, or the file at the end.
type Step struct {
	Path string
	Mode fs.FileMode
	UID  int
	// Writers may write here by the mode or the access control list. They are those of a directory or of a file.
	Writers []Writer
	// InSticky is set if the step's own directory is sticky: there the owner of a symbolic link can replace it.
	InSticky bool
}

// Writer is somebody who may write, with the reason.
type Writer struct {
	Principal
	By Reason
}

// Reason is the reason for which somebody may write.
type Reason int

// The reasons. By a default or inherited list somebody may write what is made in the directory from now on. By control
// somebody may remove a file or directory, or change its modes, also in a sticky directory.
const (
	ByMode Reason = iota
	ByACL
	ByDefaultACL
	ByNFSv4ACL
	ByNFSv4Control
	ByInheritedNFSv4ACL
)

// later reports whether the reason is about what is made in a directory, and not about the directory.
func (r Reason) later() bool { return r == ByDefaultACL || r == ByInheritedNFSv4ACL }

// Judge returns the first fault on the way to a path; nil if nobody but the account, root and those whom it trusts can
// write there, or put something else in its place. Whole is set if the last step is the path itself; else the path does not
// exist, and the steps are the directories above it.
func (a Account) Judge(steps []Step, whole bool) *Fault {
	for i, s := range steps {
		last := whole && i == len(steps)-1
		link := s.Mode&fs.ModeSymlink != 0
		if owner := (Principal{Kind: User, ID: s.UID}); !a.trusts(owner) && (!link || s.InSticky) {
			return &Fault{At: s, Last: last, Who: Writer{Principal: owner}, Owner: true}
		}
		if link {
			continue // its own mode means nothing
		}
		for _, w := range s.Writers {
			switch {
			case a.trusts(w.Principal):
			case !last && (s.Mode&fs.ModeSticky != 0 && w.By != ByNFSv4Control || w.By.later()):
				// What lies there is the account's or root's, or the next step is at fault. A default list counts where
				// the account makes files.
			default:
				return &Fault{At: s, Last: last, Who: w}
			}
		}
	}
	return nil
}

// Fault is the place at which others can write, and who they are.
type Fault struct {
	At   Step
	Last bool // At is the path that was asked for, and not a directory above it
	Who  Writer
	// Owner is set if At belongs to Who.
	Owner bool
}

// describe returns a sentence about the fault, and its cure. name gives names to principals.
func (f *Fault) describe(name func(Principal) string) (found, cure string) {
	who, at := name(f.Who.Principal), f.At.Path
	mode := fmt.Sprintf("mode %04o", unixMode(f.At.Mode))
	switch {
	case f.Owner:
		return at + " belongs to " + who, f.ownDirectory()
	case f.Who.By == ByMode && f.Who.Kind == Everybody:
		found, cure = fmt.Sprintf("everybody can write to %s (%s)", at, mode), "chmod o-w "+at
	case f.Who.By == ByMode:
		found, cure = fmt.Sprintf("%s can write to %s (%s)", who, at, mode), "chmod g-w "+at
	case f.Who.By == ByDefaultACL:
		return fmt.Sprintf("%s can write what is made in %s (its default access control list)", who, at), "setfacl -k " + at
	case f.Who.By == ByInheritedNFSv4ACL:
		return fmt.Sprintf("%s can write what is made in %s (the inherited entries of its access control list)", who, at), "nfs4_editfacl " + at
	case f.Who.By == ByNFSv4Control:
		return fmt.Sprintf("%s can remove %s or change its mode (its access control list)", who, at), "nfs4_editfacl " + at
	case f.Who.By == ByNFSv4ACL:
		return fmt.Sprintf("%s can write to %s (its access control list)", who, at), "nfs4_editfacl " + at
	case f.Who.Kind == Group:
		found, cure = fmt.Sprintf("%s can write to %s (its access control list)", who, at), fmt.Sprintf("setfacl -x g:%d %s", f.Who.ID, at)
	default:
		found, cure = fmt.Sprintf("%s can write to %s (its access control list)", who, at), fmt.Sprintf("setfacl -x u:%d %s", f.Who.ID, at)
	}
	if !f.Last {
		cure = fmt.Sprintf("%s, or chmod +t %s, so that others can rename only what is theirs", cure, at)
	}
	return found, cure
}

// ownDirectory returns the cure for a place of another owner.
func (f *Fault) ownDirectory() string {
	if f.Last {
		return "name one that belongs to you"
	}
	return "name a path on which all directories belong to you or to root"
}

// unixMode returns a mode as chmod(1) takes it.
func unixMode(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for from, to := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&from != 0 {
			bits |= to
		}
	}
	return bits
}
