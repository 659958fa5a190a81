package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Change is a change of an object's attributes, such as "title" or "metadata". Other attributes, and
// other keys of the metadata, stay unchanged.
type Change struct {
	ID         string
	Attributes map[string]any
	// Owner is the id of the new owner; empty keeps the owner.
	Owner string
}

// object is the change as the API takes it.
func (ch Change) object(kind string) codalab.Object {
	attributes := ch.Attributes
	if attributes == nil {
		attributes = map[string]any{}
	}
	o := codalab.NewObject(kind, ch.ID, attributes)
	if ch.Owner != "" {
		o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", ch.Owner)}
	}
	return o
}

func (c *Client) update(ctx context.Context, p, kind string, changes []Change) (codalab.Document, error) {
	objects := make([]codalab.Object, 0, len(changes))
	for _, ch := range changes {
		objects = append(objects, ch.object(kind))
	}
	return c.submit(ctx, http.MethodPatch, p, nil, objects)
}

// UpdateBundles changes bundles, all or none.
func (c *Client) UpdateBundles(ctx context.Context, changes ...Change) error {
	_, err := c.update(ctx, "/bundles", "bundles", changes)
	return err
}

// UpdateWorksheet changes a worksheet.
func (c *Client) UpdateWorksheet(ctx context.Context, change Change) error {
	_, err := c.update(ctx, "/worksheets", "worksheets", []Change{change})
	return err
}

// DeleteWorksheet deletes a worksheet. Without force the server refuses one that has items or is
// frozen.
func (c *Client) DeleteWorksheet(ctx context.Context, uuid string, force bool) error {
	_, err := c.submit(ctx, http.MethodDelete, "/worksheets", url.Values{"force": {boolParam(force)}}, removal("worksheets", []string{uuid}))
	return err
}

// WriteToBundle asks the server to write a text to a file of a running bundle.
func (c *Client) WriteToBundle(ctx context.Context, t codalab.Target, text string) error {
	_, err := c.post(ctx, "/bundle-actions", nil, "bundle-actions", map[string]string{
		"type": "write", "uuid": t.BundleUUID, "subpath": t.Subpath, "string": text,
	})
	return err
}

// SetBundlePermissions gives a group a permission (0 none, 1 read, 2 all) on bundles.
func (c *Client) SetBundlePermissions(ctx context.Context, uuids []string, group string, permission int) error {
	return c.permit(ctx, "bundle", uuids, group, permission)
}

// SetWorksheetPermission gives a group a permission (0 none, 1 read, 2 all) on a worksheet.
func (c *Client) SetWorksheetPermission(ctx context.Context, uuid, group string, permission int) error {
	return c.permit(ctx, "worksheet", []string{uuid}, group, permission)
}

func (c *Client) permit(ctx context.Context, kind string, uuids []string, group string, permission int) error {
	objects := make([]codalab.Object, 0, len(uuids))
	for _, uuid := range uuids {
		o := codalab.NewObject(kind+"-permissions", "", map[string]int{"permission": permission})
		o.Relationships = map[string]codalab.Relationship{"group": codalab.ToOne("groups", group), kind: codalab.ToOne(kind+"s", uuid)}
		objects = append(objects, o)
	}
	_, err := c.submit(ctx, http.MethodPost, "/"+kind+"-permissions", nil, objects)
	return err
}

// Netcat sends a message to a TCP port of a running bundle's container, and returns all that comes back.
func (c *Client) Netcat(ctx context.Context, uuid string, port int, message string) ([]byte, error) {
	var answer []byte
	err := c.do(ctx, call{
		method: http.MethodPut, path: path("bundles", uuid, "netcat", itoa(port)) + "/", within: relayWithin,
		json: map[string]string{"message": message},
	}, &answer)
	return answer, err
}

// FileQuery asks for a value in a file of a bundle. Path begins with a slash, and may lead into the file:
// /stats.json:test/error (codalab/lib/worksheet_util.py: interpret_file_genpath).
type FileQuery struct {
	BundleUUID string  `json:"bundle_uuid"`
	Path       string  `json:"genpath"`
	Post       *string `json:"post"`
}

// FileValues returns the answers to queries, in their order: values of JSON, of which numbers are
// json.Number. A value that is not there is nil.
func (c *Client) FileValues(ctx context.Context, queries []FileQuery) ([]any, error) {
	var answer struct {
		Data []exactValue `json:"data"`
	}
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/interpret/file-genpaths", within: relayWithin, json: map[string]any{"queries": queries},
	}, &answer)
	values := make([]any, len(queries))
	for i, v := range answer.Data[:min(len(values), len(answer.Data))] {
		values[i] = v.any
	}
	return values, err
}

// exactValue is a JSON value whose numbers are json.Number. A float64 would lose the difference between
// 4 and 4.0, which Python prints.
type exactValue struct{ any }

// UnmarshalJSON decodes the value.
func (v *exactValue) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(&v.any) //nolint:wrapcheck // encoding/json adds the context
}

// Interpretation is a worksheet as pages show it: blocks, of which each has a mode
// (codalab/rest/interpret.py: fetch_interpreted_worksheet).
type Interpretation struct {
	Blocks []Block `json:"blocks"`
}

// Block is a part of an interpreted worksheet. Mode determines the fields that are set
// (codalab/rest/worksheet_block_schemas.py).
type Block struct {
	Mode string `json:"mode"`
	// Text is that of a markup_block.
	Text string `json:"text"`
	// Header and Rows are those of a table_block and a record_block.
	Header []string          `json:"header"`
	Rows   []json.RawMessage `json:"rows"`
	// BundlesSpec has the bundle of a contents_block; Path is the file, MaxLines the number of lines to
	// show.
	BundlesSpec struct {
		Bundles []struct {
			UUID string `json:"uuid"`
		} `json:"bundle_infos"`
	} `json:"bundles_spec"`
	Path     string `json:"target_genpath"`
	MaxLines any    `json:"max_lines"`
	// Worksheets are those of a subworksheets_block.
	Worksheets []Worksheet `json:"subworksheet_infos"`
	// Directive is that of a placeholder_block.
	Directive string `json:"directive"`
}

// InterpretWorksheet returns a worksheet as pages show it.
func (c *Client) InterpretWorksheet(ctx context.Context, uuid string) (Interpretation, error) {
	var answer Interpretation
	err := c.do(ctx, call{method: http.MethodGet, path: path("interpret", "worksheet", uuid), within: relayWithin}, &answer)
	return answer, err
}

// TableContents fills in the cells of a block's rows that are read from files. A row has a text, a
// json.Number or nil for the name of each column.
func (c *Client) TableContents(ctx context.Context, rows []json.RawMessage) ([]map[string]any, error) {
	var answer struct {
		Contents []map[string]exactValue `json:"contents"`
	}
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/interpret/genpath-table-contents", within: relayWithin,
		json: map[string]any{"contents": rows},
	}, &answer)
	list := make([]map[string]any, 0, len(answer.Contents))
	for _, cells := range answer.Contents {
		row := make(map[string]any, len(cells))
		for name, v := range cells {
			row[name] = v.any
		}
		list = append(list, row)
	}
	return list, err
}
