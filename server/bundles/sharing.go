package bundles

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/sharing"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// addGroupPermissions adds the permissions of groups on each bundle.
func (s *Bundles) addGroupPermissions(ctx context.Context, u store.User, uuids []string, to *present.Relations) error {
	found, err := s.config.Store.BundlePermissions(ctx, uuids)
	to.AddPermissions(u, "bundle-permissions", uuids, found)
	return err
}

// setBundlePermissions sets the permissions of groups on bundles (codalab/rest/bundles.py:
// set_bundle_permissions).
func (s *Bundles) setBundlePermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return sharing.Set(w, r, s.config.Access, "bundle", func(ctx context.Context, uuid string) error {
		b, err := s.config.Access.Writable(ctx, u, uuid)
		if err != nil {
			return err
		}
		return access.BundleNotFrozen(b)
	}, s.config.Store.SetBundlePermission)
}
