package client

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Group is a group with its users.
type Group struct {
	codalab.Group
	// Owner is nil for the group "public".
	Owner           *codalab.User
	Admins, Members []codalab.User
}

// Groups returns the names of the groups that the client's user owns or is a member of. The
// root user gets all groups (codalab/rest/groups.py: fetch_groups).
func (c *Client) Groups(ctx context.Context) ([]string, error) {
	return getAll(ctx, c, "/groups", nil, nil, func(_ related, o codalab.Object) (string, error) {
		var group codalab.Group
		err := o.Decode(&group)
		return group.Name, err
	})
}

// GroupInfos returns the groups that the client's user owns or is a member of, with their members. The
// root user gets all groups.
func (c *Client) GroupInfos(ctx context.Context) ([]Group, error) {
	return getAll(ctx, c, "/groups", nil, nil, readGroup)
}

// Group returns the group that a spec names: an id or the beginning of one, or a name.
func (c *Client) Group(ctx context.Context, spec string) (Group, error) {
	return getOne(ctx, c, path("groups", spec), nil, nil, readGroup)
}

// CreateGroup creates a group of the client's user.
func (c *Client) CreateGroup(ctx context.Context, name string) (Group, error) {
	return create(ctx, c, "groups", nil, map[string]string{"name": name}, readGroup)
}

// DeleteGroup deletes a group.
func (c *Client) DeleteGroup(ctx context.Context, id string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/groups", nil, removal("groups", []string{id}))
	return err
}

// AddToGroup makes a user a member of a group, or an admin.
func (c *Client) AddToGroup(ctx context.Context, group, user string, admin bool) error {
	as := "members"
	if admin {
		as = "admins"
	}
	return c.relate(ctx, http.MethodPost, group, as, user)
}

// RemoveFromGroup removes a user from a group.
func (c *Client) RemoveFromGroup(ctx context.Context, group, user string) error {
	return c.relate(ctx, http.MethodDelete, group, "members", user)
}

func (c *Client) relate(ctx context.Context, method, group, as, user string) error {
	return c.do(ctx, call{
		method: method, path: path("groups", group, "relationships", as), within: answerWithin,
		json: codalab.NewDocument(codalab.Object{Type: "users", ID: user}),
	}, nil)
}

func readGroup(r related, o codalab.Object) (Group, error) {
	g := Group{Group: codalab.Group{ID: o.ID}}
	if err := o.Decode(&g.Group); err != nil {
		return g, err
	}
	var err, err2, err3 error
	if link, ok := o.Relationships["owner"].Link(); ok {
		g.Owner = &codalab.User{}
		*g.Owner, err = r.user(link)
	}
	g.Admins, err2 = r.users(o, "admins")
	g.Members, err3 = r.users(o, "members")
	return g, errors.Join(err, err2, err3)
}

// users returns the users that o's relationship links to; of deleted ones only the id is set.
func (r related) users(o codalab.Object, relationship string) ([]codalab.User, error) {
	links := o.Relationships[relationship].Links()
	users := make([]codalab.User, 0, len(links))
	for _, link := range links {
		u, err := r.user(link)
		if err != nil {
			return nil, err
		}
		users = append(users, u)
	}
	return users, nil
}
