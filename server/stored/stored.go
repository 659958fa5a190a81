// Package stored turns bundles and users of the store into the values of package plan, and writes what
// plan decided back.
package stored

import (
	"context"
	"time"

	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Plan returns a stored bundle as package plan sees it.
func Plan(b store.Bundle) plan.Bundle {
	return plan.Bundle{
		UUID: b.UUID, Type: b.Type, OwnerID: b.OwnerID, State: b.State, Metadata: b.Metadata, Dependencies: b.Dependencies,
		Created: b.Created.Time, DataSize: b.DataSize, Contents: b.Contents, Entries: b.Entries, Worker: plan.Worker(b.Worker), Assigned: b.Assigned.Time,
		ChargedTime: b.ChargedTime, KillMessage: b.KillMessage, Cost: b.Cost, Platform: b.Platform,
	}
}

// Become gives a stored bundle those properties that a transition may have changed.
func Become(b *store.Bundle, next plan.Bundle) {
	b.State, b.Metadata, b.DataSize, b.Contents, b.Entries = next.State, next.Metadata, next.DataSize, next.Contents, next.Entries
	b.Worker, b.Assigned = store.Worker(next.Worker), store.Time{Time: next.Assigned}
	b.ChargedTime, b.KillMessage, b.Cost, b.Platform = next.ChargedTime, next.KillMessage, next.Cost, next.Platform
}

// Change changes bundles by a transition that the server makes by itself, and returns those that exist. It notes in
// their histories what their owners should know. After an error some may have changed.
func Change(ctx context.Context, in *store.Store, now time.Time, uuids []string, next func(plan.Bundle) plan.Bundle) (map[string]store.Bundle, error) {
	return in.ChangeAll(ctx, uuids, func(b *store.Bundle) error {
		BecomeOfItself(b, next(Plan(*b)), now)
		return nil
	})
}

// BecomeOfItself is Become for a transition that no user has made. It notes in the bundle's history what its owner
// should know.
func BecomeOfItself(b *store.Bundle, next plan.Bundle, now time.Time) {
	if action, reason := next.Since(Plan(*b)); action != "" {
		b.RecordOwn(now, action, reason)
	}
	Become(b, next)
}

// Quota returns a user's quota as package plan sees it.
func Quota(u store.User) plan.Quota {
	return plan.Quota{
		Time: u.TimeQuota, TimeUsed: u.TimeUsed, Disk: u.DiskQuota, DiskUsed: u.DiskUsed,
		Entries: u.EntriesQuota, EntriesUsed: u.EntriesUsed, ParallelRuns: u.ParallelRunQuota,
	}
}

// Running returns the use of an owner's running runs as package plan sees it.
func Running(use store.RunningUse) plan.RunningUse {
	return plan.RunningUse{Disk: use.Disk, Time: use.Time}
}

// Parents returns a bundle's parents as package plan sees them.
func Parents(b plan.Bundle, parents []store.Parent) []plan.Parent {
	list := make([]plan.Parent, 0, len(parents))
	for _, p := range parents {
		readable := access.Permission(store.User{ID: b.OwnerID}, p.OwnerID, p.Granted) >= store.PermissionRead
		list = append(list, plan.Parent{UUID: p.UUID, State: p.State, Readable: readable})
	}
	return list
}
