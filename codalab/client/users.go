package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// User is a user. Fields that the server does not show of other users are zero.
type User struct {
	ID         string `json:"-"`
	UserName   string `json:"user_name"`
	DiskQuota  int64  `json:"disk_quota"`
	DiskUsed   int64  `json:"disk_used"`
	IsRootUser bool   `json:"is_root_user"`
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

// UserByID returns the user with this id, or of this name.
func (c *Client) UserByID(ctx context.Context, id string) (User, error) {
	return getOne(ctx, c, path("users", id), nil, nil, readUser)
}

func readUser(_ related, o codalab.Object) (User, error) {
	u := User{ID: o.ID}
	err := o.Decode(&u)
	return u, err
}

// Account holds all fields of a user that the server shows: attributes by their names on the wire,
// and "id".
type Account map[string]any

// ID is the user's id.
func (a Account) ID() string { return a.text("id") }

// UserName is the user's name.
func (a Account) UserName() string { return a.text("user_name") }

func (a Account) text(key string) string {
	s, _ := a[key].(string)
	return s
}

// Account returns the account of a user by name or id; of the client's own user if that is empty.
func (c *Client) Account(ctx context.Context, spec string) (Account, error) {
	p := "/user"
	if spec != "" {
		p = path("users", spec)
	}
	return getOne(ctx, c, p, nil, nil, readAccount)
}

// SearchAccounts returns the users that match keywords. If these ask for a number, found is nil, and
// number is that number in JSON.
func (c *Client) SearchAccounts(ctx context.Context, keywords ...string) (found []Account, number json.RawMessage, err error) {
	doc, number, err := c.search(ctx, "/users", "results", url.Values{"keywords": nonEmpty(keywords)})
	if err != nil || number != nil {
		return nil, number, err
	}
	found, err = decodeAll(doc, readAccount)
	return found, nil, err
}

// UpdateAccount changes an account, the client's own if the id is empty, and returns it.
func (c *Client) UpdateAccount(ctx context.Context, change Change) (Account, error) {
	if change.ID == "" {
		var doc codalab.Document
		err := c.do(ctx, call{
			method: http.MethodPatch, path: "/user", within: answerWithin, json: codalab.NewDocument(change.object("users")),
		}, &doc)
		if err != nil {
			return nil, err
		}
		return decodeOne(doc, readAccount)
	}
	doc, err := c.update(ctx, "/users", "users", []Change{change})
	if err != nil {
		return nil, err
	}
	return decodeOne(doc, readAccount)
}

// DeleteAccount deletes a user. The server refuses if the user owns anything.
func (c *Client) DeleteAccount(ctx context.Context, id string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/users", nil, removal("users", []string{id}))
	return err
}

func readAccount(_ related, o codalab.Object) (Account, error) {
	a := Account{}
	if len(o.Attributes) > 0 {
		if err := json.Unmarshal(o.Attributes, &a); err != nil {
			return nil, fmt.Errorf("decode user %s: %w", o.ID, err)
		}
	}
	a["id"] = o.ID
	return a, nil
}
