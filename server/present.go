package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// stagedStatus is the staged_status of a run that waits for a worker.
const stagedStatus = "Bundle's dependencies are all ready. Waiting for the bundle to be assigned to a worker to be run."

// bundleObject is a bundle as a user with this permission on it sees it
// (codalab/rest/schemas.py: BundleSchema; codalab/rest/util.py: get_bundle_infos).
func bundleObject(b store.Bundle, permission int) codalab.Object {
	if permission < store.PermissionRead {
		return privateObject(b.UUID)
	}
	o := codalab.NewObject("bundles", b.UUID, shownBundle(b, permission))
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", shownOwner(b, permission))}
	return o
}

// shownBundle is a bundle as a user with this permission on it sees it, without its owner.
func shownBundle(b store.Bundle, permission int) codalab.Bundle {
	if permission < store.PermissionRead {
		return codalab.Bundle{UUID: b.UUID, Type: codalab.TypePrivate, Metadata: codalab.Metadata{"name": privateName}, PermissionSpec: permissionSpec(store.PermissionNone)}
	}
	shown := codalab.Bundle{
		UUID: b.UUID, Type: b.Type, Command: b.Command, State: b.State, StateDetails: stateDetails(b),
		Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Metadata: b.Metadata, Dependencies: namedParents(b.Dependencies),
		Permission: permission, PermissionSpec: permissionSpec(permission),
	}
	if b.Type == codalab.TypeRun || b.Type == codalab.TypeMake {
		args := commandLine(b)
		shown.Args = &args
	}
	return shown
}

// privateName is the name of bundles that the user may not read.
const privateName = "<private>"

// namedParents gives parents that are gone a name, without which cl info fails.
func namedParents(dependencies []codalab.Dependency) []codalab.Dependency {
	named := slices.Clone(dependencies)
	for i := range named {
		named[i].ParentName = cmp.Or(named[i].ParentName, "<missing>")
	}
	return named
}

// shownOwner is the owner of a bundle for a user with this permission on it; empty if the bundle
// hides it.
func shownOwner(b store.Bundle, permission int) string {
	if b.IsAnonymous && permission < store.PermissionAll {
		return ""
	}
	return b.OwnerID
}

// privateObject stands for a bundle that the user may not read, or that does not exist
// (codalab/bundles/private_bundle.py).
func privateObject(uuid string) codalab.Object {
	o := codalab.NewObject("bundles", uuid, map[string]any{
		"uuid": uuid, "bundle_type": codalab.TypePrivate, "metadata": map[string]string{"name": privateName},
		"command": nil, "state": nil, "frozen": nil, "is_anonymous": nil, "dependencies": []string{}, "args": nil,
		"permission": store.PermissionNone, "permission_spec": permissionSpec(store.PermissionNone),
	})
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", "")} // null
	return o
}

// stateDetails explains a bundle's state in a sentence (codalab/lib/bundle_util.py:
// get_bundle_state_details). It is not empty while the bundle has not ended: a worker may report an empty
// run_status.
func stateDetails(b store.Bundle) string {
	const uploading = "Bundle contents are being uploaded." // a copy of another server's bundle, of any type
	switch b.State {                                        //nolint:exhaustive // other states have fixed texts
	case codalab.StateStaged:
		return cmp.Or(b.Metadata.String("staged_status"), stagedStatus)
	case codalab.StatePreparing:
		return cmp.Or(b.Metadata.String("run_status"), preparingStatus)
	case codalab.StateRunning:
		return cmp.Or(b.Metadata.String("run_status"), "The bundle runs on a worker.")
	}
	switch b.Type {
	case codalab.TypeMake:
		return map[codalab.State]string{
			codalab.StateCreated:   "Bundle has been created but its contents have not yet been populated.",
			codalab.StateUploading: uploading,
			codalab.StateMaking:    "Bundle contents are being populated by copying its dependencies.",
			codalab.StateReady:     "Bundle contents have been successfully populated and is ready for further runs.",
			codalab.StateFailed:    "Populating bundle contents failed.",
		}[b.State]
	case codalab.TypeRun:
		return map[codalab.State]string{
			codalab.StateCreated:       "Bundle has been created but its contents have not been populated yet.",
			codalab.StateUploading:     uploading,
			codalab.StateStarting:      "Bundle has been assigned to a worker. Waiting for worker to start the bundle.",
			codalab.StateFinalizing:    "Bundle command has finished executing, cleaning up on the worker.",
			codalab.StateReady:         "Bundle command has finished executing successfully, and results have been uploaded to the server.",
			codalab.StateFailed:        "Bundle has failed.",
			codalab.StateKilled:        "Bundle was killed by the user. Bundle contents populated based on when the bundle was killed.",
			codalab.StateWorkerOffline: "The worker where the bundle is running on is offline, and the worker might or might not come back online.",
		}[b.State]
	}
	return map[codalab.State]string{
		codalab.StateCreated:   "Bundle has been created but its contents have not been uploaded yet.",
		codalab.StateUploading: uploading,
		codalab.StateReady:     "Bundle has finished uploading successfully, and is ready to be used for further runs.",
		codalab.StateFailed:    "Bundle uploading failed.",
	}[b.State]
}

// commandLine is the command that would create such a run again
// (codalab/lib/worksheet_util.py: interpret_genpath, "args").
func commandLine(b store.Bundle) string {
	words := []string{b.Type}
	anonymous := len(b.Dependencies) == 1 && b.Dependencies[0].ChildPath == ""
	for _, d := range b.Dependencies {
		word := codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}.String()
		if !anonymous {
			word = d.ChildPath + ":" + word
		}
		words = append(words, word)
	}
	if command := deref(b.Command); command != "" {
		words = append(words, quote(command))
	}
	for _, key := range slices.Sorted(maps.Keys(b.Metadata)) {
		if !strings.HasPrefix(key, "request_") {
			continue
		}
		option := "--" + strings.ReplaceAll(key, "_", "-")
		switch v := b.Metadata[key].(type) {
		case bool:
			if v {
				words = append(words, option)
			}
		case string:
			if v != "" {
				words = append(words, option, quote(v))
			}
		default:
			if b.Metadata.Float(key) != 0 {
				words = append(words, option, fmt.Sprint(v))
			}
		}
	}
	return strings.Join(words, " ")
}

// quote puts a word into double quotes if it needs them (codalab/lib/formatting.py: quote).
func quote(word string) string {
	if strings.ContainsAny(word, ` "`) {
		return `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
	}
	return word
}
