package queues

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// rememberEvery is the pause between two writes of the last check-ins of queues. After a crash, a queue that is away is
// shown with a time that is so much too early.
const rememberEvery = time.Minute

// Restore lets the hub know the queues of the server's last life. It comes before the first run is matched with workers,
// so that no run is told that its queue is unknown.
func (s *Queues) Restore(ctx context.Context) {
	written, err := s.config.Store.SeenQueues(ctx)
	if err == nil {
		err = s.restore(written)
	}
	failures.Log(ctx, s.config.Log, "read the queues that were there", err)
}

// Run writes down the last check-ins of queues until ctx ends. It returns ctx's error.
func (s *Queues) Run(ctx context.Context) error {
	log := s.config.Log
	var written []store.SeenQueue
	tick := time.NewTicker(rememberEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer stop()
			_, err := s.remember(last, written)
			failures.Log(last, log, "write down the queues that are there", err)
			return ctx.Err()
		case <-tick.C:
			now, err := s.remember(ctx, written)
			failures.Log(ctx, log, "write down the queues that are there", err)
			if err == nil {
				written = now
			}
		}
	}
}

// restore lets the hub know queues.
func (s *Queues) restore(queues []store.SeenQueue) error {
	for _, q := range queues {
		var in codalab.CheckIn
		if err := json.Unmarshal([]byte(q.CheckIn), &in); err != nil {
			return fmt.Errorf("read check-in of %s: %w", q.WorkerID, err)
		}
		s.config.Hub.Restore(hub.LastSeen{Worker: plan.Worker{User: q.UserID, ID: q.WorkerID}, Group: q.GroupUUID, CheckIn: in, At: q.Seen.Time})
	}
	return nil
}

// remember writes down the last check-ins of queues, unless they are written already, and returns them.
func (s *Queues) remember(ctx context.Context, written []store.SeenQueue) ([]store.SeenQueue, error) {
	var queues []store.SeenQueue
	for _, q := range s.config.Hub.SeenQueues(s.config.Now()) {
		in, err := json.Marshal(q.CheckIn)
		if err != nil {
			return nil, fmt.Errorf("write check-in of %s: %w", q.Worker.ID, err)
		}
		queues = append(queues, store.SeenQueue{
			UserID: q.Worker.User, WorkerID: q.Worker.ID, GroupUUID: q.Group, CheckIn: string(in), Seen: store.Time{Time: q.At},
		})
	}
	if reflect.DeepEqual(queues, written) {
		return queues, nil
	}
	return queues, s.config.Store.SetSeenQueues(ctx, queues)
}
