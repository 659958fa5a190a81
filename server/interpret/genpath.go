package interpret

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// entry is a bundle at its place on a worksheet.
type entry struct {
	uuid    string
	id      *int64
	sortKey *int64
	// bundle is nil if the bundle does not exist.
	bundle *Bundle
	// invalid gives a bundle that does not exist a name, which the web page needs in tables.
	invalid bool
	// brief leaves all out of the bundle in an answer but its uuid, type and state.
	brief bool
}

// size is the approximate number of bytes of the bundle in an answer.
func (e entry) size() int64 {
	const fixed, perDependency = 600, 250
	if e.bundle == nil {
		return fixed
	}
	b := e.bundle
	n := len(b.CommandText()) + len(b.StateDetails) + perDependency*len(b.Dependencies) + fixed
	for _, d := range b.Dependencies {
		n += len(d.ChildPath) + len(d.ParentPath)
	}
	if b.Args != nil {
		n += len(*b.Args)
	}
	return int64(n) + size(normal(map[string]any(b.Metadata)))
}

// target is a file genpath that is not read yet. The post-function is nil if there is none.
type target struct {
	uuid    string
	genpath string
	post    *string
}

// isFile reports whether a genpath names a file.
func isFile(genpath string) bool { return strings.HasPrefix(genpath, "/") }

// value returns the value that a genpath names; nil if there is none, and a target if it is a file
// (codalab/lib/worksheet_util.py: interpret_genpath).
func (e entry) value(genpath string) any {
	if isFile(genpath) {
		return target{uuid: e.uuid, genpath: genpath}
	}
	if e.bundle == nil {
		return e.missingValue(genpath)
	}
	deps := e.bundle.Dependencies
	if name, ok := strings.CutPrefix(genpath, "dependencies/"); ok {
		for _, d := range deps {
			if d.ChildPath == name {
				return d.Target()
			}
		}
		return codalab.None
	}
	switch genpath {
	case "dependencies":
		return codalab.DependencyList(deps)
	case "args":
		return optional(e.bundle.Args)
	case "summary":
		return summary(e.bundle.Bundle)
	case "permission":
		return codalab.PermissionSpec(e.bundle.Permission)
	case "owner":
		if e.bundle.OwnerName != "" {
			return e.bundle.OwnerName
		}
		return nil
	}
	return e.field(genpath)
}

// missingValue is a value of a bundle that does not exist.
func (e entry) missingValue(genpath string) any {
	switch {
	case genpath == "uuid":
		return e.uuid
	case genpath == "name" && e.invalid:
		return invalidName
	case genpath == "dependencies":
		return ""
	case strings.HasPrefix(genpath, "dependencies/"):
		return codalab.None
	}
	return e.itemField(genpath)
}

// itemField returns the bundle's id or sort key on the worksheet.
func (e entry) itemField(genpath string) any {
	switch {
	case genpath == "id" && e.id != nil:
		return integer(*e.id)
	case genpath == "sort_key" && e.sortKey != nil:
		return integer(*e.sortKey)
	}
	return nil
}

// field is a field of the bundle, or else of its metadata.
func (e entry) field(name string) any {
	b := e.bundle
	var value any
	switch name {
	case "uuid":
		value = b.UUID
	case "bundle_type":
		value = b.Type
	case "owner_id":
		value = nonEmpty(b.OwnerID)
	case "command":
		value = optional(b.Command)
	case "state":
		value = nonEmpty(string(b.State))
	case "state_details":
		value = nonEmpty(b.StateDetails)
	case "frozen":
		value = optional(b.Frozen)
	case "is_anonymous":
		value = b.IsAnonymous
	case "metadata":
		value = metadataDict(b.Bundle)
	case "host_worksheet":
		if b.HostWorksheet != nil {
			value = map[string]any{"uuid": b.HostWorksheet.UUID, "name": b.HostWorksheet.Name}
		}
	default:
		value = e.itemField(name)
	}
	if value != nil {
		return value
	}
	return metadataValue(b.Bundle, name, b.Metadata[name])
}

// nonEmpty is text, or nil in its place if it is empty.
func nonEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// optional is *text, or nil.
func optional(text *string) any {
	if text == nil {
		return nil
	}
	return *text
}

// metadataValue converts a metadata value to a type that post-functions accept.
func metadataValue(b codalab.Bundle, key string, value any) any {
	n, ok := value.(float64)
	if !ok {
		return normal(value)
	}
	for _, k := range codalab.MetadataKeys(b.Type) {
		if k.Key == key && k.Type == codalab.TypeFloat {
			return codalab.PythonFloat(n)
		}
	}
	return codalab.PythonNumber(n)
}

func metadataDict(b codalab.Bundle) map[string]any {
	dict := make(map[string]any, len(b.Metadata))
	for key, value := range b.Metadata {
		dict[key] = metadataValue(b, key, value)
	}
	return dict
}

// maxSummary is the length at which a summary is cut, in characters.
const maxSummary = 1024

// summary returns a sentence about a bundle's origin; nil if its type has none.
func summary(b codalab.Bundle) any {
	text, ok := b.Summary()
	switch runes := []rune(text); {
	case !ok:
		return nil
	case len(runes) > maxSummary:
		return string(runes[:maxSummary]) + "..."
	}
	return text
}
