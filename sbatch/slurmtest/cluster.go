package slurmtest

import (
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Cluster is a Clocked with processes: it runs the scripts of its jobs as the user of the test. When the test
// ends, the cluster ends, with its jobs.
//
// It does not enforce limits of memory, CPUs and devices.
type Cluster struct {
	*Clocked

	dir        string
	background sync.WaitGroup // one goroutine for each running job
	processes  map[launchID]*process
}

type launchID struct {
	job     sbatch.JobID
	restart int
}

// NewCluster starts a cluster.
func NewCluster(tb testing.TB, site *Site) *Cluster {
	tb.Helper()
	k := &Cluster{dir: tb.TempDir(), processes: map[launchID]*process{}}
	k.Clocked = NewClocked(site, k.carryOut)
	tb.Cleanup(k.close)
	return k
}

// close ends the cluster's jobs and waits for their processes.
func (k *Cluster) close() {
	k.Close()
	k.mu.Lock()
	for _, p := range k.processes {
		p.kill()
	}
	k.mu.Unlock()
	k.background.Wait()
}
