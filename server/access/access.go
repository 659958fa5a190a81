package access

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Access finds objects for users, with the permissions that they have.
type Access struct {
	Store *store.Store
	// Now is the clock.
	Now func() time.Time
	// Searches shares the places for searches among users; nil means no bound. Each search keeps a connection of the
	// database busy, for up to 20 seconds, and there are few of those.
	Searches *turns.Turns
	// DefaultPermission says who may read new worksheets.
	DefaultPermission store.DefaultPermission
	// SettleValues waits until searches by values find the bundles that have their contents now (package values); nil
	// does not wait.
	SettleValues func(context.Context)
}

// TakeSearch waits for a user's turn to search, and returns the function that ends it. Users who have not signed in have
// their turns together.
func (a Access) TakeSearch(ctx context.Context, u store.User) (leave func(), err error) {
	if a.Searches == nil {
		return func() {}, nil
	}
	return a.Searches.Take(ctx, turns.Party{Owner: u.ID})
}

// Permission returns a user's permission on an object: all for its owner and root, and for others what
// groups grant them (codalab/model/bundle_model.py: get_user_permissions).
func Permission(u store.User, ownerID string, granted int) int {
	if u.Root() || u.ID == ownerID {
		return store.PermissionAll
	}
	return granted
}

// BundlePermissions returns a user's permission on each of these bundles, by uuid. It reads the fields that
// store.Store.Heads returns.
func (a Access) BundlePermissions(ctx context.Context, u store.User, bundles ...store.Bundle) (map[string]int, error) {
	switch {
	case u.Bounded():
		return a.tokenPermissions(ctx, u, bundles)
	case u.IsWorker:
		return a.workerPermissions(ctx, u, bundles)
	}
	owners := map[string]string{}
	for _, b := range bundles {
		owners[b.UUID] = b.OwnerID
	}
	return a.permissions(ctx, u, store.SharedBundle, owners)
}

// tokenPermissions returns the permissions of a token that is for some workers: those of its user, but at most those of
// its workers. A worker manager also reads the runs that are staged.
func (a Access) tokenPermissions(ctx context.Context, u store.User, bundles []store.Bundle) (map[string]int, error) {
	may, err := a.BundlePermissions(ctx, AnyWorker(u), bundles...)
	if err != nil {
		return nil, err
	}
	have, err := a.workerPermissions(ctx, u, bundles)
	for _, b := range bundles {
		if u.Program.Manages && b.Type == codalab.TypeRun && b.State == codalab.StateStaged {
			have[b.UUID] = max(have[b.UUID], store.PermissionRead)
		}
	}
	for uuid := range have {
		have[uuid] = min(have[uuid], may[uuid])
	}
	return have, err
}

// workerPermissions returns the permissions of a user's workers, as far as the user's token is for them: all on the runs
// that they have, and read on their inputs and on the runs that they had at their end.
func (a Access) workerPermissions(ctx context.Context, u store.User, bundles []store.Bundle) (map[string]int, error) {
	have := make(map[string]int, len(bundles))
	var others []string
	for _, b := range bundles {
		switch {
		case b.Worker.User != u.ID || !u.MayBe(b.Worker.ID):
			have[b.UUID] = store.PermissionNone
			others = append(others, b.UUID)
		case b.State.OnWorker():
			have[b.UUID] = store.PermissionAll
		default:
			have[b.UUID] = store.PermissionRead
		}
	}
	inputs, err := a.Store.WorkerInputs(ctx, u.ID, u.MayBe, others)
	for _, uuid := range inputs {
		have[uuid] = store.PermissionRead
	}
	return have, err
}

// WorksheetPermissions returns a user's permission on each of these worksheets, by uuid. A token that is for some
// workers has none.
func (a Access) WorksheetPermissions(ctx context.Context, u store.User, worksheets ...store.Worksheet) (map[string]int, error) {
	owners := map[string]string{}
	if u.Bounded() {
		return map[string]int{}, nil
	}
	for _, w := range worksheets {
		owners[w.UUID] = w.OwnerID
	}
	return a.permissions(ctx, u, store.SharedWorksheet, owners)
}

