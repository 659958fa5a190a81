package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// BundleChange is a change of a bundle.
type BundleChange struct {
	codalab.BundleEdit
	UUID string
	// Owner is the id of the new owner; empty keeps the owner.
	Owner string
}

// WorksheetChange is a change of a worksheet.
type WorksheetChange struct {
	codalab.WorksheetEdit
	UUID string
	// Owner is the id of the new owner; empty keeps the owner.
	Owner string
}

// changed returns an object with an edit as its attributes.
func changed(kind, id string, edit any, owner string) codalab.Object {
	o := codalab.NewObject(kind, id, edit)
	if owner != "" {
		o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", owner)}
	}
	return o
}

// UpdateBundles changes bundles, all or none, and returns them as they are then. cl-server only offers a bundle to a new
// owner whom its owner names; CodaLab's own server gives it to the new owner at once.
func (c *Client) UpdateBundles(ctx context.Context, changes ...BundleChange) ([]BundleInfo, error) {
	objects := make([]codalab.Object, 0, len(changes))
	for _, ch := range changes {
		objects = append(objects, changed("bundles", ch.UUID, ch.BundleEdit, ch.Owner))
	}
	doc, err := c.submit(ctx, http.MethodPatch, "/bundles", nil, objects)
	if err != nil {
		return nil, err
	}
	return decodeAll(doc, readBundle)
}

// UpdateWorksheet changes a worksheet. For a new owner see UpdateBundles.
func (c *Client) UpdateWorksheet(ctx context.Context, change WorksheetChange) error {
	object := changed("worksheets", change.UUID, change.WorksheetEdit, change.Owner)
	_, err := c.submit(ctx, http.MethodPatch, "/worksheets", nil, []codalab.Object{object})
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
	_, err := c.post(ctx, "bundle-actions", nil, codalab.BundleAction{
		Type: codalab.MessageWrite, UUID: t.BundleUUID, Subpath: &t.Subpath, String: &text,
	})
	return err
}

// SetBundlePermissions gives a group a permission, such as codalab.PermissionRead, on bundles.
func (c *Client) SetBundlePermissions(ctx context.Context, uuids []string, group string, permission int) error {
	return c.permit(ctx, "bundle", uuids, group, permission)
}

// SetWorksheetPermission gives a group a permission, such as codalab.PermissionRead, on a worksheet.
func (c *Client) SetWorksheetPermission(ctx context.Context, uuid, group string, permission int) error {
	return c.permit(ctx, "worksheet", []string{uuid}, group, permission)
}

