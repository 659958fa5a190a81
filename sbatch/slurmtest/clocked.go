package slurmtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Clocked is a Controller with the machine's clock. Its methods act like those of an [sbatch.Client] of the
// site's first ordinary user. It is safe for concurrent use.
type Clocked struct {
	site  *Site
	carry func(Order)

	mu         sync.Mutex
	controller *Controller
	timer      *time.Timer
	closed     bool
}

// NewClocked starts a controller. It calls carry with each of the controller's orders to the nodes, one at
// a time; carry must neither block nor call a method.
func NewClocked(site *Site, carry func(Order)) *Clocked {
	k := &Clocked{site: site, carry: carry, controller: New(site)}
	k.timer = time.AfterFunc(time.Hour, func() { k.Do(func(time.Time, *Controller) {}) })
	return k
}

// Do calls f with the time and the controller, and then passes on the controller's new orders.
func (k *Clocked) Do(f func(now time.Time, c *Controller)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	now := time.Now()
	f(now, k.controller)
	for _, o := range k.controller.Advance(now) {
		k.carry(o)
	}
	if due := k.controller.Due(); due.IsZero() {
		k.timer.Stop()
	} else {
		k.timer.Reset(time.Until(due))
	}
}

// Close ends the controller. It gives no more orders.
func (k *Clocked) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.timer.Stop()
}

func (k *Clocked) uid() int {
	return k.site.Users[slices.IndexFunc(k.site.Users, func(u User) bool { return u.UID != 0 })].UID
}

// Submit submits a job.
func (k *Clocked) Submit(_ context.Context, r sbatch.Request) (id sbatch.JobID, err error) {
	k.Do(func(now time.Time, c *Controller) { id, err = c.Submit(now, k.uid(), r) })
	return id, err
}

// Try returns the refusal that a job would get, and submits none.
func (k *Clocked) Try(_ context.Context, r sbatch.Request) (err error) {
	k.Do(func(now time.Time, c *Controller) { err = c.Try(now, k.uid(), r) })
	return err
}

// Observe returns all jobs of the user.
func (k *Clocked) Observe(_ context.Context, asked time.Time) (s sbatch.Snapshot, err error) {
	k.Do(func(now time.Time, c *Controller) { s, err = c.Observe(now, k.uid()) })
	s.Asked = asked
	return s, err
}

// Describe returns the details of a job.
func (k *Clocked) Describe(_ context.Context, id sbatch.JobID) (d sbatch.Details, err error) {
	k.Do(func(now time.Time, c *Controller) { d, err = c.Describe(now, id) })
	return d, err
}

// QueryAccounting returns the selected jobs that the accounting database knows.
func (k *Clocked) QueryAccounting(_ context.Context, since time.Time, which sbatch.Which) (jobs []sbatch.Job, err error) {
	k.Do(func(now time.Time, c *Controller) { jobs, err = c.QueryAccounting(now, k.uid(), since, which) })
	return jobs, err
}

// Cancel ends the jobs of these ids; with a name, those that have it.
func (k *Clocked) Cancel(_ context.Context, name string, ids ...sbatch.JobID) (err error) {
	k.Do(func(now time.Time, c *Controller) {
		for _, id := range ids {
			err = errors.Join(err, c.Cancel(now, k.uid(), id, name))
		}
	})
	return err
}

// Partitions returns all partitions.
func (k *Clocked) Partitions(context.Context) (all []sbatch.Partition, err error) {
	k.Do(func(_ time.Time, c *Controller) { all, err = c.Partitions() })
	return all, err
}

// Associations returns the accounts of a user.
func (k *Clocked) Associations(_ context.Context, user string) (all []sbatch.Association, err error) {
	k.Do(func(now time.Time, c *Controller) { all, err = c.Associations(now, user) })
	return all, err
}
