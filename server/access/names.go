package access

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ResolveBundle returns the uuid of the bundle that a spec names. A spec is a uuid or the
// beginning of one; a name; name^n or ^n, counted from the end of a worksheet; or
// WORKSHEET/spec (codalab/lib/canonicalize.py: get_bundle_uuid).
func (a Access) ResolveBundle(ctx context.Context, u store.User, worksheetUUID, spec string) (string, error) {
	spec = strings.TrimSpace(spec)
	if spec == "" {
		return "", rest.Refuse(http.StatusBadRequest, "Tried to expand empty bundle_spec!")
	}
	if base, name, found := strings.Cut(spec, "/"); found {
		w, err := a.ResolveWorksheet(ctx, u, base)
		if err != nil {
			return "", err
		}
		worksheetUUID, spec = w.UUID, name
	}
	switch {
	case codalab.IsUUID(spec):
		return spec, nil
	case codalab.IsUUIDPrefix(spec):
		return a.resolvePrefix(ctx, u, spec)
	}
	if worksheetUUID != "" {
		if _, _, err := a.OpenWorksheet(ctx, u, worksheetUUID, store.PermissionRead); err != nil {
			return "", err
		}
	}
	return a.resolveName(ctx, u, worksheetUUID, spec)
}

func (a Access) resolvePrefix(ctx context.Context, u store.User, prefix string) (string, error) {
	uuids, err := a.Store.BundlesByPrefix(ctx, prefix, u)
	switch {
	case err != nil:
		return "", err
	case len(uuids) == 0:
		return "", rest.Refuse(http.StatusNotFound, "uuid prefix %s doesn't match any bundles", prefix)
	case len(uuids) > 1:
		return "", rest.Refuse(http.StatusBadRequest, "More than one bundle has uuid prefix %s", prefix)
	}
	return uuids[0], nil
}

// parseHistory splits a spec "NAME^N" into its name, in which % stands for any text, and N, by
// default 1.
func parseHistory(spec string) (name string, n int, err error) {
	historyForm := regexp.MustCompile(`^([%*a-zA-Z0-9_.-]*)(?:\^([0-9]{0,9}))?$`)
	m := historyForm.FindStringSubmatch(spec)
	if m == nil {
		return "", 0, rest.Refuse(http.StatusBadRequest, "Invalid bundle_spec: %s", spec)
	}
	n = 1
	if m[2] != "" {
		n, err = strconv.Atoi(m[2])
		if err != nil {
			return "", 0, rest.Refuse(http.StatusBadRequest, "Invalid bundle_spec: %s", spec)
		}
	}
	return strings.ReplaceAll(m[1], ".*", "%"), n, nil
}

