package access

import (
	"testing"

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
