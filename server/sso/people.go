package sso

import (
	"context"
	"errors"
	"log/slog"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// errUnknown means that a person is no user here.
var errUnknown = errors.New("the person is no user here")

// user returns the user that a person is. The first sign-in links the person: to the user with the verified e-mail
// address, which an operator or the user's CodaLab server has entered, or the user has confirmed by mail and password; to the user with the name in UsernameClaim, if the
// operator wants that; or to a new user, if the operator wants that. root and worker accounts are linked by the operator
// alone.
func (s *SSO) user(ctx context.Context, who person) (store.User, error) {
	u, err := s.config.Store.UserOfIdentity(ctx, s.provider.Issuer, who.Subject)
	if !errors.Is(err, store.ErrNotFound) {
		return u, err
	}
	identity := store.Identity{Issuer: s.provider.Issuer, Subject: who.Subject, Linked: store.Time{Time: s.config.Now()}}
	u, how, err := s.match(ctx, who)
	switch {
	case err != nil:
		return u, err
	case how != "":
		identity.UserID = u.ID
		err = s.config.Store.Link(ctx, identity)
	case s.provider.Create == nil || !mayBeNamed(who.Name):
		return u, errUnknown
	default:
		how = "new"
		u = store.User{ID: codalab.NewUUID(), Name: who.Name, Joined: identity.Linked, Notifications: 2}
		u.TimeQuota, u.DiskQuota, u.ParallelRunQuota = s.provider.Create()
		if err = s.config.Store.AddLinkedUser(ctx, u, identity); errors.Is(err, store.ErrExists) {
			return u, errUnknown // another user has the name
		}
	}
	if err == nil {
		s.config.Log.LogAttrs(ctx, slog.LevelInfo, "a user signs in by the provider for the first time",
			slog.String("user", u.Name), slog.String("subject", who.Subject), slog.String("linked_by", how))
	}
	return u, err
}

// mayBeNamed reports whether a new user may have a name.
func mayBeNamed(name string) bool {
	return codalab.IsName(name) && access.CheckNameSize(name) == nil && access.CheckSystemName(store.User{}, name) == nil
}

// match returns the user to whom a person's first sign-in is linked, and by what; an empty text if there is none.
func (s *SSO) match(ctx context.Context, who person) (u store.User, how string, err error) {
	free := func(u store.User) bool { return !u.Root() && !u.IsWorker }
	if who.Email != "" {
		found, err := s.config.Store.UsersByEmail(ctx, who.Email)
		if err != nil || len(found) == 1 && free(found[0]) {
			return firstOf(found), "email", err
		}
	}
	if s.provider.UsernameClaim == "" || s.provider.Create != nil || who.Name == "" {
		return store.User{}, "", nil
	}
	u, err = s.config.Store.User(ctx, who.Name)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (u.Name != who.Name || !free(u)):
		return store.User{}, "", nil
	}
	return u, "name", err
}

func firstOf(users []store.User) store.User {
	if len(users) == 0 {
		return store.User{}
	}
	return users[0]
}
