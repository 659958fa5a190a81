package main

import (
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// shownKeys returns the keys of metadata that a list of bundles with these fields shows, so that a server sends no others:
// a run has some forty, which are most of an answer. It returns nil, which means all keys, if a field is computed from
// others.
func shownKeys(fields []string) []string {
	keys := []string{"name"}
	for _, f := range fields {
		switch {
		case slices.Contains(metadataFields(), f):
			keys = append(keys, f)
		case !isFile(f) && !strings.HasPrefix(f, "dependencies/") && !slices.Contains(attributeFields(), f):
			return nil
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// attributeFields are the fields that need neither metadata nor what comes only with all of it.
func attributeFields() []string {
	return []string{
		"uuid", "id", "bundle_type", "state", "command", "frozen", "is_anonymous", "permission", "permission_spec", "dependencies",
		"summary", "owner", "owner_id", client.IncludeChildren, client.IncludePermissions, client.IncludeWorksheets,
	}
}

// keys returns the keys of metadata that a listing shows; nil means all.
func (l *listing) keys(asJSON bool, fields []string) []string {
	switch {
	case l.uuidOnly:
		return shownKeys(nil)
	case asJSON && !l.csv && !l.cmd.Flags().Changed("field"):
		return nil
	}
	return shownKeys(fields)
}
