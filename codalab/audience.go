package codalab

import "strings"

// PublicGroup is the name of the group that everybody belongs to.
const PublicGroup = "public"

// Audience names the people with permissions on a bundle or a worksheet.
type Audience struct {
	// Me is the reader of the words.
	Me User
	// Owner is nil if the object hides its owner.
	Owner   *User
	Granted []GroupPermission
}

// String says it in words: "readable by everybody, also without a login; changeable only by you". Root, who may do
// everything, is not named.
func (a Audience) String() string {
	readers, writers := a.those(PermissionRead), a.those(PermissionAll)
	if readers == writers {
		return "readable and changeable " + readers
	}
	return "readable " + readers + "; changeable " + writers
}

// those are the people with at least a permission.
func (a Audience) those(need int) string {
	var groups []string
	for _, p := range a.Granted {
		switch {
		case p.Permission < need:
		case p.GroupName != PublicGroup:
			groups = append(groups, p.GroupName)
		case a.Me.Account != nil && a.Me.RequireSignIn || need > PermissionRead:
			return "by everybody with a login"
		default:
			return "by everybody, also without a login"
		}
	}
	owner := "its owner"
	switch {
	case a.Owner != nil && a.Owner.ID == a.Me.ID:
		owner = "you"
	case a.Owner != nil && a.Owner.UserName != "":
		owner = a.Owner.UserName
	}
	if len(groups) == 0 {
		return "only by " + owner
	}
	last := len(groups) - 1
	list := groups[last]
	if last > 0 {
		list = strings.Join(groups[:last], ", ") + " and " + list
	}
	return "by " + owner + " and the members of " + list
}
