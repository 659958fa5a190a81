package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// shown runs a manager with a presence of a name until its function is called.
func shown(t *testing.T, api *client.Client, loop *pilot.Manager, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	testenv.Must(t, (&manager{}).present(api, loop, name))
	go func() { done <- runPresent(ctx, loop) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// awaitStatus waits until the server tells a bundle's owner a text.
func awaitStatus(t *testing.T, api *client.Client, uuid, text string) {
	t.Helper()
	var status string
	testenv.Await(t, "the status of "+uuid+" has "+text, func() bool {
		b, err := api.Bundle(t.Context(), uuid)
		testenv.Must(t, err)
		status = b.Metadata.String("staged_status")
		return strings.Contains(status, text)
	}, &status)
}

// refusingSlurm is a Slurm that refuses all submissions.
type refusingSlurm struct{ slurmbatch.Slurm }

func (refusingSlurm) Submit(_ context.Context, r sbatch.Request) (sbatch.JobID, error) {
	return 0, slurmtest.SubmitError(r.Name, "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", 1)
}

func TestOwnersAreToldWhyNoWorkerTakesTheirBundles(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	small := stage(t, api, 1, nil)[0]
	large := stage(t, api, 1, codalab.Metadata{"request_cpus": int64(8)})[0]
	loop, _ := newManager(t, web.URL, t.TempDir(), refusingSlurm{slurmtest.NewCluster(t, slurmtest.NewSite())})
	stop := shown(t, api, loop, "one")
	awaitStatus(t, api, small, "The workers take no new bundles now: no worker can be started: ")
	awaitStatus(t, api, small, "Invalid account or account/partition combination specified")
	awaitStatus(t, api, large, "No worker is large enough for 8 CPUs, 0 GPUs, 2g memory. Available resources: 1 CPUs, 0 GPUs, 2g memory.")
	stop()
	awaitStatus(t, api, small, "No worker takes bundles that name no queue")
}

func TestSecondManagerOfAServerWithTheSameNameStartsNoWorkers(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	first, _ := newManager(t, web.URL, t.TempDir(), &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())})
	stop := shown(t, api, first, "one")
	var workers []codalab.WorkerInfo
	testenv.Await(t, "the server knows the first", func() bool {
		var err error
		workers, err = api.Workers(t.Context())
		testenv.Must(t, err)
		return len(workers) == 1 && workers[0].WorkerID == "cl-worker-manager-one"
	}, &workers)
	slurm := &counted{Slurm: slurmtest.NewCluster(t, slurmtest.NewSite())}
	second, b := newManager(t, web.URL, t.TempDir(), slurm)
	second.Min = 1
	shown(t, api, second, "one")
	var conflict string
	testenv.Await(t, "the server refuses the second", func() bool {
		conflict = second.Presence.Conflict(t.Context())
		return strings.Contains(conflict, "is in use by another program")
	}, &conflict)
	pilots, err := b.Pilots(t.Context())
	if err != nil || len(pilots) > 0 {
		t.Errorf("the second has started %v, %v", pilots, err)
	}
	stop()
	testenv.Await(t, "the second works once the first has ended", func() bool {
		pilots, err = b.Pilots(t.Context())
		testenv.Must(t, err)
		return len(pilots) == 1
	}, &pilots)
}
