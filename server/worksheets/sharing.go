package worksheets

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/sharing"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// addWorksheetPermissions adds the permissions of groups on each worksheet.
func (s *Worksheets) addWorksheetPermissions(ctx context.Context, u store.User, uuids []string, to *present.Relations) error {
	found, err := s.config.Store.WorksheetPermissions(ctx, uuids)
	to.AddPermissions(u, "worksheet-permissions", uuids, found)
	return err
}

// setWorksheetPermissions sets the permissions of groups on worksheets (codalab/rest/worksheets.py:
// set_worksheet_permissions).
func (s *Worksheets) setWorksheetPermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return sharing.Set(w, r, s.config.Access, "worksheet", func(ctx context.Context, uuid string) error {
		_, err := s.config.Access.Changeable(ctx, u, uuid)
		return err
	}, s.config.Store.SetWorksheetPermission)
}