func (c *Client) permit(ctx context.Context, kind string, uuids []string, group string, permission int) error {
	objects := make([]codalab.Object, 0, len(uuids))
	for _, uuid := range uuids {
		o := codalab.NewObject(kind+"-permissions", "", codalab.PermissionEdit{Permission: &permission})
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

// FileValues returns the answers to queries, in their order: values of JSON, of which numbers are
// json.Number. A value that is not there is nil.
func (c *Client) FileValues(ctx context.Context, queries []codalab.FileQuery) ([]any, error) {
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

// Values returns what bundles have in their small result files. It fails with errors.ErrUnsupported if the server has no such
// call, as CodaLab's own.
func (c *Client) Values(ctx context.Context, q codalab.ValueQuery) (codalab.Values, error) {
	var answer struct {
		Data codalab.Values `json:"data"`
	}
	err := c.do(ctx, call{method: http.MethodPost, path: "/interpret/values", within: answerWithin, json: q}, &answer)
	return answer.Data, onlyOurs(err, "get values")
}

// exactValue is a value of codalab.DecodeExact.
type exactValue struct{ any }

// UnmarshalJSON decodes the value.
func (v *exactValue) UnmarshalJSON(data []byte) (err error) {
	v.any, err = codalab.DecodeExact(data)
	return err
}

// Interpretation is a worksheet as pages show it: blocks, of which each has a mode
// (codalab/rest/interpret.py: fetch_interpreted_worksheet).
type Interpretation struct {
	Blocks []Block `json:"blocks"`
	// Next and Mistakes are those of a part: the number of the item behind it, nil if it is the last one, and the mistakes
	// in the lines of a preview.
	Next     *int          `json:"next"`
	Mistakes []LineMistake `json:"mistakes"`
}

// LineMistake is a mistake in a line of a worksheet. The first line is 1.
type LineMistake struct {
	Line    int    `json:"line"`
	Message string `json:"message"`
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
	// BundlesSpec has the bundle of a contents_block or an image_block, and those of a table_block's rows; Path is the file,
	// MaxLines the number of lines to show, Lines has them; nil if there is no file.
	BundlesSpec struct {
		Bundles []BlockBundle `json:"bundle_infos"`
	} `json:"bundles_spec"`
	Path     string   `json:"target_genpath"`
	MaxLines any      `json:"max_lines"`
	Lines    []string `json:"lines"`
	// Error is set if Text tells of a mistake in the worksheet.
	Error bool `json:"error"`
	// Status tells whether the file of an image_block has been found.
	Status BlockStatus `json:"status"`
	// Trajectories are the curves of a graph_block, and XLabel and YLabel name its axes.
	Trajectories []Trajectory `json:"trajectories"`
	XLabel       string       `json:"xlabel"`
	YLabel       string       `json:"ylabel"`
	// Worksheets are those of a subworksheets_block.
	Worksheets []codalab.WorksheetName `json:"subworksheet_infos"`
	// Directive is that of a placeholder_block.
	Directive string `json:"directive"`
}

// BlockStatus is the state of reading a Block's file.
type BlockStatus struct {
	Code string `json:"code"`
}

// NotFound reports whether there is no such file, as far as it is known.
func (s BlockStatus) NotFound() bool { return s.Code == "not_found" }

// BlockBundle is a bundle of a Block. Type is empty if the user may not read it, or it is gone.
type BlockBundle struct {
	UUID     string           `json:"uuid"`
	Type     string           `json:"bundle_type"`
	State    codalab.State    `json:"state"`
	Metadata codalab.Metadata `json:"metadata"`
}

// Trajectory is a curve: the columns of the lines of a file.
type Trajectory struct {
	UUID string `json:"bundle_uuid"`
	// Name is a text; nil if there is none.
	Name any `json:"display_name"`
	// Path is the file's path in the bundle.
	Path string `json:"target_genpath"`
	// Points are the lines; nil if there is no file.
	Points [][]string `json:"points"`
}

// InterpretWorksheet returns a worksheet as pages show it.
func (c *Client) InterpretWorksheet(ctx context.Context, uuid string) (Interpretation, error) {
	var answer Interpretation
	err := c.do(ctx, call{method: http.MethodGet, path: path("interpret", "worksheet", uuid), within: relayWithin}, &answer)
	return answer, err
}

// InterpretPart returns the blocks of some items of a worksheet, from the item with the number first on, as a page needs them.
// Only cl-server has parts.
func (c *Client) InterpretPart(ctx context.Context, uuid string, first, items int) (Interpretation, error) {
	var answer Interpretation
	query := url.Values{"first": {itoa(first)}, "items": {itoa(items)}}
	err := c.do(ctx, call{method: http.MethodGet, path: path("interpret", "worksheet", uuid), query: query, within: relayWithin}, &answer)
	return answer, err
}

// PreviewLines returns the first part of a worksheet as it would be with other lines. Only cl-server has previews.
func (c *Client) PreviewLines(ctx context.Context, uuid, lines string, items int) (Interpretation, error) {
	var answer Interpretation
	query := url.Values{"items": {itoa(items)}}
	err := c.do(ctx, call{method: http.MethodPost, path: path("interpret", "worksheet", uuid), query: query, within: relayWithin, text: lines}, &answer)
	return answer, err
}

// TableContents fills in the cells of a block's rows that are read from files. A row has a text, a
// json.Number or nil for the name of each column. Long tables take several calls: a server takes bodies of 8 MiB.
func (c *Client) TableContents(ctx context.Context, rows []json.RawMessage) ([]map[string]any, error) {
	const most = 4 << 20
	list := make([]map[string]any, 0, len(rows))
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && (n == 0 || size+len(rows[n]) <= most) {
			size += len(rows[n])
			n++
		}
		some, err := c.tablePart(ctx, rows[:n])
		if err != nil {
			return nil, err
		}
		list, rows = append(list, some...), rows[n:]
	}
	return list, nil
}

func (c *Client) tablePart(ctx context.Context, rows []json.RawMessage) ([]map[string]any, error) {
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
