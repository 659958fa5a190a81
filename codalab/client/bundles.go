package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The relationships that Bundle and Bundles may include.
const (
	IncludeOwner       = "owner"
	IncludeChildren    = "children"
	IncludePermissions = "group_permissions"
	IncludeWorksheets  = "host_worksheets"
)

// BundleInfo is a bundle with the related objects that were included and that the user may
// read.
type BundleInfo struct {
	codalab.Bundle
	Owner          *codalab.User
	Children       []codalab.Bundle
	HostWorksheets []codalab.WorksheetName
	// GroupPermissions is nil if they were not included.
	GroupPermissions []codalab.GroupPermission
	// Warnings has sentences of the server about a new bundle (NewBundle.CheckRequests).
	Warnings []string
}

// Bundles returns the bundles that specs name, in the order of the specs. The server resolves
// a spec: an id or the beginning of one, a name, or a position on the worksheet with this id.
// A spec without a bundle fails the call.
func (c *Client) Bundles(ctx context.Context, worksheet string, specs []string, include ...string) ([]BundleInfo, error) {
	return c.BundlesWith(ctx, worksheet, specs, nil, include...)
}

// BundlesWith is Bundles for a caller that needs some keys of metadata: the bundles may lack all others, and args, state details
// and the platform. No keys mean all.
func (c *Client) BundlesWith(ctx context.Context, worksheet string, specs, keys []string, include ...string) ([]BundleInfo, error) {
	return c.specified(ctx, specs, onlyKeys(url.Values{"worksheet": {worksheet}}, keys), include)
}

