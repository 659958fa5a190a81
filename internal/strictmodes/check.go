package strictmodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Current returns the account of this process. It trusts the group of which the account is the only member, and that of
// root if root is its only one.
//
// A user namespace may lack root: there the kernel shows all ids that it lacks as one, that of nobody, and root's files
// belong to it. Current trusts that id: whoever made the namespace has chosen the files in it.
func Current() Account {
	a := Account{UID: os.Geteuid(), Name: userName(os.Geteuid())}
	passwd, _ := os.ReadFile(passwdFile) // without it, no group is known to be private
	group, _ := os.ReadFile(groupFile)
	a.Groups = append(privateGroups(a.UID, string(passwd), string(group)), privateGroups(0, string(passwd), string(group))...)
	for _, gid := range a.Groups {
		if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
			a.GroupNames = append(a.GroupNames, g.Name)
		}
	}
	if nobody, ok := unmappedOwner(); ok {
		a.Users = append(a.Users, nobody)
	}
	return a
}

// userName returns the name of a user; nothing if this host knows none.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return ""
}

// Trust adds users, and groups with an @ before their names, such as "@lab". A number may stand for a name.
func (a Account) Trust(names ...string) (Account, error) {
	a.Users, a.UserNames = slices.Clone(a.Users), slices.Clone(a.UserNames)
	a.Groups, a.GroupNames = slices.Clone(a.Groups), slices.Clone(a.GroupNames)
	for _, name := range names {
		if group, ok := strings.CutPrefix(name, "@"); ok {
			id, ok := groupNumber(group)
			if !ok {
				return a, fmt.Errorf("there is no group %q on this host: give its number, such as %q", group, "@5012")
			}
			a.Groups, a.GroupNames = append(a.Groups, id), append(a.GroupNames, group)
			continue
		}
		id, ok := userNumber(name)
		if !ok {
			return a, fmt.Errorf("there is no user %q on this host: give the number, such as %q", name, "5012")
		}
		a.Users, a.UserNames = append(a.Users, id), append(a.UserNames, name)
	}
	return a, nil
}

// userNumber returns the id of a user's name or number.
func userNumber(name string) (id int, ok bool) {
	if u, err := user.Lookup(name); err == nil {
		name = u.Uid
	}
	id, err := strconv.Atoi(name)
	return id, err == nil && id >= 0
}

// groupNumber returns the id of a group's name or number.
func groupNumber(name string) (id int, ok bool) {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	id, err := strconv.Atoi(name)
	return id, err == nil && id >= 0
}

// Error says that others can write to a path, or replace it.
type Error struct {
	// Path is the path that was checked, and At the place at which others can write.
	Path, At string
	// Found is the fault, Cure a command or an advice that mends it. Neither ends with a full stop.
	Found, Cure string
	// Who is the user or the group at fault as [Account.Trust] takes it; empty for everybody.
	Who string
}

// Error returns the finding and its cure.
func (e *Error) Error() string { return e.Found + ": " + e.Cure }

// Check returns an *Error if others can write to a file or directory, or put another one in its place. For a path that
// does not exist, it judges the directories above. Any other error means that the path could not be followed.
func (a Account) Check(path string) error {
	steps, whole, err := walk(path)
	if err != nil {
		return fmt.Errorf("find out who can write to %s: %w", path, err)
	}
	f := a.Judge(steps, whole)
	if f == nil {
		return nil
	}
	found, cure := f.describe(nameOf)
	e := &Error{Path: path, At: f.At.Path, Found: found, Cure: cure, Who: trustName(f.Who.Principal)}
	if !f.Last {
		e.Found += ", and so put something else in the place of " + path
	}
	return e
}

// nameOf describes a principal by its name, if this host knows it.
func nameOf(p Principal) string {
	id := strconv.Itoa(p.ID)
	switch {
	case p.Name != "":
	case p.Kind == Group:
		if g, err := user.LookupGroupId(id); err == nil {
			p.Name = g.Name
		}
	case p.Kind == User:
		if u, err := user.LookupId(id); err == nil {
			p.Name = u.Username
		}
	}
	return p.String()
}

// trustName returns a principal as Account.Trust takes it.
func trustName(p Principal) string {
	name := strings.TrimPrefix(strings.TrimPrefix(nameOf(p), "the user "), "the group ")
	switch p.Kind {
	case Group:
		return "@" + name
	case User:
		return name
	case Everybody:
	}
	return ""
}

// The files of users and groups (passwd(5), group(5)).
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// privateGroups returns the groups of which a user is the only member, from the texts of /etc/passwd and /etc/group:
// nobody else has the group as primary group, and nobody else is listed.
func privateGroups(uid int, passwd, group string) []int {
	name, own, alone := "", "", map[string]bool{}
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 4 {
			is := f[2] == strconv.Itoa(uid)
			if is && name == "" {
				name, own = f[0], f[3]
			}
			if _, known := alone[f[3]]; !known {
				alone[f[3]] = true
			}
			alone[f[3]] = alone[f[3]] && is
		}
	}
	if name == "" || !alone[own] {
		return nil
	}
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || f[2] != own {
			continue
		}
		if f[3] != "" && f[3] != name {
			return nil
		}
		if gid, err := strconv.Atoi(own); err == nil {
			return []int{gid}
		}
	}
	return nil
}

// maxLinks bounds the symbolic links on the way to a path (path_resolution(7)).
const maxLinks = 40

// errLoop means that links lead to each other.
var errLoop = errors.New("too many symbolic links")

// isMissing reports whether a name does not exist, as below a file.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
