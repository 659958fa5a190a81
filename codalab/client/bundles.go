package client

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// What Bundles may include.
const (
	IncludeOwner       = "owner"
	IncludeChildren    = "children"
	IncludePermissions = "group_permissions"
	IncludeWorksheets  = "host_worksheets"
)

// BundleInfo is a bundle with the objects around it, as far as they were
// asked for and may be read.
type BundleInfo struct {
	codalab.Bundle
	Owner            *User
	Children         []codalab.Bundle
	HostWorksheets   []Worksheet
	GroupPermissions []GroupPermission
}

// Bundles looks up bundles by their specs, in the order of the specs. What a
// spec means is the server's affair: an id or the beginning of one, a name, or
// the place on the worksheet with this id. One that fits none fails the call.
func (c *Client) Bundles(ctx context.Context, worksheet string, specs []string, include ...string) ([]BundleInfo, error) {
	query := url.Values{"specs": specs, "worksheet": {worksheet}}
	doc, err := c.fetch(ctx, "/bundles", query, include)
	if err != nil {
		return nil, err
	}
	return decodeAll(doc, readBundle)
}

// Bundle returns the bundle with this id. One that is not there is a
// *codalab.Error with status 404.
func (c *Client) Bundle(ctx context.Context, uuid string, include ...string) (BundleInfo, error) {
	doc, err := c.fetch(ctx, path("bundles", uuid), nil, include)
	if err != nil {
		return BundleInfo{}, err
	}
	return decodeOne(doc, readBundle)
}

// Public says whether anyone may read a bundle: the group that the server calls
// public may.
func (c *Client) Public(ctx context.Context, uuid string) (bool, error) {
	b, err := c.Bundle(ctx, uuid, IncludePermissions)
	if err != nil {
		return false, err
	}
	for _, p := range b.GroupPermissions {
		if p.GroupName == "public" && p.Permission > 0 {
			return true, nil
		}
	}
	return false, nil
}

// Standing returns where a bundle stands. One that is not there is a
// *codalab.Error with status 404.
func (c *Client) Standing(ctx context.Context, uuid string) (codalab.Standing, error) {
	b, err := c.Bundle(ctx, uuid)
	return codalab.Standing{
		State: b.State, RunStatus: b.Metadata.String("run_status"), Remote: b.Metadata.String("remote"),
		Started: b.Metadata.Int("started"), UploadFailure: b.UploadFailure(),
	}, err
}

// NewBundle is a bundle to be made.
type NewBundle struct {
	// Worksheet is the id of the worksheet that it is put on.
	Worksheet string
	Type      string
	// Command is a run's.
	Command string
	// Metadata holds every key of codalab.MetadataKeys that is not generated.
	Metadata codalab.Metadata
	// Dependencies need ChildPath, ParentUUID and ParentPath.
	Dependencies []codalab.Dependency
	// WaitForUpload keeps the bundle from counting as made until its contents
	// are there.
	WaitForUpload bool
}

// CreateBundle makes a bundle. After a transient error it may have been made.
func (c *Client) CreateBundle(ctx context.Context, b NewBundle) (codalab.Bundle, error) {
	attributes := map[string]any{"bundle_type": b.Type, "metadata": b.Metadata}
	if b.Type == codalab.TypeRun {
		attributes["command"] = b.Command
		attributes["dependencies"] = append([]codalab.Dependency{}, b.Dependencies...)
	}
	query := url.Values{"worksheet": {b.Worksheet}}
	if b.WaitForUpload {
		query.Set("wait_for_upload", "1")
	}
	doc, err := c.post(ctx, "/bundles", query, "bundles", attributes)
	if err != nil {
		return codalab.Bundle{}, err
	}
	info, err := decodeOne(doc, readBundle)
	return info.Bundle, err
}

// KillBundles asks for the end of these bundles. A bundle that has ended
// already fails the call.
func (c *Client) KillBundles(ctx context.Context, uuids ...string) error {
	actions := make([]any, 0, len(uuids))
	for _, uuid := range uuids {
		actions = append(actions, map[string]string{"type": "kill", "uuid": uuid})
	}
	_, err := c.post(ctx, "/bundle-actions", nil, "bundle-actions", actions...)
	return err
}

