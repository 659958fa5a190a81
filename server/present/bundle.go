package present

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// BundleObject is a bundle as a user with this permission on it sees it
// (codalab/rest/schemas.py: BundleSchema; codalab/rest/util.py: get_bundle_infos).
func BundleObject(b store.Bundle, permission int) codalab.Object {
	switch {
	case permission < store.PermissionRead && b.Offer.To != "":
		return offeredObject(b)
	case permission < store.PermissionRead:
		return PrivateObject(b.UUID)
	}
	o := codalab.NewObject("bundles", b.UUID, Bundle(b, permission))
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", BundleOwner(b, permission))}
	return o
}

// Bundle is a bundle as a user with this permission on it sees it, without its owner. A bundle with a part of its metadata
// has no details of its state and no arguments, which need the rest.
func Bundle(b store.Bundle, permission int) codalab.Bundle {
	if permission < store.PermissionRead {
		return codalab.Bundle{UUID: b.UUID, Type: codalab.TypePrivate, Metadata: codalab.Metadata{"name": access.PrivateName}, PermissionSpec: codalab.PermissionSpec(store.PermissionNone)}
	}
	shown := codalab.Bundle{
		UUID: b.UUID, Type: b.Type, Command: b.Command, State: b.State,
		Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Metadata: b.Metadata, Dependencies: namedParents(b.Dependencies),
		Permission: permission, PermissionSpec: codalab.PermissionSpec(permission),
	}
	if !b.Partial {
		shown.StateDetails = stored.Plan(b).Details()
	}
	if !b.Partial && (b.Type == codalab.TypeRun || b.Type == codalab.TypeMake) {
		args := CommandLine(b)
		shown.Args = &args
	}
	if b.Offer.To != "" {
		shown.OfferedTo, shown.OfferedUntil = b.Offer.To, OfferEnds(b.Offer)
	}
	shown.Cost, shown.Platform = b.Cost, b.Platform
	return shown
}

// OfferEnds is the Unix time at which an offer ends.
func OfferEnds(o store.Offer) int64 { return plan.Offer{To: o.To, Made: o.Made.Time}.Ends().Unix() }

// offeredObject is a bundle as a user sees it who may not read it, and to whom its owner offers it: its name, its size
// and its owner.
func offeredObject(b store.Bundle) codalab.Object {
	shown := privateAttributes(b.UUID)
	shown["metadata"] = codalab.Metadata{"name": b.Metadata.String("name"), "data_size": b.DataSize}
	shown["offered_to"], shown["offered_until"] = b.Offer.To, OfferEnds(b.Offer)
	o := codalab.NewObject("bundles", b.UUID, shown)
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", b.OwnerID)}
	return o
}

// namedParents gives parents that are gone a name, without which cl info fails.
func namedParents(dependencies []codalab.Dependency) []codalab.Dependency {
	named := slices.Clone(dependencies)
	for i := range named {
		named[i].ParentName = cmp.Or(named[i].ParentName, "<missing>")
	}
	return named
}

// BundleOwner is the owner of a bundle for a user with this permission on it; empty if the bundle
// hides it.
func BundleOwner(b store.Bundle, permission int) string {
	if b.IsAnonymous && permission < store.PermissionAll {
		return ""
	}
	return b.OwnerID
}

// PrivateObject stands for a bundle that the user may not read, or that does not exist
// (codalab/bundles/private_bundle.py).
func PrivateObject(uuid string) codalab.Object {
	o := codalab.NewObject("bundles", uuid, privateAttributes(uuid))
	o.Relationships = map[string]codalab.Relationship{"owner": codalab.ToOne("users", "")} // null
	return o
}

func privateAttributes(uuid string) map[string]any {
	return map[string]any{
		"uuid": uuid, "bundle_type": codalab.TypePrivate, "metadata": map[string]string{"name": access.PrivateName},
		"command": nil, "state": nil, "frozen": nil, "is_anonymous": nil, "dependencies": []string{}, "args": nil,
		"permission": store.PermissionNone, "permission_spec": codalab.PermissionSpec(store.PermissionNone),
	}
}

// CommandLine is the command that would create such a run again
// (codalab/lib/worksheet_util.py: interpret_genpath, "args").
func CommandLine(b store.Bundle) string {
	words := []string{b.Type}
	anonymous := len(b.Dependencies) == 1 && b.Dependencies[0].ChildPath == ""
	for _, d := range b.Dependencies {
		word := codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}.String()
		if !anonymous {
			word = d.ChildPath + ":" + word
		}
		words = append(words, word)
	}
	if command := rest.Deref(b.Command); command != "" {
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
				words = append(words, option, codalab.PythonStr(v))
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
