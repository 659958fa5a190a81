package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// The permissions of CodaLab (codalab/model/tables.py: GROUP_OBJECT_PERMISSION_*).
const (
	permissionNone = 0
	permissionRead = 1
	permissionAll  = 2
)

func permissionSpec(permission int) string {
	switch permission {
	case permissionRead:
		return "read"
	case permissionAll:
		return "all"
	}
	return "none"
}

// bundlePermission returns a user's permission on a bundle: all for its owner and root, none
// for others.
func bundlePermission(u store.User, ownerID string) int {
	if u.Root() || u.ID == ownerID {
		return permissionAll
	}
	return permissionNone
}

func worksheetPermission(u store.User, w store.Worksheet) int {
	if u.Root() || u.ID == w.OwnerID {
		return permissionAll
	}
	return min(w.Public, permissionRead)
}

// forbidden is the refusal of a user without permission (codalab/objects/permission.py:
// _check_permissions).
func forbidden(u store.User, kind, uuid string, have, need int) error {
	return refuse(http.StatusForbidden, "User %s(%s) does not have sufficient permissions on %s %s (have %s, need %s).",
		u.Name, u.ID, kind, uuid, permissionSpec(have), permissionSpec(need))
}

// readable returns a bundle that the user may read.
func (s *Server) readable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return s.permitted(ctx, u, uuid, permissionRead)
}

// writable returns a bundle that the user may change.
func (s *Server) writable(ctx context.Context, u store.User, uuid string) (store.Bundle, error) {
	return s.permitted(ctx, u, uuid, permissionAll)
}

func (s *Server) permitted(ctx context.Context, u store.User, uuid string, need int) (store.Bundle, error) {
	b, err := s.Store.Bundle(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		return store.Bundle{}, refuse(http.StatusNotFound, "Could not find bundle with uuid %s", uuid)
	}
	if err != nil {
		return store.Bundle{}, err
	}
	if have := bundlePermission(u, b.OwnerID); have < need {
		return store.Bundle{}, forbidden(u, "bundle", uuid, have, need)
	}
	return b, nil
}

// openWorksheet returns a worksheet on which the user has the permission need.
func (s *Server) openWorksheet(ctx context.Context, u store.User, uuid string, need int) (store.Worksheet, error) {
	w, err := s.Store.Worksheet(ctx, uuid)
	if errors.Is(err, store.ErrNotFound) {
		return store.Worksheet{}, refuse(http.StatusNotFound, "No worksheet found with uuid '%s'", uuid)
	}
	if err != nil {
		return store.Worksheet{}, err
	}
	if have := worksheetPermission(u, w); have < need {
		return store.Worksheet{}, forbidden(u, "worksheet", uuid, have, need)
	}
	return w, nil
}
