package azurebatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// filter returns the filter of the manager's tasks. Filters of ids and states are documented for this call ("OData
// filters in Batch": List tasks).
func (b *Backend) filter() string { return "startswith(id,'" + b.prefix() + "')" }

// manyGone is the number of ended tasks from which one list is cheaper than a question for each.
const manyGone = 10

// Refresh costs one request of the account's quota.
func (b *Backend) Refresh() time.Duration { return 20 * time.Second }

// Pilots returns the manager's tasks. Its first answer needs the list of all; later ones need that of the tasks that
// have not ended, which stays short in an old job, and the end of each task that has left that list.
func (b *Backend) Pilots(ctx context.Context) ([]pilot.Pilot, error) {
	b.prepare()
	filter := b.filter()
	if b.listed {
		filter += " and state ne 'completed'"
	}
	tasks, err := b.Client.ListTasks(ctx, b.Job, filter)
	if err != nil {
		return nil, err
	}
	shown := b.ours(tasks)
	var gone []string
	for name := range b.live {
		if _, ok := shown[name]; !ok {
			gone = append(gone, name)
		}
	}
	if err := b.find(ctx, gone, shown); err != nil {
		return nil, err
	}
	b.listed = true
	return b.note(ctx, shown), nil
}

// ours returns the pilots among tasks.
func (b *Backend) ours(tasks []TaskInfo) map[string]pilot.Pilot {
	pilots := map[string]pilot.Pilot{}
	for _, t := range tasks {
		if b.IsPilot(t.ID) {
			pilots[t.ID] = pilotOf(t)
		}
	}
	return pilots
}

// find adds the pilots that have left the list of those that have not ended. One that the service no longer knows is
// not added.
func (b *Backend) find(ctx context.Context, gone []string, into map[string]pilot.Pilot) error {
	if len(gone) > manyGone {
		tasks, err := b.Client.ListTasks(ctx, b.Job, b.filter())
		if err != nil {
			return err
		}
		all := b.ours(tasks)
		for _, name := range gone {
			if p, ok := all[name]; ok {
				into[name] = p
			}
		}
		return nil
	}
	for _, name := range gone {
		t, err := b.Client.TaskInfo(ctx, b.Job, name)
		switch {
		case errors.Is(err, ErrTaskNotFound):
		case err != nil:
			return err
		default:
			into[name] = pilotOf(t)
		}
	}
	return nil
}

// lately is the time for which Pilots shows an ended pilot: as long as the token may live of one that never reached the
// server, so that a manager that begins again ends it.
const lately = pilot.CloudTokenLife

// note notes the pilots that the service shows, and returns the answer of Pilots.
func (b *Backend) note(ctx context.Context, shown map[string]pilot.Pilot) []pilot.Pilot {
	b.live = map[string]bool{}
	var pilots []pilot.Pilot
	for name, p := range shown {
		if p.Phase == pilot.Ended {
			b.ended[name] = p
			continue
		}
		b.live[name] = true
		pilots = append(pilots, p)
	}
	b.addTrouble(ctx, pilots)
	for _, p := range b.ended {
		if b.Now().Sub(p.Since) < lately {
			pilots = append(pilots, p)
		}
	}
	slices.SortFunc(pilots, func(a, c pilot.Pilot) int { return strings.Compare(a.Name, c.Name) })
	return pilots
}
