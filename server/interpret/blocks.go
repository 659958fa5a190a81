package interpret

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The blocks of a worksheet as clients read them (codalab/rest/worksheet_block_schemas.py). Fields that
// the original leaves out are left out.

// head begins every block.
type head struct {
	Mode string `json:"mode"`
	// IsRefined is set once the block's files are read.
	IsRefined bool `json:"is_refined,omitempty"`
}

func (h *head) refine() { h.IsRefined = true }

// block is one block; all blocks embed head.
type block interface{ refine() }

type markupBlock struct {
	head
	lines    []string
	IDs      []*int64 `json:"ids,omitempty"`
	SortKeys []*int64 `json:"sort_keys,omitempty"`
	Error    bool     `json:"error,omitempty"`
}

func newMarkup(text string) *markupBlock {
	return &markupBlock{head: head{Mode: "markup_block"}, lines: []string{text}}
}

// MarshalJSON joins the lines.
func (m *markupBlock) MarshalJSON() ([]byte, error) {
	type fields markupBlock
	return encode(struct {
		*fields
		Text string `json:"text"`
	}{(*fields)(m), strings.Join(m.lines, "\n")})
}

func newError(text string) *markupBlock {
	m := newMarkup(text)
	m.Error = true
	return m
}

// encode writes a value in JSON.
func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode worksheet: %w", err)
	}
	return data, nil
}

// status is the state of reading a block's files.
type status struct {
	Code         string `json:"code"`
	ErrorMessage string `json:"error_message"`
}

const (
	codeUnknown  = "unknown"
	codeBriefly  = "briefly_loaded"
	codeReady    = "ready"
	codeNotFound = "not_found"
)

// bundlesSpec is the bundles that a block shows. An info is nil if the client did not ask for it.
type bundlesSpec struct {
	BundleInfos []*bundleInfo `json:"bundle_infos"`
	FetchStatus status        `json:"fetch_status"`
}

func newSpec(entries ...entry) bundlesSpec {
	spec := bundlesSpec{FetchStatus: status{Code: codeReady}}
	for _, e := range entries {
		spec.BundleInfos = append(spec.BundleInfos, &bundleInfo{entry: e})
	}
	return spec
}

// keep removes the bundles that are not among uuids. It reports whether any is left.
func (s *bundlesSpec) keep(uuids map[string]bool) bool {
	left := false
	for i, info := range s.BundleInfos {
		if uuids[info.uuid] {
			left = true
		} else {
			s.BundleInfos[i] = nil
		}
	}
	return left
}

// withBundles is a block that shows bundles.
type withBundles interface {
	block
	spec() *bundlesSpec
}

func (s *bundlesSpec) spec() *bundlesSpec { return s }

// tableBlock is a table with a row for each bundle, or the record of one bundle.
type tableBlock struct {
	head
	bundlesSpec  `json:"bundles_spec"`
	Status       status           `json:"status"`
	Header       []string         `json:"header"`
	Rows         []map[string]any `json:"rows"`
	SortKeys     []*int64         `json:"sort_keys"`
	FirstIndex   int              `json:"first_bundle_source_index"`
	UsingSchemas []string         `json:"using_schemas"`
}

// noRows is an empty list. CodaLab's web page copies the rows of each block with a bundle that goes on, and gives up the
// worksheet if a block has none (frontend: Worksheet.js, reloadWorksheet). CodaLab's own server leaves them out.
type noRows struct {
	Rows [0]struct{} `json:"rows"`
}

// fileBlock shows the first lines of a file, or an image.
type fileBlock struct {
	head
	noRows
	bundlesSpec   `json:"bundles_spec"`
	Status        status `json:"status"`
	TargetGenpath string `json:"target_genpath"`
	uuid          string
}

type contentsBlock struct {
	fileBlock
	MaxLines int `json:"max_lines"`
	// Lines is nil if there is no file.
	Lines []string `json:"lines"`
}

type imageBlock struct {
	fileBlock
	// ImageData is in base 64; nil if there is no file.
	ImageData *string `json:"image_data"`
	Width     *int    `json:"width,omitempty"`
	Height    *int    `json:"height,omitempty"`
}