// permissions returns a user's permissions on objects with these owners. It reads what groups grant only for
// the objects on which neither root nor the owner asks.
func (a Access) permissions(ctx context.Context, u store.User, kind store.Shared, owners map[string]string) (map[string]int, error) {
	var others []string
	have := make(map[string]int, len(owners))
	for uuid, owner := range owners {
		have[uuid] = Permission(u, owner, store.PermissionNone)
		if have[uuid] == store.PermissionNone {
			others = append(others, uuid)
		}
	}
	found, err := a.Store.Granted(ctx, kind, u.ID, others)
	maps.Copy(have, found)
	return have, err
}

// Forbidden is the refusal of a user without permission (codalab/objects/permission.py:
// _check_permissions).
func Forbidden(u store.User, kind, uuid string, have, need int) error {
	return rest.Refuse(http.StatusForbidden, "User %s does not have sufficient permissions on %s %s (have %s, need %s).",
		spellUser(u), kind, uuid, codalab.PermissionSpec(have), codalab.PermissionSpec(need))
}

func spellUser(u store.User) string {
	if u.ID == "" {
		return "who has not signed in"
	}
	return u.Name + "(" + u.ID + ")"
}

// Readable returns a bundle that the user may read.
func (a Access) Readable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return a.permitted(ctx, u, uuid, store.PermissionRead)
}

// Writable returns a bundle that the user may change.
func (a Access) Writable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return a.permitted(ctx, u, uuid, store.PermissionAll)
}

// AllWritable returns bundles that the user may change, in the order of their uuids. It refuses the first other one.
func (a Access) AllWritable(ctx context.Context, u store.User, uuids []string) ([]store.Bundle, error) {
	return a.allPermitted(ctx, u, uuids, store.PermissionAll)
}

// Permissions returns a user's permission on each of these bundles, by uuid. On one that does not exist everybody has none.
func (a Access) Permissions(ctx context.Context, u store.User, uuids []string) (map[string]int, error) {
	heads, err := a.Store.Heads(ctx, uuids)
	if err != nil {
		return nil, err
	}
	return a.BundlePermissions(ctx, u, heads...)
}

// permitted is allPermitted for one bundle.
func (a Access) permitted(ctx context.Context, u store.User, uuid string, need int) (store.Bundle, error) {
	bundles, err := a.allPermitted(ctx, u, []string{uuid}, need)
	if err != nil {
		return store.Bundle{}, err
	}
	return bundles[0], nil
}

// allPermitted returns bundles on which the user has at least the permission need, in the order of their uuids. One that
// does not exist is refused like one on which the user has none, with the same questions to the store, as CodaLab's own
// server refuses it: a refusal does not tell that a bundle exists. Root and worker accounts are told that it does not.
func (a Access) allPermitted(ctx context.Context, u store.User, uuids []string, need int) ([]store.Bundle, error) {
	found, err := a.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	bundles := make([]store.Bundle, 0, len(uuids))
	for _, uuid := range uuids {
		b, ok := found[uuid]
		if !ok {
			b = nobodys(uuid)
		}
		bundles = append(bundles, b)
	}
	permissions, err := a.BundlePermissions(ctx, u, bundles...)
	if err != nil {
		return nil, err
	}
	for _, uuid := range uuids {
		if _, ok := found[uuid]; !ok && (u.Root() || u.IsWorker) {
			return nil, rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", uuid)
		}
		if have := permissions[uuid]; have < need {
			return nil, Forbidden(u, "bundle", uuid, have, need)
		}
	}
	return bundles, nil
}

// nobodys is a bundle on which nobody has permissions.
func nobodys(uuid string) store.Bundle { return store.Bundle{UUID: uuid, OwnerID: nobody} }

