package codalabimport

import (
	"context"
	"math"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// converter turns rows of CodaLab's database into those of a store, in the order of the tables. Each pass has
// its own converter.
type converter struct {
	notes *notes
	taken store.Taken
	// checkHash fails for the hash of a password that the server cannot use.
	checkHash func(string) error

	users map[string]bool
	// folded has the first name of each kind that is the same but for its case.
	folded map[[2]string]string
	// groups maps old to new uuids of groups.
	groups     map[string]string
	worksheets map[string]bool // names
}

func newConverter(n *notes, taken store.Taken, checkHash func(string) error) *converter {
	return &converter{
		notes: n, taken: taken, checkHash: checkHash,
		users: map[string]bool{}, folded: map[[2]string]string{}, groups: map[string]string{}, worksheets: map[string]bool{},
	}
}

// people are the users and groups of a lab.
type people struct {
	users   []store.User
	groups  []store.Group
	members []store.Member
}

// people reads users and groups.
func (c *converter) people(ctx context.Context, s snapshot) (people, error) {
	var all people
	users, err := s.users(ctx)
	if err != nil {
		return all, err
	}
	for _, row := range users {
		all.users = append(all.users, c.user(row))
	}
	groups, err := s.groups(ctx)
	if err != nil {
		return all, err
	}
	names := map[string]bool{}
	for _, row := range groups {
		if g, ok := c.group(row, names); ok {
			all.groups = append(all.groups, g)
		}
	}
	members, err := s.members(ctx)
	if err != nil {
		return all, err
	}
	admins := map[[2]string]int{} // by group and user, places in all.members
	for _, row := range members {
		m := store.Member{UserID: row.UserID, GroupUUID: c.groups[row.Group], Admin: row.IsAdmin.Bool}
		switch at, twice := admins[[2]string{m.GroupUUID, m.UserID}]; {
		case m.GroupUUID == store.PublicGroup: // everybody is a member
		case m.GroupUUID == "" || !c.users[m.UserID]:
			c.notes.note(ProblemRow, row.Group, "the membership of user %s is left out, since the user or the group is gone", row.UserID)
		case twice:
			all.members[at].Admin = all.members[at].Admin || m.Admin
		default:
			admins[[2]string{m.GroupUUID, m.UserID}] = len(all.members)
			all.members = append(all.members, m)
		}
	}
	return all, nil
}

// user converts a user. A user who could not sign in on the old server cannot do so on the new one.
func (c *converter) user(row userRow) store.User {
	u := store.User{
		ID: row.ID, Name: clean(row.Name), Password: row.Password, Joined: moment(row.Joined),
		TimeQuota: whole(row.TimeQuota), DiskQuota: whole(row.DiskQuota), ParallelRunQuota: row.ParallelRunQuota, TimeUsed: whole(row.TimeUsed),
		Email: clean(row.Email), FirstName: clean(row.FirstName.String), LastName: clean(row.LastName.String),
		Affiliation: clean(row.Affiliation.String), URL: clean(row.URL.String),
		Notifications: row.Notifications, LastLogin: moment(row.LastLogin),
	}
	if codalab.IsUUID(row.AvatarID.String) {
		u.Avatar = row.AvatarID.String
	}
	c.users[u.ID] = true
	if id, ok := c.taken.Users[u.ID]; ok {
		c.notes.stop(ProblemConflict, u.Name, "the data directory has a user with the id %s", id)
	} else if id, ok := c.taken.Users[u.Name]; ok {
		c.notes.stop(ProblemConflict, u.Name, "the data directory has a user %s with another id, %s", u.Name, id)
	}
	if !codalab.IsName(u.Name) {
		c.notes.note(ProblemName, u.Name, "new users could not get this name; it stays")
	}
	c.noteCase("user", u.Name)
	locked := ""
	switch {
	case !row.IsActive:
		locked = "was deactivated"
	case !row.IsVerified:
		locked = "has not confirmed the e-mail address"
	case c.checkHash(u.Password) != nil:
		locked = "has no password that cl-server can read"
	}
	if locked != "" {
		u.Password = ""
		c.notes.note(ProblemUser, u.Name, "%s, and cannot sign in until cl-server user passwd sets a password", locked)
	}
	return u
}

// whole converts a quota, which may exceed an int64.
func whole(amount float64) int64 {
	const most = 1 << 62
	return int64(max(0, min(amount, most)))
}

// group converts a group; not the group "public", which each data directory has.
func (c *converter) group(row groupRow, names map[string]bool) (store.Group, bool) {
	if row.Name == "public" && !row.UserDefined.Bool {
		c.groups[row.UUID] = store.PublicGroup
		return store.Group{}, false
	}
	c.groups[row.UUID] = row.UUID
	g := store.Group{UUID: row.UUID, Name: c.unique(names, "group", clean(row.Name), row.UUID), UserDefined: true}
	if owner := c.owner(row.OwnerID.String, "group "+row.Name); owner != "" {
		g.OwnerID = &owner
	}
	if id, ok := c.taken.Groups[g.UUID]; ok {
		c.notes.stop(ProblemConflict, g.Name, "the data directory has a group with the uuid %s", id)
	} else if id, ok := c.taken.Groups[g.Name]; ok {
		c.notes.stop(ProblemConflict, g.Name, "the data directory has a group %s with another uuid, %s", g.Name, id)
	}
	return g, true
}

// unique returns a name that no other object of the kind has. CodaLab's database allows two with one name.
func (c *converter) unique(names map[string]bool, kind, name, uuid string) string {
	if names[name] || (kind == "group" && name == "public") {
		renamed := name + "-" + uuid
		c.notes.note(ProblemName, name, "there are two %ss with this name; %s becomes %s", kind, uuid, renamed)
		name = renamed
	} else if !codalab.IsName(name) {
		c.notes.note(ProblemName, name, "new %ss could not get this name; it stays", kind)
	}
	names[name] = true
	c.noteCase(kind, name)
	return name
}

// noteCase notes a name that differs from an earlier one of the kind by case alone. New names may not, and this one stays.
func (c *converter) noteCase(kind, name string) {
	key := [2]string{kind, strings.ToLower(name)}
	if first, ok := c.folded[key]; ok && first != name {
		c.notes.note(ProblemName, name, "the name differs from that of %s %s by case alone; it stays", kind, first)
		return
	}
	c.folded[key] = name
}

// owner returns the owner of an object, or root if that user is gone.
func (c *converter) owner(id, object string) string {
	if c.users[id] {
		return id
	}
	if !c.users[store.RootID] {
		c.notes.stop(ProblemOwner, object, "its owner %q is gone, and there is no root user who could own it", id)
		return ""
	}
	if id != "" {
		c.notes.note(ProblemOwner, object, "its owner %s is gone; it becomes root's", id)
	}
	return store.RootID
}

// granted converts permissions. If a group has several on one object, the greatest counts, as on CodaLab's own
// server (codalab/model/bundle_model.py: get_user_permissions).
func (c *converter) granted(rows []permissionRow) []store.Permission {
	var all []store.Permission
	at := map[string]int{}
	for _, row := range rows {
		group := c.groups[row.Group]
		p := store.Permission{Object: row.Object, GroupUUID: group, Permission: min(row.Permission, store.PermissionAll)}
		i, twice := at[group]
		switch {
		case p.Permission <= store.PermissionNone:
		case group == "":
			c.notes.note(ProblemRow, row.Object, "the permission of the group %s is left out, since the group is gone", row.Group)
		case twice:
			all[i].Permission = max(all[i].Permission, p.Permission)
		default:
			at[group] = len(all)
			all = append(all, p)
		}
	}
	return all
}

// finite reports whether JSON can have a number.
func finite(n float64) bool { return !math.IsNaN(n) && !math.IsInf(n, 0) }
