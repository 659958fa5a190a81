package terminal

import (
	"context"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// info is bundle_cli.py: do_info_command, which in the page's terminal opens the bundles' pages.
func info(ctx context.Context, s *session, g given) error {
	uuids, err := s.bundles(ctx, g.arguments)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		s.do("openBundle", uuid)
	}
	return nil
}

// findWorksheets is bundle_cli.py: do_wls_command.
func findWorksheets(ctx context.Context, s *session, g given) error {
	found, err := s.SearchWorksheets(ctx, g.arguments...)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		s.print("No worksheets found.")
		return nil
	}
	refs := map[string]any{}
	var rows [][]string
	for _, w := range found {
		short := shortUUID(w.UUID)
		refs[short] = map[string]string{"type": "worksheet", "uuid": w.UUID, "name": w.Name}
		groups := make([]string, 0, len(w.GroupPermissions))
		for _, p := range w.GroupPermissions {
			groups = append(groups, p.GroupName+":"+p.PermissionSpec)
		}
		rows = append(rows, []string{short, w.Name, userName(w.Owner), strings.Join(groups, ",")})
	}
	s.table([]string{"uuid", "name", "owner", "permissions"}, rows)
	s.result = map[string]any{"refs": refs}
	return nil
}

// shortUUID is the beginning of a uuid, of which the page makes a link (bundle_cli.py: create_reference_map).
func shortUUID(uuid string) string { return uuid[:min(len(uuid), 8)] }

// userName is the name of a user; empty for none.
func userName(u *codalab.User) string {
	if u == nil {
		return ""
	}
	return u.UserName
}

// offer is bundle_cli.py: do_chown_command.
func offer(ctx context.Context, s *session, g given) error {
	uuids, err := s.bundles(ctx, g.arguments[1:])
	if err != nil {
		return err
	}
	to, err := s.UserByID(ctx, g.arguments[0])
	if err != nil {
		return err
	}
	changes := make([]client.BundleChange, 0, len(uuids))
	for _, uuid := range uuids {
		changes = append(changes, client.BundleChange{UUID: uuid, Owner: to.ID})
	}
	changed, err := s.UpdateBundles(ctx, changes...)
	if err != nil {
		return err
	}
	s.print(uuids...)
	offered := 0
	for _, b := range changed {
		if b.OfferedTo == to.ID {
			offered++
		}
	}
	if offered > 0 {
		s.print(fmt.Sprintf("Offered to %s, who becomes the owner by accepting: cl offers accept", to.UserName))
	}
	return nil
}
