package bundles

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// deletion is the query of a request to delete bundles.
type deletion struct {
	force     bool // also bundles on which others depend, or which several worksheets show
	recursive bool // also the bundles that depend on them
	dataOnly  bool // only the contents
	dryRun    bool
}

func parseDeletion(q url.Values) (deletion, error) {
	var d deletion
	for name, to := range map[string]*bool{"force": &d.force, "recursive": &d.recursive, "data-only": &d.dataOnly, "dry-run": &d.dryRun} {
		var err error
		if *to, err = rest.BoolParam(q, name, false); err != nil {
			return d, err
		}
	}
	return d, nil
}

// deleteBundles deletes bundles and answers with their uuids (codalab/rest/bundles.py:
// delete_bundles).
func (s *Bundles) deleteBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	how, err := parseDeletion(r.URL.Query())
	if err != nil {
		return err
	}
	named, err := rest.ReadIDs(w, r, "bundles")
	if err != nil {
		return err
	}
	uuids, err := s.bundlesToDelete(ctx, u, named, how)
	if err != nil {
		return err
	}
	if !how.dryRun {
		if err := s.deleteAll(ctx, uuids, how.dataOnly); err != nil {
			return err
		}
	}
	return rest.WriteMeta(w, "ids", uuids)
}

// bundlesToDelete returns the bundles that a request deletes, or why it may not.
func (s *Bundles) bundlesToDelete(ctx context.Context, u store.User, named []string, how deletion) ([]string, error) {
	all, err := s.descendants(ctx, named, math.MaxInt)
	if err != nil {
		return nil, err
	}
	found, have, err := s.config.Access.BundlesFor(ctx, u, all)
	if err != nil {
		return nil, err
	}
	for _, uuid := range named {
		if err := mayDelete(u, uuid, found, have); err != nil {
			return nil, err
		}
	}
	if others := all[len(named):]; len(others) > 0 && !how.recursive {
		if !how.force {
			return nil, rest.Refuse(http.StatusBadRequest, "Can't delete bundles %s because the following bundles depend on them:\n  %s",
				strings.Join(named, " "), strings.Join(spellBundles(others, found, have), "\n  "))
		}
		all = named
	}
	if hidden := unreadable(all[len(named):], have); hidden > 0 {
		return nil, rest.Refuse(http.StatusForbidden, "Can't delete bundles that depend on %s: %s. Delete those that are yours by their names, with --force.",
			strings.Join(named, " "), spellHidden(hidden))
	}
	for _, uuid := range all[len(named):] {
		if err := mayDelete(u, uuid, found, have); err != nil {
			return nil, err
		}
	}
	hosts, err := s.config.Store.HostsOf(ctx, all)
	if err != nil {
		return nil, err
	}
	may, err := s.config.Access.WorksheetPermissions(ctx, u, slices.Concat(slices.Collect(maps.Values(hosts))...)...)
	if err != nil {
		return nil, err
	}
	for _, uuid := range all {
		if err := checkHosts(uuid, hosts[uuid], may, how.force); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mayDelete refuses a bundle that does not exist, that the user may not delete, or that is in use.
func mayDelete(u store.User, uuid string, found map[string]store.Bundle, have map[string]int) error {
	b, ok := found[uuid]
	switch {
	case !ok && u.Root():
		return rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", uuid)
	case have[uuid] < store.PermissionAll:
		return access.Forbidden(u, "bundle", uuid, have[uuid], store.PermissionAll)
	}
	return deletable(b)
}

// unreadable counts the bundles that the user may not read.
func unreadable(uuids []string, have map[string]int) (n int) {
	for _, uuid := range uuids {
		if have[uuid] < store.PermissionRead {
			n++
		}
	}
	return n
}

func spellHidden(n int) string { return fmt.Sprintf("%d of others, which you may not read", n) }

// spellBundles names bundles, and counts those that the user may not read: any user may depend on a public bundle.
func spellBundles(uuids []string, found map[string]store.Bundle, have map[string]int) []string {
	var names []string
	for _, uuid := range uuids {
		if have[uuid] >= store.PermissionRead {
			names = append(names, found[uuid].Metadata.String("name")+"("+uuid+")")
		}
	}
	if n := unreadable(uuids, have); n > 0 {
		names = append(names, spellHidden(n))
	}
	return names
}

// deletable refuses bundles that a worker has and frozen ones.
func deletable(b store.Bundle) error {
	if b.State.Busy() {
		return rest.Refuse(http.StatusBadRequest, "Can't delete bundles: %s. For run bundles, kill them first. "+
			"Bundles stuck not running will eventually automatically be moved to a state where they can be deleted.", b.UUID)
	}
	return access.BundleNotFrozen(b)
}

// checkHosts refuses to delete a bundle for the worksheets that show it. may has the user's permissions
// on them. It refuses if one is frozen that the user could thaw. Without force it also refuses if there
// are several, or if one of somebody else is frozen. With force that one does not count: others may show
// a bundle that they can read, and must not keep it for ever. It names worksheets that the user may read.
func checkHosts(uuid string, hosts []store.Worksheet, may map[string]int, force bool) error {
	var all, frozen []string
	others := false
	for _, sheet := range hosts {
		name := "a worksheet that you may not read"
		if may[sheet.UUID] >= store.PermissionRead {
			name = sheet.Name + "(" + sheet.UUID + ")"
		}
		all = append(all, name)
		switch {
		case sheet.Frozen == nil:
		case may[sheet.UUID] >= store.PermissionAll:
			frozen = append(frozen, name)
		default:
			others = true
		}
	}
	switch {
	case len(frozen) > 0:
		return rest.Refuse(http.StatusBadRequest, "Can't delete bundle %s because it appears in frozen worksheets (need to delete worksheet first):\n  %s",
			uuid, strings.Join(frozen, "\n  "))
	case len(all) > 1 && !force:
		return rest.Refuse(http.StatusBadRequest, "Can't delete bundle %s because it appears in multiple worksheets (--force to override):\n  %s",
			uuid, strings.Join(all, "\n  "))
	case others && !force: // there is one worksheet, and it is frozen
		return rest.Refuse(http.StatusBadRequest, "Can't delete bundle %s because it appears in a frozen worksheet of another user (--force to override):\n  %s",
			uuid, all[0])
	}
	return nil
}

// deleteAll deletes bundles, or only their contents.
func (s *Bundles) deleteAll(ctx context.Context, uuids []string, dataOnly bool) error {
	defer s.config.Changed(uuids...)
	if !dataOnly {
		return s.config.Store.DeleteBundles(ctx, uuids, store.Time{Time: s.config.Now()}, deletable)
	}
	for _, uuid := range uuids {
		_, err := s.config.Store.Change(ctx, uuid, func(b *store.Bundle) error {
			stored.Become(b, stored.Plan(*b).Empty())
			b.Record(codalab.ActionEmptied, codalab.EventDetails{})
			return deletable(*b)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