// nobody is no user's id.
const nobody = "nobody"

// MayKnow reports whether a user who may not read a bundle may know that it exists. Worker accounts may, and tokens
// for some workers if their users may read it: a worker tells a run that it has lost from one that is deleted.
func (a Access) MayKnow(ctx context.Context, u store.User, b store.Bundle) (bool, error) {
	switch {
	case u.IsWorker, b.Worker.User == u.ID && u.ID != "": // the run is, or was, on a worker of the user's
		return true, nil
	case !u.Bounded():
		return false, nil
	}
	have, err := a.BundlePermissions(ctx, AnyWorker(u), b)
	return have[b.UUID] >= store.PermissionRead, err
}

// OpenWorksheet returns a worksheet on which the user has at least the permission need, and the
// permission.
func (a Access) OpenWorksheet(ctx context.Context, u store.User, uuid string, need int) (w store.Worksheet, have int, err error) {
	w, err = a.worksheet(ctx, u, uuid)
	if err != nil {
		return store.Worksheet{}, 0, err
	}
	have, err = a.CheckWorksheet(ctx, u, w, need)
	return w, have, err
}

// worksheet returns the worksheet with a uuid. One that does not exist is refused by CheckWorksheet, like one on which the
// user has no permission; root is told that it does not exist.
func (a Access) worksheet(ctx context.Context, u store.User, uuid string) (store.Worksheet, error) {
	w, err := a.Store.Worksheet(ctx, uuid)
	switch {
	case !errors.Is(err, store.ErrNotFound):
		return w, err
	case u.Root():
		return w, rest.Refuse(http.StatusNotFound, "Could not find worksheet with uuid %s", uuid)
	}
	return store.Worksheet{UUID: uuid, OwnerID: nobody}, nil
}

// CheckWorksheet returns a user's permission on a worksheet, and refuses one that is less than need.
func (a Access) CheckWorksheet(ctx context.Context, u store.User, w store.Worksheet, need int) (have int, err error) {
	permissions, err := a.WorksheetPermissions(ctx, u, w)
	if err != nil {
		return 0, err
	}
	if have = permissions[w.UUID]; have < need {
		return 0, Forbidden(u, "worksheet", w.UUID, have, need)
	}
	return have, nil
}

// Changeable returns a worksheet that the user may change and that is not frozen.
func (a Access) Changeable(ctx context.Context, u store.User, uuid string) (store.Worksheet, error) {
	w, _, err := a.OpenWorksheet(ctx, u, uuid, store.PermissionAll)
	if err != nil {
		return store.Worksheet{}, err
	}
	return w, WorksheetNotFrozen(w)
}

// WorksheetNotFrozen refuses to change a frozen worksheet.
func WorksheetNotFrozen(w store.Worksheet) error {
	if w.Frozen != nil {
		return rest.Refuse(http.StatusForbidden, "Cannot mutate frozen worksheet %s(%s).", w.UUID, w.Name)
	}
	return nil
}

// AnyWorker is the user of a token that is for some workers, without the token's bounds.
func AnyWorker(u store.User) store.User {
	u.OnlyWorker, u.Program = "", store.ProgramToken{}
	return u
}

// FullWorksheet returns the refusal of items for which a worksheet has no room, and other errors as they are.
func FullWorksheet(err error) error {
	if errors.Is(err, store.ErrFullWorksheet) {
		return rest.Refuse(http.StatusForbidden, "A worksheet may have %d items, and this one has no room: use another worksheet, or remove items first.", store.MostItems)
	}
	return err
}

// BundleNotFrozen refuses to change a frozen bundle.
func BundleNotFrozen(b store.Bundle) error {
	if b.Frozen != nil {
		return rest.Refuse(http.StatusForbidden, "Cannot mutate frozen bundle %s(%s).", b.UUID, b.Metadata.String("name"))
	}
	return nil
}
