package worksheets

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// addItemRelations adds the related objects of a worksheet's items that the query includes, bundles with the named keys of
// their metadata. It returns the owners of the
// bundles to include.
func (s *Worksheets) addItemRelations(ctx context.Context, u store.User, items []store.Item, include map[string]bool, keys []string, to *present.Relations) (owners []string, err error) {
	if include["items.bundle"] {
		bundles, bundleOwners, err := s.itemBundles(ctx, u, items, keys)
		if err != nil {
			return nil, err
		}
		to.Included = append(to.Included, bundles...)
		if include["items.bundle.owner"] {
			owners = bundleOwners
		}
	}
	if include["items.subworksheet"] {
		sheets, err := s.itemWorksheets(ctx, u, items)
		if err != nil {
			return nil, err
		}
		to.Included = append(to.Included, sheets...)
	}
	return owners, nil
}

// itemObjects returns the items of a worksheet. Brief ones name only the bundle that they show, or else the worksheet.
func itemObjects(items []store.Item, brief bool) []codalab.Object {
	objects := make([]codalab.Object, 0, len(items))
	for _, item := range items {
		o := codalab.NewObject("worksheet-items", strconv.FormatInt(item.ID, 10), codalab.WorksheetItem{
			Type: item.Type, Value: item.Value, SortKey: &item.SortKey,
		})
		bundle, subworksheet := rest.Deref(item.BundleUUID), rest.Deref(item.Subworksheet)
		o.Relationships = map[string]codalab.Relationship{}
		if !brief {
			o.Relationships["worksheet"] = codalab.ToOne("worksheets", item.WorksheetUUID)
		}
		if !brief || bundle != "" {
			o.Relationships["bundle"] = codalab.ToOne("bundles", bundle)
		}
		if !brief || bundle == "" {
			o.Relationships["subworksheet"] = codalab.ToOne("worksheets", subworksheet)
		}
		objects = append(objects, o)
	}
	return objects
}

// bundleIDs returns the uuids of the bundles that items show, in order; a bundle may be there several times.
func bundleIDs(items []store.Item) []string {
	var uuids []string
	for _, item := range items {
		if id := rest.Deref(item.BundleUUID); id != "" {
			uuids = append(uuids, id)
		}
	}
	return uuids
}

// itemWorksheets returns the worksheets that a worksheet's items show and that the user may read.
func (s *Worksheets) itemWorksheets(ctx context.Context, u store.User, items []store.Item) ([]codalab.Object, error) {
	var uuids []string
	for _, item := range items {
		if id := rest.Deref(item.Subworksheet); id != "" && !slices.Contains(uuids, id) {
			uuids = append(uuids, id)
		}
	}
	found, err := s.config.Store.WorksheetsByUUID(ctx, uuids)
	if err != nil {
		return nil, err
	}
	have, err := s.config.Access.WorksheetPermissions(ctx, u, slices.Collect(maps.Values(found))...)
	if err != nil {
		return nil, err
	}
	var objects []codalab.Object
	for _, uuid := range uuids {
		if have[uuid] >= store.PermissionRead {
			objects = append(objects, worksheetObject(found[uuid], have[uuid]))
		}
	}
	return objects, nil
}

// itemBundles returns the bundles of a worksheet's items, and their owners. A bundle that the
// user may not read appears as a private one. If keys of metadata are named, the bundles have no others.
func (s *Worksheets) itemBundles(ctx context.Context, u store.User, items []store.Item, keys []string) (objects []codalab.Object, owners []string, err error) {
	var uuids []string
	seen := map[string]bool{}
	for _, id := range bundleIDs(items) {
		if !seen[id] {
			seen[id] = true
			uuids = append(uuids, id)
		}
	}
	type part struct {
		uuids, owners []string
		objects       []codalab.Object
	}
	var parts []*part
	var group errgroup.Group
	group.SetLimit(readersOfBundles)
	for uuids := range slices.Chunk(uuids, bundlesOfAReader) {
		p := &part{uuids: uuids}
		parts = append(parts, p)
		group.Go(func() (err error) {
			p.objects, p.owners, err = s.bundleObjects(ctx, u, p.uuids, keys)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		objects, owners = append(objects, p.objects...), append(owners, p.owners...)
	}
	return objects, owners, nil
}

// A worksheet of more than bundlesOfAReader bundles is read by several goroutines, so that it does not wait for one core.
const (
	bundlesOfAReader = 500
	readersOfBundles = 4
)

// bundleObjects returns these bundles as itemBundles does.
func (s *Worksheets) bundleObjects(ctx context.Context, u store.User, uuids, keys []string) (objects []codalab.Object, owners []string, err error) {
	found, have, err := s.config.Access.BundlesFor(ctx, u, uuids, keys...)
	if err != nil {
		return nil, nil, err
	}
	for _, uuid := range uuids {
		if b, ok := found[uuid]; ok {
			objects = append(objects, present.BundleObject(b, have[uuid]))
			if have[uuid] >= store.PermissionRead {
				owners = append(owners, present.BundleOwner(b, have[uuid]))
			}
		} else {
			objects = append(objects, present.PrivateObject(uuid))
		}
	}
	return objects, owners, nil
}
