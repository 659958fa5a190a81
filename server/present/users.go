package present

import (
	"context"
	"maps"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// LocalTime is a time as Python's "%c" writes it.
const LocalTime = "Mon Jan _2 15:04:05 2006"

// PublicUser returns a user as other users see them (codalab/rest/schemas.py: UserSchema).
func PublicUser(u store.User) codalab.User {
	shown := codalab.User{
		ID: u.ID, UserName: u.Name, FirstName: &u.FirstName, LastName: &u.LastName, Affiliation: &u.Affiliation,
		DateJoined: u.Joined.UTC().Format(LocalTime), HasAccess: true,
	}
	if u.URL != "" {
		shown.URL = &u.URL
	}
	if u.Avatar != "" {
		shown.AvatarID = &u.Avatar
	}
	return shown
}

// PrivateUser returns a user as they see themselves (AuthenticatedUserSchema), and as root sees them
// (AdminUserSchema).
func PrivateUser(u store.User) codalab.User {
	shown := PublicUser(u)
	shown.Account = &codalab.Account{
		Email: u.Email, Notifications: u.Notifications, TimeQuota: u.TimeQuota, TimeUsed: u.TimeUsed,
		ParallelRunQuota: u.ParallelRunQuota, DiskQuota: u.DiskQuota, DiskUsed: u.DiskUsed,
		EntriesQuota: u.EntriesQuota, EntriesUsed: u.EntriesUsed,
	}
	if !u.LastLogin.IsZero() {
		at := u.LastLogin.UTC().Format(LocalTime)
		shown.LastLogin = &at
	}
	return shown
}

// UserObject returns a user as the user u sees them (codalab/rest/users.py: allowed_user_schema).
func UserObject(u, other store.User) codalab.Object {
	if !u.Root() {
		return codalab.NewObject("users", other.ID, PublicUser(other))
	}
	shown := PrivateUser(other)
	shown.IsVerified = new(true)
	return codalab.NewObject("users", other.ID, shown)
}

// UserObjects returns users as other users see them, without duplicates. It skips empty ids.
func UserObjects(ctx context.Context, data *store.Store, ids []string) ([]codalab.Object, error) {
	found, err := data.UsersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	var objects []codalab.Object
	for _, id := range slices.Sorted(maps.Keys(found)) {
		objects = append(objects, codalab.NewObject("users", id, PublicUser(found[id])))
	}
	return objects, nil
}
