package client

import (
	"context"
	"errors"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// HomeWorksheet is the spec of a user's home worksheet. The server creates that worksheet at
// its first use.
const HomeWorksheet = "/"

// Worksheet is a worksheet. WorksheetBundles fills the fields that have no JSON key.
type Worksheet struct {
	UUID        string   `json:"uuid"`
	Name        string   `json:"name"`
	Title       *string  `json:"title"`
	Frozen      *string  `json:"frozen"`
	IsAnonymous bool     `json:"is_anonymous"`
	Tags        []string `json:"tags"`

	Owner            *User             `json:"-"`
	GroupPermissions []GroupPermission `json:"-"`
	// Bundles are the bundles among the worksheet's items, in their order.
	Bundles []BundleInfo `json:"-"`
}

// GroupPermission says what a group may do with a bundle or a worksheet.
type GroupPermission struct {
	GroupName  string `json:"group_name"`
	GroupID    string `json:"-"`
	Permission int    `json:"permission"`
}

// User is a user. Fields that the server does not show of other users are zero.
type User struct {
	ID         string `json:"-"`
	UserName   string `json:"user_name"`
	DiskQuota  int64  `json:"disk_quota"`
	DiskUsed   int64  `json:"disk_used"`
	IsRootUser bool   `json:"is_root_user"`
}

// FindWorksheet returns the worksheet that a spec names: an id or the beginning of one, a
// name, or HomeWorksheet. Base is the id of the worksheet that the spec is relative to, or
// empty.
func (c *Client) FindWorksheet(ctx context.Context, base, spec string) (Worksheet, error) {
	query := url.Values{"specs": {spec}}
	if base != "" {
		query.Set("base", base)
	}
	return getOne(ctx, c, "/worksheets", query, nil, readWorksheet)
}

// Worksheet returns the worksheet with this id, without its bundles.
func (c *Client) Worksheet(ctx context.Context, uuid string) (Worksheet, error) {
	return getOne(ctx, c, path("worksheets", uuid), nil, nil, readWorksheet)
}

// WorksheetBundles returns the worksheet with this id, its owner, permissions and bundles.
func (c *Client) WorksheetBundles(ctx context.Context, uuid string) (Worksheet, error) {
	include := []string{"owner", "group_permissions", "items", "items.bundle", "items.bundle.owner"}
	return getOne(ctx, c, path("worksheets", uuid), nil, include, readWorksheet)
}

// User returns the client's own user.
func (c *Client) User(ctx context.Context) (User, error) {
	return getOne(ctx, c, "/user", nil, nil, readUser)
}

// ServerVersion logs in and returns the version of CodaLab that the server reports
// (codalab/server/json_api_plugin.py: JsonApiPlugin).
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	doc, err := c.fetch(ctx, "/user", nil, nil)
	if err != nil {
		return "", err
	}
	version, _ := doc.Meta["version"].(string)
	return version, nil
}

// Groups returns the names of the groups that the client's user owns or is a member of. The
// root user gets all groups (codalab/rest/groups.py: fetch_groups).
func (c *Client) Groups(ctx context.Context) ([]string, error) {
	return getAll(ctx, c, "/groups", nil, nil, func(_ related, o codalab.Object) (string, error) {
		var group struct {
			Name string `json:"name"`
		}
		err := o.Decode(&group)
		return group.Name, err
	})
}

// UserByID returns the user with this id, or of this name.
func (c *Client) UserByID(ctx context.Context, id string) (User, error) {
	return getOne(ctx, c, path("users", id), nil, nil, readUser)
}

func readUser(_ related, o codalab.Object) (User, error) {
	u := User{ID: o.ID}
	err := o.Decode(&u)
	return u, err
}

func readPermission(_ related, o codalab.Object) (GroupPermission, error) {
	var p GroupPermission
	err := o.Decode(&p)
	if group, ok := o.Relationships["group"].Link(); ok {
		p.GroupID = group.ID
	}
	return p, err
}

func readWorksheet(r related, o codalab.Object) (Worksheet, error) {
	var w Worksheet
	if err := o.Decode(&w); err != nil {
		return w, err
	}
	if w.UUID == "" {
		w.UUID = o.ID
	}
	if owner, ok := r.linked(o, "owner"); ok {
		u, err := readUser(r, owner)
		if err != nil {
			return w, err
		}
		w.Owner = &u
	}
	var err, err2 error
	w.GroupPermissions, err = readAll(r, r.linkedList(o, "group_permissions"), readPermission)
	var bundles []codalab.Object
	for _, item := range r.linkedList(o, "items") {
		if bundle, ok := r.linked(item, "bundle"); ok {
			bundles = append(bundles, bundle)
		}
	}
	w.Bundles, err2 = readAll(r, bundles, readBundle)
	return w, errors.Join(err, err2)
}
