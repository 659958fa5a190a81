package staging_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/staging"
)

// The group of a cache may read what anyone may read on the server, and of the
// rest nothing, also while the server does not say which it is.
func TestOnlyWhatAnyoneMayReadIsSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		public func(context.Context, string) (bool, error)
		shared bool
	}{
		"public":        {func(context.Context, string) (bool, error) { return true, nil }, true},
		"not public":    {func(context.Context, string) (bool, error) { return false, nil }, false},
		"nobody knows":  {func(context.Context, string) (bool, error) { return true, errors.New("away") }, false},
		"nobody to ask": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &directoryServer{bundles: write(t, map[string]string{run1 + "/d/f": "secret"})}
			content, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Group: true})
			if err != nil {
				t.Fatal(err)
			}
			s := &staging.Stager{Contents: server, Cache: content, Public: test.public}
			source, err := s.Dependency(t.Context(), codalab.Dependency{ParentUUID: run1, ChildPath: "in"})
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Dir(source))
			if err != nil {
				t.Fatal(err)
			}
			if shared := info.Mode().Perm()&0o050 == 0o050; shared != test.shared || info.Mode().Perm()&0o007 != 0 {
				t.Errorf("mode %v, want shared %v", info.Mode(), test.shared)
			}
		})
	}
}
