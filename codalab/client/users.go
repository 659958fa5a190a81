package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// User returns the client's own user.
func (c *Client) User(ctx context.Context) (codalab.User, error) {
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
func (c *Client) UserByID(ctx context.Context, id string) (codalab.User, error) {
	return getOne(ctx, c, path("users", id), nil, nil, readUser)
}

// SearchUsers returns the users that match keywords. If the keywords ask for a number, found is nil, and
// number is that number in JSON.
func (c *Client) SearchUsers(ctx context.Context, keywords ...string) (found []codalab.User, number json.RawMessage, err error) {
	doc, number, err := c.search(ctx, "/users", "results", url.Values{"keywords": nonEmpty(keywords)})
	if err != nil || number != nil {
		return nil, number, err
	}
	found, err = decodeAll(doc, readUser)
	return found, nil, err
}

// UpdateUser changes a user, the client's own if the id is empty, and returns that user.
func (c *Client) UpdateUser(ctx context.Context, id string, edit codalab.UserEdit) (codalab.User, error) {
	change := codalab.NewObject("users", id, edit)
	var doc codalab.Document
	var err error
	if id == "" {
		err = c.do(ctx, call{method: http.MethodPatch, path: "/user", within: answerWithin, json: codalab.NewDocument(change)}, &doc)
	} else {
		doc, err = c.submit(ctx, http.MethodPatch, "/users", nil, []codalab.Object{change})
	}
	if err != nil {
		return codalab.User{}, err
	}
	return decodeOne(doc, readUser)
}

// DeleteUser deletes a user. The server refuses if the user owns anything.
func (c *Client) DeleteUser(ctx context.Context, id string) error {
	_, err := c.submit(ctx, http.MethodDelete, "/users", nil, removal("users", []string{id}))
	return err
}

func readUser(_ related, o codalab.Object) (codalab.User, error) {
	u := codalab.User{ID: o.ID}
	err := o.Decode(&u)
	return u, err
}

// Offer is an offer of a bundle or worksheet. Only cl-server has offers.
type Offer struct {
	codalab.Offer
	Giver, Receiver codalab.User
}

// Offers returns the open offers to the client's user and of that user, the oldest first. It fails with
// errors.ErrUnsupported if the server has no offers, as CodaLab's own.
func (c *Client) Offers(ctx context.Context) ([]Offer, error) {
	offers, err := getAll(ctx, c, "/offers", nil, nil, func(r related, o codalab.Object) (Offer, error) {
		var offer Offer
		err := o.Decode(&offer.Offer)
		for name, to := range map[string]*codalab.User{"giver": &offer.Giver, "receiver": &offer.Receiver} {
			user, ok := r.linked(o, name)
			if !ok || err != nil {
				continue
			}
			*to, err = readUser(r, user)
		}
		return offer, err
	})
	return offers, onlyOurs(err, "list offers")
}