type graphBlock struct {
	head
	noRows
	bundlesSpec  `json:"bundles_spec"`
	Trajectories []*trajectory `json:"trajectories"`
	MaxLines     int           `json:"max_lines"`
	XLabel       *string       `json:"xlabel,omitempty"`
	YLabel       *string       `json:"ylabel,omitempty"`
}

// trajectory is one line of a graph.
type trajectory struct {
	BundleUUID    string `json:"bundle_uuid"`
	DisplayName   any    `json:"display_name,omitempty"`
	TargetGenpath string `json:"target_genpath"`
	// Points are the file's lines, split at tabs; nil if there is no file.
	Points [][]string `json:"points,omitempty"`
}

type schemaBlock struct {
	head
	Header     []string    `json:"header"`
	SchemaName string      `json:"schema_name"`
	FieldRows  []schemaRow `json:"field_rows"`
	SortKeys   []*int64    `json:"sort_keys"`
	IDs        []*int64    `json:"ids"`
}

type schemaRow struct {
	Field   string  `json:"field"`
	Genpath string  `json:"generalized-path"`
	Post    *string `json:"post-processor"`
	From    *string `json:"from_schema_name"`
}

type subworksheetsBlock struct {
	head
	Infos    []subworksheet `json:"subworksheet_infos"`
	SortKeys []*int64       `json:"sort_keys"`
}

// subworksheet is a worksheet at its place on another one.
type subworksheet struct {
	uuid    string
	sortKey *int64
	// info is nil if the worksheet does not exist or the user may not read it.
	info *WorksheetInfo
}

// MarshalJSON writes the worksheet's attributes and its place.
func (s subworksheet) MarshalJSON() ([]byte, error) {
	if s.info == nil {
		return encode(map[string]any{"uuid": s.uuid, "sort_key": s.sortKey})
	}
	info := *s.info
	info.Tags = list(info.Tags)
	return encode(struct {
		WorksheetInfo
		SortKey *int64 `json:"sort_key"`
	}{info, s.sortKey})
}

// placeholderBlock stands for a search that is not made.
type placeholderBlock struct {
	head
	Directive string   `json:"directive"`
	SortKeys  []*int64 `json:"sort_keys"`
}

// bundleInfo is a bundle at its place on a worksheet, as clients read it.
type bundleInfo struct {
	entry
}

// MarshalJSON writes the bundle's attributes and its place.
func (i bundleInfo) MarshalJSON() ([]byte, error) {
	if i.brief {
		brief := struct {
			UUID  string        `json:"uuid"`
			Type  string        `json:"bundle_type,omitempty"`
			State codalab.State `json:"state,omitempty"`
		}{UUID: i.uuid}
		if i.bundle != nil {
			brief.Type, brief.State = i.bundle.Type, i.bundle.State
		}
		return encode(brief)
	}
	if i.bundle == nil {
		missing := map[string]any{"uuid": i.uuid, "sort_key": i.sortKey}
		if i.id != nil {
			missing["id"] = *i.id
		}
		if i.invalid {
			missing["metadata"] = map[string]string{"name": invalidName}
		}
		return encode(missing)
	}
	b := i.bundle.Bundle
	if b.Dependencies == nil {
		b.Dependencies = []codalab.Dependency{}
	}
	return encode(struct {
		codalab.Bundle
		State          any                    `json:"state"`
		StateDetails   string                 `json:"state_details"`
		PermissionSpec string                 `json:"permission_spec,omitempty"` // left out
		OwnerID        any                    `json:"owner_id"`
		Location       *string                `json:"location"`
		HostWorksheet  *codalab.WorksheetName `json:"host_worksheet,omitempty"`
		ID             *int64                 `json:"id,omitempty"`
		SortKey        *int64                 `json:"sort_key"`
	}{
		Bundle: b, State: nonEmpty(string(b.State)), StateDetails: b.StateDetails, OwnerID: nonEmpty(b.OwnerID),
		HostWorksheet: i.bundle.HostWorksheet, ID: i.id, SortKey: i.sortKey,
	})
}

const invalidName = "<invalid>"
