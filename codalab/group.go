package codalab

import "strconv"

// Group is a group of users: the attributes of a JSON:API object of type "groups". Relationships lead to
// its owner, admins and members.
type Group struct {
	// ID is the object's id.
	ID   string `json:"-"`
	Name string `json:"name"`
	// UserDefined is false for the group "public".
	UserDefined bool `json:"user_defined"`
}

// The permissions of users and groups on bundles and worksheets (codalab/model/tables.py:
// GROUP_OBJECT_PERMISSION_*).
const (
	PermissionNone = 0
	PermissionRead = 1
	PermissionAll  = 2
)

// PermissionSpec returns the name of a permission: none, read or all (codalab/objects/permission.py:
// permission_str).
func PermissionSpec(permission int) string {
	switch permission {
	case PermissionNone:
		return "none"
	case PermissionRead:
		return "read"
	case PermissionAll:
		return "all"
	}
	return strconv.Itoa(permission)
}

// ParsePermission reads the name of a permission, or its first letter; false means that there is no such
// permission (codalab/objects/permission.py: parse_permission).
func ParsePermission(spec string) (permission int, ok bool) {
	switch spec {
	case "n", "none":
		return PermissionNone, true
	case "r", "read":
		return PermissionRead, true
	case "a", "all":
		return PermissionAll, true
	}
	return 0, false
}

// GroupPermission is a group's permission on a bundle or a worksheet: the attributes of a JSON:API object
// of type "bundle-permissions" or "worksheet-permissions". A relationship leads to the group.
type GroupPermission struct {
	// GroupID is the id of the group.
	GroupID        string `json:"-"`
	GroupName      string `json:"group_name"`
	Permission     int    `json:"permission"`
	PermissionSpec string `json:"permission_spec"`
}

// PermissionEdit sets a group's permission on a bundle or a worksheet: the attributes of POST
// /bundle-permissions and POST /worksheet-permissions.
type PermissionEdit struct {
	// Permission may be nil if Spec names the permission.
	Permission *int   `json:"permission,omitempty"`
	Spec       string `json:"permission_spec,omitempty"`
}