// fetch gets a document.
func (c *Client) fetch(ctx context.Context, p string, query url.Values, include []string) (codalab.Document, error) {
	if len(include) > 0 {
		if query == nil {
			query = url.Values{}
		}
		query.Set("include", strings.Join(include, ","))
	}
	var doc codalab.Document
	err := c.do(ctx, call{method: "GET", path: p, query: query, within: answerWithin}, &doc)
	return doc, err
}

// post sends a list of new objects of one type, and returns the answer. What
// it asks may have to be passed on to a worker.
func (c *Client) post(ctx context.Context, p string, query url.Values, kind string, attributes ...any) (codalab.Document, error) {
	objects := make([]codalab.Object, 0, len(attributes))
	for _, a := range attributes {
		objects = append(objects, codalab.NewObject(kind, "", a))
	}
	var doc codalab.Document
	err := c.do(ctx, call{method: "POST", path: p, query: query, json: codalab.NewDocument(objects), within: relayWithin}, &doc)
	return doc, err
}

// related finds the objects that a document includes.
type related map[codalab.Link]codalab.Object

func relatedOf(doc codalab.Document) related {
	all := related{}
	for _, o := range doc.Included {
		all[codalab.Link{Type: o.Type, ID: o.ID}] = o
	}
	return all
}

// one returns the object that o's relationship links to, if it is there.
func (r related) one(o codalab.Object, relationship string) (codalab.Object, bool) {
	link, ok := o.Relationships[relationship].Link()
	if !ok {
		return codalab.Object{}, false
	}
	found, ok := r[link]
	return found, ok
}

// many returns the objects that o's relationship links to, as far as they are
// there.
func (r related) many(o codalab.Object, relationship string) []codalab.Object {
	var list []codalab.Object
	for _, link := range o.Relationships[relationship].Links() {
		if found, ok := r[link]; ok {
			list = append(list, found)
		}
	}
	return list
}

func decodeAll[T any](doc codalab.Document, read func(related, codalab.Object) (T, error)) ([]T, error) {
	objects, err := doc.Objects()
	if err != nil {
		return nil, err
	}
	return readAll(relatedOf(doc), objects, read)
}

func decodeOne[T any](doc codalab.Document, read func(related, codalab.Object) (T, error)) (T, error) {
	list, err := decodeAll(doc, read)
	if err == nil && len(list) == 0 {
		err = errors.New("the server's answer holds no object")
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}

func readAll[T any](r related, objects []codalab.Object, read func(related, codalab.Object) (T, error)) ([]T, error) {
	list := make([]T, 0, len(objects))
	for _, o := range objects {
		v, err := read(r, o)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func readBundle(r related, o codalab.Object) (BundleInfo, error) {
	var info BundleInfo
	if err := o.Decode(&info.Bundle); err != nil {
		return info, err
	}
	if info.UUID == "" {
		info.UUID = o.ID
	}
	if owner, ok := o.Relationships["owner"].Link(); ok {
		info.OwnerID = owner.ID
		info.Owner = &User{ID: owner.ID}
	}
	if owner, ok := r.one(o, "owner"); ok {
		u, err := readUser(r, owner)
		if err != nil {
			return info, err
		}
		info.Owner = &u
	}
	var err, err2, err3 error
	info.Children, err = readAll(r, r.many(o, IncludeChildren), readPlainBundle)
	info.HostWorksheets, err2 = readAll(r, r.many(o, IncludeWorksheets), readWorksheet)
	info.GroupPermissions, err3 = readAll(r, r.many(o, IncludePermissions), readPermission)
	return info, errors.Join(err, err2, err3)
}

func readPlainBundle(r related, o codalab.Object) (codalab.Bundle, error) {
	info, err := readBundle(r, codalab.Object{Type: o.Type, ID: o.ID, Attributes: o.Attributes})
	return info.Bundle, err
}
