package worksheets

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/interpret"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// wholeWorksheet is a worksheet with its items, as a user with the permission have sees it.
func (s *Worksheets) wholeWorksheet(ctx context.Context, u store.User, sheet store.Worksheet, have int) (interpret.Worksheet, error) {
	whole := interpret.Worksheet{Permission: have}
	info, err := s.shownWorksheets(ctx, u, []store.Worksheet{sheet})
	if err != nil {
		return whole, err
	}
	whole.WorksheetInfo = info[sheet.UUID]
	items, err := s.config.Store.Items(ctx, sheet.UUID)
	if err != nil {
		return whole, err
	}
	if whole.Bundles, err = s.shownBundles(ctx, u, bundleIDs(items)); err != nil {
		return whole, err
	}
	if err := s.addItemsTo(ctx, u, &whole, items); err != nil {
		return whole, err
	}
	whole.GroupPermissions, err = s.shownGroups(ctx, u, sheet, have)
	return whole, err
}

// addItemsTo adds items to a worksheet, and the worksheets that they name.
func (s *Worksheets) addItemsTo(ctx context.Context, u store.User, to *interpret.Worksheet, items []store.Item) error {
	var sheets []string
	for _, item := range items {
		to.LastItemID = &item.ID
		to.Items = append(to.Items, interpret.Item{
			ID: &item.ID, SortKey: &item.SortKey, Type: item.Type, Value: item.Value,
			BundleUUID: rest.Deref(item.BundleUUID), SubworksheetUUID: rest.Deref(item.Subworksheet),
		})
		sheets = append(sheets, rest.Deref(item.Subworksheet))
	}
	found, err := s.config.Store.WorksheetsByUUID(ctx, sheets)
	if err != nil {
		return err
	}
	to.Worksheets, err = s.shownWorksheets(ctx, u, slices.Collect(maps.Values(found)))
	return err
}

// shownGroups returns the permissions of groups on a worksheet, as far as a user may see them.
func (s *Worksheets) shownGroups(ctx context.Context, u store.User, sheet store.Worksheet, have int) ([]interpret.GroupPermission, error) {
	shown := []interpret.GroupPermission{}
	if worksheetOwner(sheet, have) == "" {
		return shown, nil
	}
	found, err := s.config.Store.Permissions(ctx, store.SharedWorksheet, []string{sheet.UUID})
	for i, p := range found[sheet.UUID] {
		if u.ID != "" || p.GroupUUID == store.PublicGroup {
			shown = append(shown, interpret.GroupPermission{GroupPermission: present.GroupPermission(p), ID: int64(i + 1), GroupUUID: p.GroupUUID})
		}
	}
	return shown, err
}

// shownBundles returns bundles as a user sees them, by uuid. Those that do not exist look like those that the user may not
// read, except to root.
func (s *Worksheets) shownBundles(ctx context.Context, u store.User, uuids []string) (map[string]interpret.Bundle, error) {
	shown, err := s.bundlesWithoutHosts(ctx, u, uuids)
	if err != nil {
		return nil, err
	}
	var readable []string
	for uuid, b := range shown {
		if b.Type != codalab.TypePrivate {
			readable = append(readable, uuid)
		}
	}
	hosts, err := s.config.Access.ReadableHosts(ctx, u, readable)
	if err != nil {
		return nil, err
	}
	for uuid, list := range hosts {
		if b, ok := shown[uuid]; ok && len(list) > 0 {
			b.HostWorksheet = &codalab.WorksheetName{UUID: list[0].UUID, Name: list[0].Name}
			shown[uuid] = b
		}
	}
	return shown, nil
}

// bundlesWithoutHosts returns what shownBundles does, without the worksheets that have the bundles. Bundles with some keys of
// their metadata have neither arguments nor details of their states.
func (s *Worksheets) bundlesWithoutHosts(ctx context.Context, u store.User, uuids []string, keys ...string) (map[string]interpret.Bundle, error) {
	shown := make(map[string]interpret.Bundle, len(uuids))
	var mutex sync.Mutex
	var group errgroup.Group
	group.SetLimit(readersOfBundles)
	for part := range slices.Chunk(uuids, bundlesOfAReader) {
		group.Go(func() error {
			some, err := s.readBundles(ctx, u, part, keys)
			mutex.Lock()
			defer mutex.Unlock()
			maps.Copy(shown, some)
			return err
		})
	}
	return shown, group.Wait()
}

// readBundles returns what bundlesWithoutHosts does, by one reader.
func (s *Worksheets) readBundles(ctx context.Context, u store.User, uuids, keys []string) (map[string]interpret.Bundle, error) {
	found, have, err := s.config.Access.BundlesFor(ctx, u, uuids, keys...)
	if err != nil {
		return nil, err
	}
	var owners []string
	for uuid, b := range found {
		if have[uuid] >= store.PermissionRead {
			owners = append(owners, present.BundleOwner(b, have[uuid]))
		}
	}
	users, err := s.config.Store.UsersByID(ctx, owners)
	if err != nil {
		return nil, err
	}
	shown := make(map[string]interpret.Bundle, len(found))
	for _, uuid := range uuids {
		if _, ok := found[uuid]; !ok && uuid != "" && !u.Root() {
			shown[uuid] = interpret.Bundle{Bundle: present.Bundle(store.Bundle{UUID: uuid}, store.PermissionNone)}
		}
	}
	for uuid, b := range found {
		one := interpret.Bundle{Bundle: present.Bundle(b, have[uuid])}
		if have[uuid] >= store.PermissionRead {
			one.OwnerID = present.BundleOwner(b, have[uuid])
			one.OwnerName = users[one.OwnerID].Name
		}
		shown[uuid] = one
	}
	return shown, nil
}

// plainTime is a time as Python's isoformat writes one without a zone.
func plainTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// shownWorksheets returns worksheets as a user sees them, by uuid. It leaves out those that the user
// may not read.
func (s *Worksheets) shownWorksheets(ctx context.Context, u store.User, sheets []store.Worksheet) (map[string]interpret.WorksheetInfo, error) {
	have, err := s.config.Access.WorksheetPermissions(ctx, u, sheets...)
	if err != nil {
		return nil, err
	}
	var owners []string
	for _, sheet := range sheets {
		owners = append(owners, worksheetOwner(sheet, have[sheet.UUID]))
	}
	users, err := s.config.Store.UsersByID(ctx, owners)
	if err != nil {
		return nil, err
	}
	shown := make(map[string]interpret.WorksheetInfo, len(sheets))
	for _, sheet := range sheets {
		if have[sheet.UUID] < store.PermissionRead {
			continue
		}
		info := interpret.WorksheetInfo{Worksheet: worksheetData(sheet)}
		info.DateCreated, info.DateLastModified = plainTime(sheet.Created.Time), plainTime(sheet.Modified.Time)
		if owner, ok := users[worksheetOwner(sheet, have[sheet.UUID])]; ok {
			info.OwnerID, info.OwnerName = &owner.ID, &owner.Name
		}
		shown[sheet.UUID] = info
	}
	return shown, nil
}