// specified returns the bundles that specs name, in as many calls as their addresses need.
func (c *Client) specified(ctx context.Context, specs []string, query url.Values, include []string) ([]BundleInfo, error) {
	var all []BundleInfo
	for some := range inAddresses(specs) {
		query["specs"] = some
		found, err := getAll(ctx, c, "/bundles", query, include, readBundle)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// inAddresses splits a list of specs, which go into the address of a call, so that no address is too long:
// CodaLab's own server takes 4,094 bytes (gunicorn's limit_request_line). Some are left for the rest of the address.
func inAddresses(specs []string) iter.Seq[[]string] {
	const most = 3500
	return func(yield func([]string) bool) {
		for len(specs) > 0 {
			n, size := 0, 0
			for n < len(specs) {
				size += len("&specs=") + len(url.QueryEscape(specs[n]))
				if n > 0 && size > most {
					break
				}
				n++
			}
			if !yield(specs[:n]) {
				return
			}
			specs = specs[n:]
		}
	}
}

// Bundle returns the bundle with this id. A missing one is a *codalab.Error with status 404.
func (c *Client) Bundle(ctx context.Context, uuid string, include ...string) (BundleInfo, error) {
	return getOne(ctx, c, path("bundles", uuid), nil, include, readBundle)
}

// SearchBundles returns the bundles that match keywords, at most ten unless they contain .limit. If the keywords
// ask for a number, found is nil, and number is that number in JSON, or null for the sum of no bundles
// (codalab/rest/bundles.py: _fetch_bundles).
func (c *Client) SearchBundles(ctx context.Context, worksheet string, keywords []string) (found []BundleInfo, number json.RawMessage, err error) {
	return c.ListBundles(ctx, worksheet, keywords)
}

// ListBundles is SearchBundles for a list that shows some keys of metadata: the bundles may lack all others, and args and
// state details. It takes a third of the time. CodaLab's own server always sends all.
func (c *Client) ListBundles(ctx context.Context, worksheet string, keywords []string, keys ...string) (found []BundleInfo, number json.RawMessage, err error) {
	return c.FindBundles(ctx, worksheet, keywords, []string{IncludeOwner}, keys)
}

// FindBundles is ListBundles with the related objects that include names; no keys mean all.
func (c *Client) FindBundles(ctx context.Context, worksheet string, keywords, include, keys []string) (found []BundleInfo, number json.RawMessage, err error) {
	doc, number, err := c.search(ctx, "/bundles", "result", onlyKeys(url.Values{
		"keywords": keywords, "worksheet": {worksheet}, "include": {strings.Join(include, ",")},
	}, keys))
	if err != nil || number != nil {
		return nil, number, err
	}
	found, err = decodeAll(doc, readBundle)
	return found, nil, err
}

// onlyKeys adds the keys of metadata that an answer's bundles shall have to a query; none means all.
func onlyKeys(query url.Values, keys []string) url.Values {
	if len(keys) > 0 {
		query.Set("metadata", strings.Join(keys, ","))
	}
	return query
}

// search returns the matches of keywords: a document, or a number under a key of the document's meta.
func (c *Client) search(ctx context.Context, p, key string, query url.Values) (doc codalab.Document, number json.RawMessage, err error) {
	var answer struct {
		codalab.Document
		Meta map[string]json.RawMessage `json:"meta"`
	}
	err = c.do(ctx, call{method: http.MethodGet, path: p, query: query, within: relayWithin}, &answer)
	if err == nil && len(answer.Data) == 0 {
		number = answer.Meta[key]
	}
	return answer.Document, number, err
}

// Descendants returns the bundles with these ids and the bundles that depend on them, directly or through
// others, depth levels down.
func (c *Client) Descendants(ctx context.Context, uuids []string, depth int) ([]BundleInfo, error) {
	return c.specified(ctx, uuids, url.Values{"depth": {itoa(depth)}}, nil)
}

// SameRuns returns the runs of the same command on the same dependencies, oldest first (codalab/rest/bundles.py:
// _fetch_bundles, "command").
func (c *Client) SameRuns(ctx context.Context, command string, dependencies []codalab.Dependency) ([]BundleInfo, error) {
	list := []map[string]string{}
	for _, d := range dependencies {
		list = append(list, map[string]string{"child_path": d.ChildPath, "parent_uuid": d.ParentUUID})
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode dependencies: %w", err)
	}
	return getAll(ctx, c, "/bundles", url.Values{"command": {command}, "dependencies": {string(data)}}, nil, readBundle)
}

// Stores returns the names of the bundle stores that hold a bundle's contents; none if it is the
// server's own.
func (c *Client) Stores(ctx context.Context, uuid string) ([]string, error) {
	return getAll(ctx, c, path("bundles", uuid, "locations")+"/", nil, nil, func(_ related, o codalab.Object) (string, error) {
		var store BundleStore
		err := o.Decode(&store)
		return store.Name, err
	})
}

// Identity returns the identity of the bundle that has a UUID now. For a missing one it fails with a
// *codalab.Error of status 404, for one that the user may not read with status 403.
func (c *Client) Identity(ctx context.Context, uuid string) (codalab.Identity, error) {
	b, err := c.readable(ctx, uuid, "created")
	return b.Identity(), err
}

// readable returns the bundle with this id. If the user may not read it, the server answers with a bundle of
// type private without any data (codalab/bundles/private_bundle.py); readable then fails with status 403. The bundle may have no
// other keys of metadata than these.
func (c *Client) readable(ctx context.Context, uuid string, keys ...string) (BundleInfo, error) {
	b, err := getOne(ctx, c, path("bundles", uuid), onlyKeys(url.Values{}, keys), nil, readBundle)
	if err == nil && b.Type == codalab.TypePrivate {
		err = &codalab.Error{Method: http.MethodGet, Path: path("bundles", uuid), Status: http.StatusForbidden, Message: "the account may not read the bundle"}
	}
	return b, err
}

// Public reports whether everybody may read a bundle: the server's group "public" may.
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

// Standing returns the server's record of a bundle's progress. Its errors are those of Identity.
func (c *Client) Standing(ctx context.Context, uuid string) (codalab.Standing, error) {
	b, err := c.readable(ctx, uuid, "created", "run_status", "remote", "started", "failure_message")
	return codalab.Standing{
		Identity: b.Identity(), State: b.State, RunStatus: b.Metadata.String("run_status"), Remote: b.Metadata.String("remote"),
		Started: b.Metadata.Int("started"), UploadFailure: b.UploadFailure(),
	}, err
}

// NewBundle is a bundle to create.
type NewBundle struct {
	// UUID is chosen by the server if it is empty.
	UUID string
	// Worksheet is the id of the worksheet that gets the bundle.
	Worksheet string
	Type      string
	Command   string // of a run
	// Metadata holds every key of codalab.MetadataKeys that is not generated.
	Metadata codalab.Metadata
	// Dependencies need ChildPath, ParentUUID and ParentPath.
	Dependencies []codalab.Dependency
	// Platform is that of a run that is copied from elsewhere, for which WaitForUpload is set; nil if it is not known.
	Platform *codalab.Platform
	// WaitForUpload keeps the bundle in state uploading until its contents have arrived.
	WaitForUpload bool
	// Detached leaves the bundle off the worksheet.
	Detached bool
	// Shadow is the id of a bundle; the new one comes after it on the worksheet.
	Shadow string
	// AfterSortKey is the sort key of an item; the new bundle comes after it on the worksheet.
	AfterSortKey string
	// CheckRequests has the server refuse a run that would fail for its requests, and warn of a queue that is not there.
	// CodaLab's own server ignores it.
	CheckRequests bool
}

// CreateBundle creates a bundle, and returns it with warnings, and with the permissions of groups; nil if the server does not tell them, as
// CodaLab's own. After a transient error the bundle may exist. An error with status 409 says that cl-server gives its uuid to no
// new bundle: one has it, which the user may not be able to read, or a deleted one had it. CodaLab's own server answers with 500
// where a bundle has it, and gives the uuids of deleted ones again.
func (c *Client) CreateBundle(ctx context.Context, b NewBundle) (BundleInfo, error) {
	doc, err := c.post(ctx, "bundles", b.query(IncludePermissions), b.attributes())
	if err != nil {
		return BundleInfo{}, err
	}
	made, err := decodeOne(doc, readBundle)
	made.Warnings = codalab.Metadata(doc.Meta).Strings("warnings")
	return made, err
}

// CreateBundles creates bundles with one request, and returns them with the warnings of all in the first one. They have
// the worksheet and the choices of the first one. After an error some may exist: cl-server refuses a list of which a
// bundle is wrong or exists already, but stores a long list in several parts.
func (c *Client) CreateBundles(ctx context.Context, list []NewBundle) ([]BundleInfo, error) {
	if len(list) == 0 {
		return nil, nil
	}
	objects := make([]codalab.Object, len(list))
	for i, b := range list {
		objects[i] = codalab.NewObject("bundles", "", b.attributes())
	}
	var doc codalab.Document
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/bundles", query: list[0].query(""), json: codalab.NewDocument(objects), within: manyWithin,
	}, &doc)
	if refused, ok := errors.AsType[*codalab.Error](err); ok { // CodaLab's own server writes a line for each wrong bundle
		refused.Message = strings.Join(slices.Compact(strings.Split(refused.Message, "\n")), "\n")
	}
	if err != nil {
		return nil, err
	}
	made, err := decodeAll(doc, readBundle)
	if err == nil && len(made) > 0 {
		made[0].Warnings = codalab.Metadata(doc.Meta).Strings("warnings")
	}
	return made, err
}

