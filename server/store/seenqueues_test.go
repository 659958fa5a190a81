package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestSeenQueuesAreThoseThatWereSetLast(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		queue := func(user, worker string, seen time.Time) store.SeenQueue {
			return store.SeenQueue{UserID: user, WorkerID: worker, GroupUUID: "0xg", CheckIn: `{"tag":"` + worker + `"}`, Seen: store.Time{Time: seen}}
		}
		must(t, s.SetSeenQueues(ctx, []store.SeenQueue{queue("0xme", "cpu", now), queue("0xme", "old", now)}))
		later := now.Add(time.Minute)
		// A user may have gone since the queue checked in.
		must(t, s.SetSeenQueues(ctx, []store.SeenQueue{queue("0xme", "gpu", now), queue("0xme", "cpu", later), queue("0xgone", "x", now)}))
		want := []store.SeenQueue{queue("0xme", "cpu", later), queue("0xme", "gpu", now)}
		got, err := s.SeenQueues(ctx)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		must(t, s.SetSeenQueues(ctx, nil))
		if got, err := s.SeenQueues(ctx); err != nil || len(got) > 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
