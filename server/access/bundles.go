package access

import (
	"context"
	"maps"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// BundlesFor returns those of these bundles that exist, and the user's permissions on them, by
// uuid. It hides offers that are not the user's, and the names, states and digests of parents that the user may not read,
// of which CodaLab's own server shows the first two (codalab/rest/schemas.py: BundleDependencySchema). If keys of metadata are named, the
// bundles have no others.
func (a Access) BundlesFor(ctx context.Context, u store.User, uuids []string, keys ...string) (map[string]store.Bundle, map[string]int, error) {
	found, err := a.Store.Bundles(ctx, uuids, keys...)
	if err != nil {
		return nil, nil, err
	}
	list := slices.Collect(maps.Values(found))
	have, err := a.BundlePermissions(ctx, u, list...)
	if err == nil && !u.Root() {
		err = a.hideParents(ctx, u, list, have)
	}
	for _, b := range list {
		if b.Offer.To != "" && !a.seesOffer(u, b, have[b.UUID]) {
			b.Offer = store.Offer{}
			found[b.UUID] = b
		}
	}
	return found, have, err
}

// hideParents hides the names, states and digests of the parents of bundles that the user may read, if the user may not read them,
// and of those that do not exist: a bundle may name any uuid as its parent. A digest confirms a guess of the contents, so
// permissions on the run do not count. have has the user's permissions on the bundles.
func (a Access) hideParents(ctx context.Context, u store.User, bundles []store.Bundle, have map[string]int) error {
	var parents []string
	for _, b := range bundles {
		for _, d := range b.Dependencies {
			if have[b.UUID] >= store.PermissionRead && have[d.ParentUUID] < store.PermissionRead {
				parents = append(parents, d.ParentUUID)
			}
		}
	}
	heads, err := a.Store.Heads(ctx, parents)
	if err != nil {
		return err
	}
	may, err := a.BundlePermissions(ctx, u, heads...)
	if err != nil {
		return err
	}
	for _, b := range bundles {
		readable := map[string]bool{}
		for i, d := range b.Dependencies {
			if max(have[d.ParentUUID], may[d.ParentUUID]) < store.PermissionRead {
				b.Dependencies[i].ParentName, b.Dependencies[i].ParentState = unseenName, ""
			} else {
				readable[d.ChildPath] = true
			}
		}
		if b.Platform != nil {
			b.Platform.Inputs = slices.DeleteFunc(b.Platform.Inputs, func(in codalab.InputDigest) bool { return !readable[in.ChildPath] })
		}
	}
	return nil
}

// ReadableHosts returns the worksheets that contain a bundle and that the user may read, by bundle.
func (a Access) ReadableHosts(ctx context.Context, u store.User, uuids []string) (map[string][]store.Worksheet, error) {
	hosts, err := a.Store.HostsOf(ctx, uuids)
	if err != nil {
		return nil, err
	}
	all := map[string]store.Worksheet{}
	for _, list := range hosts {
		for _, sheet := range list {
			all[sheet.UUID] = sheet
		}
	}
	have, err := a.WorksheetPermissions(ctx, u, slices.Collect(maps.Values(all))...)
	if err != nil {
		return nil, err
	}
	for uuid, list := range hosts {
		hosts[uuid] = slices.DeleteFunc(list, func(sheet store.Worksheet) bool { return have[sheet.UUID] < store.PermissionRead })
	}
	return hosts, nil
}

// PrivateName is the name of bundles that the user may not read.
const PrivateName = "<private>"

// unseenName is the name of parents that do not exist, or that the user may not read.
const unseenName = "<missing or private>"
