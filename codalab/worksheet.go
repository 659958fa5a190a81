package codalab

import "encoding/json"

// Worksheet is a worksheet as the server shows it: the attributes of a JSON:API object of type
// "worksheets" (codalab/rest/schemas.py: WorksheetSchema).
type Worksheet struct {
	WorksheetName
	Title       *string `json:"title"`
	Frozen      *string `json:"frozen"`
	IsAnonymous bool    `json:"is_anonymous"`
	// The dates are ISO 8601.
	DateCreated      string   `json:"date_created"`
	DateLastModified string   `json:"date_last_modified"`
	Tags             []string `json:"tags"`
	LastItemID       *int64   `json:"last_item_id"`
	// Permission and PermissionSpec are the asking user's. They are absent from lists.
	Permission     *int   `json:"permission,omitempty"`
	PermissionSpec string `json:"permission_spec,omitempty"`
}

// WorksheetName tells which worksheet is meant.
type WorksheetName struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
}

// WorksheetEdit is a change of a worksheet: the attributes of PATCH /worksheets. Nil fields stay as they
// are.
type WorksheetEdit struct {
	Name  *string   `json:"name,omitempty"`
	Title *string   `json:"title,omitempty"`
	Tags  *[]string `json:"tags,omitempty"`
	// Frozen is a time, or null to unfreeze the worksheet.
	Frozen      json.RawMessage `json:"frozen,omitempty"`
	IsAnonymous *bool           `json:"is_anonymous,omitempty"`
}

// WorksheetItem is an item of a worksheet: the attributes of a JSON:API object of type "worksheet-items".
// Relationships lead to the bundle or the worksheet that the item shows.
type WorksheetItem struct {
	// ID is the object's id; empty for an item to add.
	ID   string `json:"-"`
	Type string `json:"type"`
	// Value is the text of markup, or of a directive without its percent sign.
	Value string `json:"value"`
	// SortKey orders a worksheet's items; nil for an item to add.
	SortKey *int64 `json:"sort_key,omitempty"`
}

// The types of a worksheet's items (codalab/lib/worksheet_util.py: WORKSHEET_ITEM_TYPES).
const (
	ItemMarkup    = "markup"
	ItemDirective = "directive"
	ItemBundle    = "bundle"
	ItemWorksheet = "worksheet"
)

// ItemInsertion inserts items into a worksheet, in the place of others: the body of POST
// /worksheets/UUID/add-items (codalab/rest/worksheets.py: replace_items).
type ItemInsertion struct {
	// IDs are those of the items to remove.
	IDs []int64 `json:"ids"`
	// Items are the values of the new items, or the uuids of bundles to show.
	Items []string `json:"items"`
	// ItemType is the type of all new items; empty for markup.
	ItemType string `json:"item_type,omitempty"`
	// After is the sort key of the item before the new ones; nil for the worksheet's end.
	After *int64 `json:"after_sort_key,omitempty"`
}

// FileQuery asks for a value in a file of a bundle: an element of the queries of POST
// /interpret/file-genpaths (codalab/lib/worksheet_util.py: interpret_file_genpath).
type FileQuery struct {
	BundleUUID string `json:"bundle_uuid"`
	// Genpath begins with a slash, and may lead into the file: /stats.json:test/error.
	Genpath string `json:"genpath"`
	// Post is a post-function, which formats the value; nil for none.
	Post *string `json:"post"`
}

// ValueQuery asks for the values of bundles in their small result files: the body of POST /interpret/values, which
// CodaLab's own server does not have.
type ValueQuery struct {
	Bundles []string `json:"bundles"`
	// Paths are genpaths, such as /stats.json:test/error. Without any, the answer has no values, but the paths.
	Paths []string `json:"paths"`
}

// Values is the answer to a ValueQuery.
type Values struct {
	// Paths are those at which any of the bundles has a value: of the most bundles first, 500 at most.
	Paths []ValuePath `json:"paths"`
	// Values has texts by uuid and path. It lacks what is not there.
	Values map[string]map[string]string `json:"values"`
}

// ValuePath is a path at which some bundles have a value.
type ValuePath struct {
	Path    string `json:"path"`
	Bundles int    `json:"bundles"`
}