// manyWithin bounds the wait for the answer to a list of new bundles. CodaLab's own server stores them one by one.
const manyWithin = 10 * time.Minute

// attributes are the bundle's in a request.
func (b NewBundle) attributes() codalab.NewBundle {
	attributes := codalab.NewBundle{UUID: b.UUID, Type: b.Type, Metadata: b.Metadata, Platform: b.Platform}
	if b.Command != "" {
		attributes.Command = &b.Command
	}
	if b.Type == codalab.TypeRun || b.Type == codalab.TypeMake {
		attributes.Dependencies = []codalab.Dependency{} // a server adds the other fields itself
		for _, d := range b.Dependencies {
			attributes.Dependencies = append(attributes.Dependencies, codalab.Dependency{ChildPath: d.ChildPath, ParentUUID: d.ParentUUID, ParentPath: d.ParentPath})
		}
	}
	return attributes
}

// query is that of the request that creates the bundle.
func (b NewBundle) query(include string) url.Values {
	query := url.Values{"worksheet": {b.Worksheet}}
	for key, set := range map[string]bool{"wait_for_upload": b.WaitForUpload, "detached": b.Detached, "check_requests": b.CheckRequests} {
		if set {
			query.Set(key, "1")
		}
	}
	for key, value := range map[string]string{"include": include, "shadow": b.Shadow, "after_sort_key": b.AfterSortKey} {
		if value != "" {
			query.Set(key, value)
		}
	}
	return query
}

// History returns what users did with a bundle, the oldest first. It fails with errors.ErrUnsupported if the server keeps no
// histories, as CodaLab's own.
func (c *Client) History(ctx context.Context, uuid string) ([]codalab.BundleEvent, error) {
	var answer struct {
		Data []codalab.BundleEvent `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: path("bundles", uuid, "history"), within: answerWithin}, &answer)
	return answer.Data, onlyOurs(err, "get history")
}

// Usage returns how a run used processors, memory and GPUs over time. It fails with errors.ErrUnsupported if the server keeps
// no such series, as CodaLab's own.
func (c *Client) Usage(ctx context.Context, uuid string) (codalab.Usage, error) {
	var answer struct {
		Data codalab.Usage `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: path("bundles", uuid, "usage"), within: answerWithin}, &answer)
	return answer.Data, onlyOurs(err, "get usage")
}

// KillBundles asks the server to kill bundles. It fails if a bundle has ended already.
func (c *Client) KillBundles(ctx context.Context, uuids ...string) error {
	actions := make([]any, 0, len(uuids))
	for _, uuid := range uuids {
		actions = append(actions, codalab.BundleAction{Type: codalab.MessageKill, UUID: uuid})
	}
	_, err := c.post(ctx, "bundle-actions", nil, actions...)
	return err
}

func readBundle(r related, o codalab.Object) (BundleInfo, error) {
	var info BundleInfo
	if err := o.Decode(&info.Bundle); err != nil {
		return info, err
	}
	if info.UUID == "" {
		info.UUID = o.ID
	}
	var err, err2, err3 error
	if link, ok := o.Relationships["owner"].Link(); ok {
		owner, err := r.user(link)
		if err != nil {
			return info, err
		}
		info.OwnerID, info.Owner = link.ID, &owner
	}
	info.Children, err = readAll(r, r.linkedList(o, IncludeChildren), readPlainBundle)
	info.HostWorksheets, err2 = readAll(r, r.linkedList(o, IncludeWorksheets), readWorksheetName)
	if _, told := o.Relationships[IncludePermissions]; told {
		info.GroupPermissions, err3 = readAll(r, r.linkedList(o, IncludePermissions), readPermission)
	}
	return info, errors.Join(err, err2, err3)
}

func readPlainBundle(r related, o codalab.Object) (codalab.Bundle, error) {
	info, err := readBundle(r, codalab.Object{Type: o.Type, ID: o.ID, Attributes: o.Attributes})
	return info.Bundle, err
}
