package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// HomeWorksheet is the spec of a user's home worksheet. The server creates that worksheet at
// its first use.
const HomeWorksheet = "/"

// Worksheet is a worksheet with the related objects that were included and that the user may read.
type Worksheet struct {
	codalab.Worksheet
	Owner            *codalab.User
	GroupPermissions []codalab.GroupPermission
	Items            []Item
	// Bundles are the bundles among the worksheet's items, in their order.
	Bundles []BundleInfo
}

// Item is an item of a worksheet, with the bundle or the worksheet that it shows. If that is gone, or the
// user may not read it, only its uuid is set.
type Item struct {
	codalab.WorksheetItem
	Bundle    *BundleInfo
	Worksheet *Worksheet
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

// WorksheetAccess returns the worksheet with this id, its owner and permissions.
func (c *Client) WorksheetAccess(ctx context.Context, uuid string) (Worksheet, error) {
	return getOne(ctx, c, path("worksheets", uuid), nil, []string{"owner", "group_permissions"}, readWorksheet)
}

// WorksheetBundles returns the worksheet with this id, its owner, permissions and bundles. If keys of metadata are named, the
// bundles may lack all others, and args and state details, and the worksheet its items; CodaLab's own server always sends all.
func (c *Client) WorksheetBundles(ctx context.Context, uuid string, keys ...string) (Worksheet, error) {
	include := []string{"owner", "group_permissions", "items", "items.bundle", "items.bundle.owner"}
	query := onlyKeys(url.Values{}, keys)
	if len(keys) > 0 {
		query.Set("items", "bundles") // a cl-server sends no items then, which are more than a quarter of the answer
	}
	return getOne(ctx, c, path("worksheets", uuid), query, include, readWorksheet)
}

// WorksheetItems returns the worksheet with this id, its owner, permissions and all items. For keys see WorksheetBundles.
func (c *Client) WorksheetItems(ctx context.Context, uuid string, keys ...string) (Worksheet, error) {
	include := []string{"owner", "group_permissions", "items", "items.bundle", "items.bundle.owner", "items.subworksheet"}
	return getOne(ctx, c, path("worksheets", uuid), onlyKeys(url.Values{}, keys), include, readWorksheet)
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
	return create(ctx, c, "worksheets", nil, codalab.WorksheetEdit{Name: &name}, readWorksheet)
}

// AddItems adds items to the end of a worksheet; with replace they take the place of all others.
func (c *Client) AddItems(ctx context.Context, worksheet string, items []Item, replace bool) error {
	objects := make([]codalab.Object, 0, len(items))
	for _, item := range items {
		o := codalab.NewObject("worksheet-items", "", codalab.WorksheetItem{Type: item.Type, Value: item.Value})
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
	change := codalab.ItemInsertion{IDs: []int64{}, Items: []string{}}
	for _, id := range ids {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return fmt.Errorf("remove item from worksheet %s: %w", worksheet, err)
		}
		change.IDs = append(change.IDs, n)
	}
	return c.do(ctx, call{
		method: http.MethodPost, path: path("worksheets", worksheet, "add-items"), within: relayWithin,
		json: change,
	}, nil)
}

// SetWorksheetLines replaces a worksheet's items by the items that lines describe, in the form that people
// edit.
func (c *Client) SetWorksheetLines(ctx context.Context, uuid string, lines []string) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: path("worksheets", uuid, "raw"), within: relayWithin, text: strings.Join(lines, "\n"),
	}, nil)
}

// WorksheetLines returns a worksheet in the form that people edit, and its tag for ReplaceWorksheetLines. It fails
// with errors.ErrUnsupported if the server has no tags, as CodaLab's own.
func (c *Client) WorksheetLines(ctx context.Context, uuid string) (lines, tag string, err error) {
	in := call{method: http.MethodGet, path: path("worksheets", uuid, "raw"), within: relayWithin}
	const doing = "get lines of worksheet"
	resp, err := c.open(ctx, in)
	if err != nil {
		return "", "", onlyOurs(err, doing)
	}
	defer func() { _ = resp.Body.Close() }()
	if tag = resp.Header.Get("ETag"); tag == "" {
		return "", "", fmt.Errorf("%s: %w", doing, errors.ErrUnsupported)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return "", "", c.unanswered(in, err)
	}
	return string(text), tag, nil
}

// ReplaceWorksheetLines is SetWorksheetLines for somebody who has read the worksheet: the server refuses with
// http.StatusPreconditionFailed if it has another tag now.
func (c *Client) ReplaceWorksheetLines(ctx context.Context, uuid, lines, tag string) error {
	return c.do(ctx, call{
		method: http.MethodPut, path: path("worksheets", uuid, "raw"), within: relayWithin, text: lines, header: map[string]string{"If-Match": tag},
	}, nil)
}

// ItemLines returns a worksheet's items as the lines that people edit and the server reads
// (codalab/lib/worksheet_util.py: get_worksheet_lines).
func ItemLines(items []Item) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		line := item.Value
		switch {
		case item.Type == codalab.ItemBundle && item.Bundle != nil:
			line = codalab.ItemLine(item.Type, "", item.Bundle.Describe(), item.Bundle.UUID)
		case item.Type == codalab.ItemWorksheet && item.Worksheet != nil:
			line = codalab.ItemLine(item.Type, "", item.Worksheet.Name, item.Worksheet.UUID)
		case item.Type == codalab.ItemDirective:
			line = codalab.ItemLine(item.Type, item.Value, "", "")
		}
		lines = append(lines, line)
	}
	return lines
}

func readPermission(_ related, o codalab.Object) (codalab.GroupPermission, error) {
	var p codalab.GroupPermission
	err := o.Decode(&p)
	if group, ok := o.Relationships["group"].Link(); ok {
		p.GroupID = group.ID
	}
	return p, err
}

func readWorksheet(r related, o codalab.Object) (Worksheet, error) {
	var w Worksheet
	if err := o.Decode(&w.Worksheet); err != nil {
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
	var err, err2, err3 error
	w.GroupPermissions, err = readAll(r, r.linkedList(o, "group_permissions"), readPermission)
	w.Items, err2 = readAll(r, r.linkedList(o, "items"), readItem)
	for _, item := range w.Items {
		if item.Bundle != nil && item.Bundle.Type != "" {
			w.Bundles = append(w.Bundles, *item.Bundle)
		}
	}
	if list := r.linkedList(o, "bundles"); len(list) > 0 { // in place of items, see WorksheetBundles
		w.Bundles, err3 = readAll(r, list, readBundle)
	}
	return w, errors.Join(err, err2, err3)
}

func readWorksheetName(_ related, o codalab.Object) (codalab.WorksheetName, error) {
	w := codalab.WorksheetName{UUID: o.ID}
	err := o.Decode(&w)
	return w, err
}

func readItem(r related, o codalab.Object) (Item, error) {
	var item Item
	item.ID = o.ID
	if err := o.Decode(&item.WorksheetItem); err != nil {
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
		item.Worksheet = &Worksheet{Worksheet: codalab.Worksheet{WorksheetName: codalab.WorksheetName{UUID: link.ID}}}
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
