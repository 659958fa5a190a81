package slurmtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Cluster is a Controller with the machine's clock and with processes: it runs
// the scripts of its jobs as the user who runs the test. Its methods do what
// those of an [sbatch.Client] do for the site's first ordinary user. It is safe
// for concurrent use. It ends with the test, and ends its jobs.
//
// It does not enforce limits of memory, CPUs and devices.
type Cluster struct {
	site *Site
	dir  string

	background sync.WaitGroup // one goroutine for each job that runs
	mu         sync.Mutex
	controller *Controller
	timer      *time.Timer
	processes  map[launchID]*process
	closed     bool
}

type launchID struct {
	job     sbatch.JobID
	restart int
}

// NewCluster starts a cluster.
func NewCluster(tb testing.TB, site *Site) *Cluster {
	tb.Helper()
	k := &Cluster{site: site, dir: tb.TempDir(), controller: New(site), processes: map[launchID]*process{}}
	k.timer = time.AfterFunc(time.Hour, func() { k.Do(func(time.Time, *Controller) {}) })
	tb.Cleanup(k.close)
	return k
}

// Do calls f with the time and the cluster's controller, and then carries out
// the orders of the controller.
func (k *Cluster) Do(f func(now time.Time, c *Controller)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	now := time.Now()
	f(now, k.controller)
	for _, o := range k.controller.Advance(now) {
		k.carryOut(o)
	}
	if due := k.controller.Due(); due.IsZero() {
		k.timer.Stop()
	} else {
		k.timer.Reset(time.Until(due))
	}
}

// close ends the cluster's jobs and waits for their processes.
func (k *Cluster) close() {
	k.mu.Lock()
	k.closed = true
	k.timer.Stop()
	for _, p := range k.processes {
		p.kill()
	}
	k.mu.Unlock()
	k.background.Wait()
}

func (k *Cluster) uid() int {
	return k.site.Users[slices.IndexFunc(k.site.Users, func(u User) bool { return u.UID != 0 })].UID
}

// Submit submits a job.
func (k *Cluster) Submit(_ context.Context, r sbatch.Request) (id sbatch.JobID, err error) {
	k.Do(func(now time.Time, c *Controller) { id, err = c.Submit(now, k.uid(), r) })
	return id, err
}

// Try returns the refusal that a job would get, and submits none.
func (k *Cluster) Try(_ context.Context, r sbatch.Request) (err error) {
	k.Do(func(now time.Time, c *Controller) { err = c.Try(now, k.uid(), r) })
	return err
}

// Observe returns all jobs of the user.
func (k *Cluster) Observe(_ context.Context, asked time.Time) (s sbatch.Snapshot, err error) {
	k.Do(func(now time.Time, c *Controller) { s, err = c.Observe(now, k.uid()) })
	s.Asked = asked
	return s, err
}

// Describe returns the details of a job.
func (k *Cluster) Describe(_ context.Context, id sbatch.JobID) (d sbatch.Details, err error) {
	k.Do(func(now time.Time, c *Controller) { d, err = c.Describe(now, id) })
	return d, err
}

// QueryAccounting returns the jobs that are asked for and that the accounting database knows.
func (k *Cluster) QueryAccounting(_ context.Context, since time.Time, which sbatch.Which) (jobs []sbatch.Job, err error) {
	k.Do(func(now time.Time, c *Controller) { jobs, err = c.QueryAccounting(now, k.uid(), since, which) })
	return jobs, err
}

// Cancel ends the jobs of these ids; with a name, those that have it.
func (k *Cluster) Cancel(_ context.Context, name string, ids ...sbatch.JobID) (err error) {
	k.Do(func(now time.Time, c *Controller) {
		for _, id := range ids {
			err = errors.Join(err, c.Cancel(now, k.uid(), id, name))
		}
	})
	return err
}

// Partitions returns all partitions.
func (k *Cluster) Partitions(context.Context) (all []sbatch.Partition, err error) {
	k.Do(func(_ time.Time, c *Controller) { all, err = c.Partitions() })
	return all, err
}

// Associations returns the accounts of a user.
func (k *Cluster) Associations(_ context.Context, user string) (all []sbatch.Association, err error) {
	k.Do(func(now time.Time, c *Controller) { all, err = c.Associations(now, user) })
	return all, err
}
