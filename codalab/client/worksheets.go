package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

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
	Items            []Item            `json:"-"`
	// Bundles are the bundles among the worksheet's items, in their order.
	Bundles []BundleInfo `json:"-"`
}

// The types of a worksheet's items (codalab/lib/worksheet_util.py: WORKSHEET_ITEM_TYPES).
const (
	ItemMarkup    = "markup"
	ItemDirective = "directive"
	ItemBundle    = "bundle"
	ItemWorksheet = "worksheet"
)

// Item is an item of a worksheet.
type Item struct {
	// ID is empty for an item to add.
	ID   string `json:"-"`
	Type string `json:"type"`
	// Value is the text of markup, or of a directive without its percent sign.
	Value string `json:"value"`
	// Bundle and Worksheet are the objects that the item shows. If the object is gone, or the user may not
	// read it, only its uuid is set.
	Bundle    *BundleInfo `json:"-"`
	Worksheet *Worksheet  `json:"-"`
}

// GroupPermission is a group's permission on a bundle or a worksheet.
type GroupPermission struct {
	GroupName  string `json:"group_name"`
	GroupID    string `json:"-"`
	Permission int    `json:"permission"`
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

// WorksheetItems returns the worksheet with this id, its owner, permissions and all items.
func (c *Client) WorksheetItems(ctx context.Context, uuid string) (Worksheet, error) {
	include := []string{"owner", "group_permissions", "items", "items.bundle", "items.bundle.owner", "items.subworksheet"}
	return getOne(ctx, c, path("worksheets", uuid), nil, include, readWorksheet)
}

// SearchWorksheets returns the worksheets that match keywords, with their owners and permissions.
func (c *Client) SearchWorksheets(ctx context.Context, keywords ...string) ([]Worksheet, error) {
	return getAll(ctx, c, "/worksheets", url.Values{"keywords": nonEmpty(keywords)}, []string{"owner", "group_permissions"}, readWorksheet)
}

// nonEmpty is a list of keywords: a search for everything has one empty word.
func nonEmpty(keywords []string) []string {
	if len(keywords) == 0 {
		return []string{""}
	}
	return keywords
}

// CreateWorksheet creates a worksheet.
func (c *Client) CreateWorksheet(ctx context.Context, name string) (Worksheet, error) {
	doc, err := c.post(ctx, "/worksheets", nil, "worksheets", map[string]string{"name": name})
	if err != nil {
		return Worksheet{}, err
	}
	return decodeOne(doc, readWorksheet)
}

// AddItems adds items to the end of a worksheet; with replace they take the place of all others.
func (c *Client) AddItems(ctx context.Context, worksheet string, items []Item, replace bool) error {
	objects := make([]codalab.Object, 0, len(items))
	for _, item := range items {
		o := codalab.NewObject("worksheet-items", "", item)
		o.Relationships = map[string]codalab.Relationship{"worksheet": codalab.ToOne("worksheets", worksheet)}
		if item.Bundle != nil {
			o.Relationships["bundle"] = codalab.ToOne("bundles", item.Bundle.UUID)
		}
		if item.Worksheet != nil {
			o.Relationships["subworksheet"] = codalab.ToOne("worksheets", item.Worksheet.UUID)
		}
		objects = append(objects, o)
	}
	_, err := c.submit(ctx, http.MethodPost, "/worksheet-items", url.Values{"uuid": {worksheet}, "replace": {boolParam(replace)}}, objects)
	return err
}

// RemoveItems removes items from a worksheet by their ids; concurrently added items stay
// (codalab/rest/worksheets.py: replace_items).
func (c *Client) RemoveItems(ctx context.Context, worksheet string, ids []string) error {
	numbers := make([]json.Number, 0, len(ids))
	for _, id := range ids {
		numbers = append(numbers, json.Number(id))
	}
	return c.do(ctx, call{
		method: http.MethodPost, path: path("worksheets", worksheet, "add-items"), within: relayWithin,
		json: map[string]any{"ids": numbers, "items": []string{}},
	}, nil)
}

// SetWorksheetLines replaces a worksheet's items by the items that lines describe, in the form that people
// edit.
func (c *Client) SetWorksheetLines(ctx context.Context, uuid string, lines []string) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: path("worksheets", uuid, "raw"), within: relayWithin, text: strings.Join(lines, "\n"),
	}, nil)
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
	w.Items, err2 = readAll(r, r.linkedList(o, "items"), readItem)
	for _, item := range w.Items {
		if item.Bundle != nil && item.Bundle.Type != "" {
			w.Bundles = append(w.Bundles, *item.Bundle)
		}
	}
	return w, errors.Join(err, err2)
}

func readItem(r related, o codalab.Object) (Item, error) {
	item := Item{ID: o.ID}
	if err := o.Decode(&item); err != nil {
		return item, err
	}
	if link, ok := o.Relationships["bundle"].Link(); ok {
		item.Bundle = &BundleInfo{Bundle: codalab.Bundle{UUID: link.ID}}
	}
	if bundle, ok := r.linked(o, "bundle"); ok {
		b, err := readBundle(r, bundle)
		if err != nil {
			return item, err
		}
		item.Bundle = &b
	}
	if link, ok := o.Relationships["subworksheet"].Link(); ok {
		item.Worksheet = &Worksheet{UUID: link.ID}
	}
	if sheet, ok := r.linked(o, "subworksheet"); ok {
		w, err := readWorksheet(r, sheet)
		if err != nil {
			return item, err
		}
		item.Worksheet = &w
	}
	return item, nil
}
