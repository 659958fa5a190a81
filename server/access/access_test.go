package access

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestPermissionIsTheOwnersAndRootsOrGranted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		user    string
		granted int
		want    int
	}{
		{"0xa", store.PermissionNone, store.PermissionAll},
		{store.RootID, store.PermissionNone, store.PermissionAll},
		{"0xb", store.PermissionNone, store.PermissionNone},
		{"0xb", store.PermissionRead, store.PermissionRead},
		{"", store.PermissionRead, store.PermissionRead}, // has not signed in
	} {
		if got := Permission(store.User{ID: test.user}, "0xa", test.granted); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// A worker asks for a thousand bundles at once, whose descriptions may be large. No other test runs meanwhile: their memory
// would count.
func TestPermissionsReadNoMetadata(t *testing.T) { //nolint:paralleltest // see above
	data, err := store.Open(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	must(t, data.AddUser(t.Context(), store.User{ID: "0xa", Name: "alice"}))
	const n, size = 100, 256 << 10
	var uuids []string
	for i := range n {
		b := store.Bundle{
			UUID: fmt.Sprintf("0x%032x", i), Type: codalab.TypeRun, OwnerID: "0xa", State: codalab.StateStaged,
			Metadata: codalab.Metadata{"description": strings.Repeat("d", size)},
		}
		must(t, data.CreateBundle(t.Context(), b, ""))
		uuids = append(uuids, b.UUID)
	}
	for name, test := range map[string]struct {
		user store.User
		want int
	}{
		"the owner":        {store.User{ID: "0xa"}, store.PermissionAll},
		"another user":     {store.User{ID: "0xb"}, store.PermissionNone},
		"a worker manager": {store.User{ID: "0xa", Program: store.ProgramToken{ID: "p", Workers: "w", Manages: true}}, store.PermissionRead},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		have, err := Access{Store: data}.Permissions(t.Context(), test.user, uuids)
		runtime.ReadMemStats(&after)
		must(t, err)
		for _, uuid := range uuids {
			if have[uuid] != test.want {
				t.Fatalf("%s has %d, want %d", name, have[uuid], test.want)
			}
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > n*size/10 {
			t.Errorf("%s: %d bytes are allocated", name, took)
		}
	}
}

var must = testenv.Must

func TestSpecOfABundleHasANameAndAPlaceFromTheEnd(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]struct {
		name string
		n    int
	}{"a": {"a", 1}, "a^": {"a", 1}, "a^3": {"a", 3}, "^2": {"", 2}, "^": {"", 1}, "a.*b^0": {"a%b", 0}, "a%": {"a%", 1}} {
		if name, n, err := parseHistory(spec); err != nil || name != want.name || n != want.n {
			t.Errorf("%s: %q %d, %v", spec, name, n, err)
		}
	}
	for _, bad := range []string{"a b", "a^b", "a^1^2", "a^1234567890", "a/b"} {
		if _, _, err := parseHistory(bad); err == nil {
			t.Errorf("%q is taken for a spec", bad)
		}
	}
}
