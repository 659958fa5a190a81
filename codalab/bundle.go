package codalab

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Bundle is a bundle as the server shows it: the attributes of a JSON:API object of type
// "bundles".
type Bundle struct {
	UUID           string       `json:"uuid"`
	Type           string       `json:"bundle_type"`
	Command        *string      `json:"command"`
	State          State        `json:"state"`
	StateDetails   string       `json:"state_details,omitempty"`
	Frozen         *string      `json:"frozen"`
	IsAnonymous    bool         `json:"is_anonymous"`
	Metadata       Metadata     `json:"metadata"`
	Dependencies   []Dependency `json:"dependencies"`
	Args           *string      `json:"args"`
	Permission     int          `json:"permission"`
	PermissionSpec string       `json:"permission_spec"`
	OwnerID        string       `json:"owner_id,omitempty"`

	// OfferedTo is the id of the user to whom the owner offers the bundle, and OfferedUntil the Unix time at which
	// the offer ends. Those who may change the bundle see them, and that user. CodaLab's own server has no offers.
	OfferedTo    string `json:"offered_to,omitempty"`
	OfferedUntil int64  `json:"offered_until,omitempty"`

	// Cost is a run's cost; nil if no worker has reported one. CodaLab's own server has none.
	Cost *Cost `json:"cost,omitempty"`

	// Platform is that of a run's command; nil if neither a worker nor an import has told it. A server shows its Inputs to
	// those who may read these inputs: readers of the run, and others who may change it, need not be among them.
	Platform *Platform `json:"platform,omitempty"`
}

// Dependency is one input of a bundle: the target ParentUUID/ParentPath. The child sees it at
// ChildPath in its directory; a ChildPath that begins with a slash is a path in its container.
type Dependency struct {
	ChildUUID   string `json:"child_uuid,omitempty"`
	ChildPath   string `json:"child_path"`
	ParentUUID  string `json:"parent_uuid"`
	ParentPath  string `json:"parent_path"`
	ParentName  string `json:"parent_name,omitempty"`
	ParentState State  `json:"parent_state,omitempty"`
}

// NewBundle is a bundle to create: the attributes of POST /bundles.
type NewBundle struct {
	// UUID is chosen by the server if it is empty.
	UUID    string  `json:"uuid,omitempty"`
	Type    string  `json:"bundle_type"`
	Command *string `json:"command,omitempty"`
	// Metadata has every key of MetadataKeys that is neither generated nor optional.
	Metadata Metadata `json:"metadata"`
	// Dependencies need ChildPath, ParentUUID and ParentPath.
	Dependencies []Dependency `json:"dependencies,omitzero"`
	// Platform is that of a run that is copied from elsewhere, and waits for its contents. CodaLab's own server ignores it.
	Platform *Platform `json:"platform,omitempty"`
}

// BundleEdit is a change of a bundle: the attributes of PATCH /bundles. Absent fields and keys of metadata
// stay as they are.
type BundleEdit struct {
	// Type is the bundle's type, which cannot change.
	Type     string   `json:"bundle_type,omitempty"`
	Metadata Metadata `json:"metadata,omitempty"`
	// Frozen is a time, or null to unfreeze the bundle.
	Frozen      json.RawMessage `json:"frozen,omitempty"`
	IsAnonymous *bool           `json:"is_anonymous,omitempty"`
}

// BundleAction kills a bundle, or writes a file of a running one: the attributes of POST /bundle-actions
// (codalab/rest/schemas.py: BundleActionSchema).
type BundleAction struct {
	// Type is MessageKill or MessageWrite.
	Type MessageType `json:"type"`
	UUID string      `json:"uuid"`
	// Subpath is the file to write, and String its text.
	Subpath *string `json:"subpath,omitempty"`
	String  *string `json:"string,omitempty"`
}

// Metadata is a bundle's metadata, keyed and typed as on the wire. Its accessors return the
// zero value for a key that is absent or has a value of another type. MetadataKeys lists the
// keys.
type Metadata map[string]any

// String returns the text under key.
func (m Metadata) String(key string) string {
	s, _ := m[key].(string)
	return s
}

// Only returns the metadata under some keys.
func (m Metadata) Only(keys ...string) Metadata {
	some := make(Metadata, len(keys))
	for _, k := range keys {
		if value, ok := m[k]; ok {
			some[k] = value
		}
	}
	return some
}

// Int returns the number under key as an integer, in whatever form the server wrote it.
func (m Metadata) Int(key string) int64 {
	switch n := m[key].(type) {
	case float64:
		whole, _ := truncate(n)
		return whole
	case int:
		return int64(n)
	case int64:
		return n
	case json.Number:
		return parseNumber(n.String()).value
	case string:
		return parseNumber(n).value
	}
	return 0
}

// Float returns the number under key, in whatever form the server wrote it.
func (m Metadata) Float(key string) float64 {
	switch n := m[key].(type) {
	case float64:
		return n
	case json.Number:
		f, _ := n.Float64() // 0 if it is no number
		return f
	case string:
		f, _ := strconv.ParseFloat(n, 64) // 0 if it is no number
		return f
	}
	return float64(m.Int(key))
}

// Bool returns the truth value under key.
func (m Metadata) Bool(key string) bool {
	b, _ := m[key].(bool)
	return b
}

// Strings returns the list of texts under key.
func (m Metadata) Strings(key string) []string {
	switch list := m[key].(type) {
	case []string:
		return list
	case []any:
		out := make([]string, 0, len(list))
		for _, v := range list {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// Has reports whether key is set.
func (m Metadata) Has(key string) bool {
	_, ok := m[key]
	return ok
}

// Time returns the time under key, which is stored in Unix seconds; the zero time if it is not
// set.
func (m Metadata) Time(key string) time.Time {
	if s := m.Int(key); s != 0 {
		return time.Unix(s, 0)
	}
	return time.Time{}
}

// uploadFailed begins the failure message of a bundle after a failed upload
// (codalab/rest/bundles.py: _update_bundle_contents_blob).
const uploadFailed = "Upload failed: "

// UploadFailure returns the error of a failed upload of the bundle's contents; empty if none
// failed. When an upload fails, CodaLab's own server discards the contents and makes the
// bundle failed, even a run that its worker still reports. The message stays after a later
// upload succeeds, and a run with the message ends as failed.
func (b Bundle) UploadFailure() string {
	if message := b.Metadata.String("failure_message"); strings.HasPrefix(message, uploadFailed) {
		return message
	}
	return ""
}

// Unready are the inputs for which a run waits that has not begun, as far as the reader may know their states.
func (b Bundle) Unready() []Dependency {
	if b.State != StateCreated || b.Type != TypeRun && b.Type != TypeMake {
		return nil
	}
	var waits []Dependency
	for _, d := range b.Dependencies {
		if d.ParentState != "" && d.ParentState != StateReady {
			waits = append(waits, d)
		}
	}
	return waits
}

// Details is a sentence with the reason for the bundle's wait or failure; empty for none.
func (b Bundle) Details() string {
	if waits := b.Unready(); len(waits) > 0 {
		var texts []string
		for _, d := range waits {
			texts = append(texts, d.ParentName+"("+d.ParentUUID+"), which is "+string(d.ParentState))
		}
		return "Waiting for its inputs: " + strings.Join(texts, "; ") + "."
	}
	if failure := b.Metadata.String("failure_message"); failure != "" && (b.State == StateFailed || b.State == StateKilled) {
		return failure
	}
	return b.StateDetails
}