func (a Access) resolveName(ctx context.Context, u store.User, worksheetUUID, spec string) (string, error) {
	name, n, err := parseHistory(spec)
	if err != nil {
		return "", err
	}
	if strings.Contains(name, "%") {
		leave, err := a.TakeSearch(ctx, u)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	uuids, err := a.Store.BundlesOnWorksheet(ctx, u, worksheetUUID, name, max(n, 1))
	switch {
	case err != nil:
		return "", err
	case n >= 1 && n <= len(uuids):
		return uuids[n-1], nil
	case name == "":
		return "", rest.Refuse(http.StatusBadRequest, "%d bundles, index %d out of bounds", len(uuids), n)
	case len(uuids) == 0:
		return "", rest.Refuse(http.StatusNotFound, "bundle spec %s doesn't match any bundles", name)
	}
	return "", rest.Refuse(http.StatusBadRequest, "bundle spec %s matches %d bundles, index %d out of bounds", name, len(uuids), n)
}

// HomePrefix begins the name of a user's home worksheet.
const HomePrefix = "home-"

// IsHome reports whether a name looks like that of a home worksheet, in whatever case.
func IsHome(name string) bool { return strings.HasPrefix(strings.ToLower(name), HomePrefix) }

// ResolveWorksheet returns the worksheet that a spec names: a uuid or the beginning of one; a
// name; or "/" or nothing for the user's home worksheet, which it creates at its first use
// (codalab/lib/canonicalize.py: get_worksheet_uuid).
func (a Access) ResolveWorksheet(ctx context.Context, u store.User, spec string) (store.Worksheet, error) {
	spec = strings.TrimSpace(spec)
	if spec == "" || spec == "/" {
		spec = HomePrefix + u.Name
	}
	var w store.Worksheet
	var err error
	switch {
	case codalab.IsUUID(spec):
		w, err = a.worksheet(ctx, u, spec)
	case codalab.IsUUIDPrefix(spec):
		return a.worksheetByPrefix(ctx, u, spec)
	default:
		w, err = a.Store.WorksheetNamed(ctx, spec)
		if errors.Is(err, store.ErrNotFound) && u.ID != "" && spec == HomePrefix+u.Name {
			w, err = a.makeHome(ctx, u)
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return store.Worksheet{}, rest.Refuse(http.StatusNotFound, "No worksheet found with name '%s'", spec)
	}
	if err != nil {
		return store.Worksheet{}, err
	}
	if spec == HomePrefix+u.Name && w.OwnerID != u.ID {
		// What the user creates there would belong to others' groups.
		return store.Worksheet{}, rest.Refuse(http.StatusConflict, "The worksheet '%s' belongs to another user, so it cannot be your home worksheet. Ask the administrator to rename it.", spec)
	}
	_, err = a.CheckWorksheet(ctx, u, w, store.PermissionRead)
	return w, err
}

func (a Access) worksheetByPrefix(ctx context.Context, u store.User, prefix string) (store.Worksheet, error) {
	list, err := a.Store.WorksheetsByPrefix(ctx, prefix, u)
	switch {
	case err != nil:
		return store.Worksheet{}, err
	case len(list) == 0:
		return store.Worksheet{}, rest.Refuse(http.StatusNotFound, "No worksheet found with uuid starting with '%s'", prefix)
	case len(list) > 1:
		return store.Worksheet{}, rest.Refuse(http.StatusBadRequest, "More than one worksheet has uuid prefix %s", prefix)
	}
	return list[0], nil
}

// makeHome creates a user's home worksheet.
func (a Access) makeHome(ctx context.Context, u store.User) (store.Worksheet, error) {
	now := store.Time{Time: a.Now()}
	w := store.Worksheet{UUID: codalab.NewUUID(), Name: HomePrefix + u.Name, OwnerID: u.ID, Created: now, Modified: now}
	err := a.Store.AddHome(ctx, w, a.DefaultPermission)
	if errors.Is(err, store.ErrExists) { // by another request of the same user
		return a.Store.WorksheetNamed(ctx, w.Name)
	}
	return w, err
}

// mostSpecs bounds the specs of one request that have to be looked up, because a name with wildcards is compared with all
// of a worksheet. A request of 256 KiB could have 26,000 of them.
const mostSpecs = 2000

// CheckSpecs refuses too many specs.
func CheckSpecs(specs []string) error {
	n := 0
	for _, spec := range specs {
		if !codalab.IsUUID(strings.TrimSpace(spec)) {
			n++
		}
	}
	if n > mostSpecs {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A request may have %d specs that are not whole uuids, not %d", mostSpecs, n)
	}
	return nil
}

// AddWorksheets adds worksheets, which those may read whom Access.DefaultPermission names (store.Store.AddWorksheets).
func (a Access) AddWorksheets(ctx context.Context, list ...store.Worksheet) error {
	return a.Store.AddWorksheets(ctx, a.DefaultPermission, list...)
}

// ResolveBundles returns the uuids of the bundles that specs name.
func (a Access) ResolveBundles(ctx context.Context, u store.User, worksheet string, specs []string) ([]string, error) {
	if err := CheckSpecs(specs); err != nil {
		return nil, err
	}
	var uuids []string
	for _, spec := range specs {
		uuid, err := a.ResolveBundle(ctx, u, worksheet, spec)
		if err != nil {
			return nil, err
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}
