package present

import (
	"context"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// UserAttributes are what other users see of a user (codalab/rest/schemas.py: UserSchema).
type UserAttributes struct {
	UserName    string  `json:"user_name"`
	FirstName   string  `json:"first_name"`
	LastName    string  `json:"last_name"`
	Affiliation string  `json:"affiliation"`
	URL         *string `json:"url"`
	DateJoined  string  `json:"date_joined"`
	AvatarID    *string `json:"avatar_id"`
	HasAccess   bool    `json:"has_access"`
}

// OwnAttributes are what a user sees of their own account (AuthenticatedUserSchema), and root of
// every account (AdminUserSchema).
type OwnAttributes struct {
	UserAttributes
	Email            string  `json:"email"`
	Notifications    int     `json:"notifications"`
	TimeQuota        int64   `json:"time_quota"`
	ParallelRunQuota int64   `json:"parallel_run_quota"`
	TimeUsed         int64   `json:"time_used"`
	DiskQuota        int64   `json:"disk_quota"`
	DiskUsed         int64   `json:"disk_used"`
	LastLogin        *string `json:"last_login"`
	IsVerified       *bool   `json:"is_verified,omitempty"`
	IsRootUser       *bool   `json:"is_root_user,omitempty"`
	ProtectedMode    *bool   `json:"protected_mode,omitempty"`
}

// LocalTime is a time as Python's "%c" writes it.
const LocalTime = "Mon Jan _2 15:04:05 2006"

func PublicAttributes(u store.User) UserAttributes {
	a := UserAttributes{
		UserName: u.Name, FirstName: u.FirstName, LastName: u.LastName, Affiliation: u.Affiliation,
		DateJoined: u.Joined.UTC().Format(LocalTime), HasAccess: true,
	}
	if u.URL != "" {
		a.URL = &u.URL
	}
	return a
}

func PrivateAttributes(u store.User) OwnAttributes {
	a := OwnAttributes{
		UserAttributes: PublicAttributes(u), Email: u.Email, Notifications: u.Notifications, TimeQuota: u.TimeQuota, TimeUsed: u.TimeUsed,
		ParallelRunQuota: u.ParallelRunQuota, DiskQuota: u.DiskQuota, DiskUsed: u.DiskUsed,
	}
	if !u.LastLogin.IsZero() {
		at := u.LastLogin.UTC().Format(LocalTime)
		a.LastLogin = &at
	}
	return a
}

// UserObject is a user as the user u sees them (codalab/rest/users.py: allowed_user_schema).
func UserObject(u, other store.User) codalab.Object {
	if !u.Root() {
		return codalab.NewObject("users", other.ID, PublicAttributes(other))
	}
	attributes, verified := PrivateAttributes(other), true
	attributes.IsVerified = &verified
	return codalab.NewObject("users", other.ID, attributes)
}

// UserObjects returns the public attributes of users, without duplicates. It skips empty ids.
func UserObjects(ctx context.Context, data *store.Store, ids []string) ([]codalab.Object, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	slices.Sort(ids)
	ids = slices.Compact(ids)
	found, err := data.UsersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	var objects []codalab.Object
	for _, id := range ids {
		if u, ok := found[id]; ok {
			objects = append(objects, codalab.NewObject("users", id, PublicAttributes(u)))
		}
	}
	return objects, nil
}
