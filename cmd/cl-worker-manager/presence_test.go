package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
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
	testenv.Must(t, api.SetSecret(t.Context(), "A", "a"))
	secret := stage(t, api, 1, codalab.Metadata{codalab.SecretsKey: []string{"A"}})[0]
	loop, _ := newManager(t, web.URL, t.TempDir(), refusingSlurm{slurmtest.NewCluster(t, slurmtest.NewSite())})
	stop := shown(t, api, loop, "one")
	awaitStatus(t, api, small, "The workers take no new bundles now: no worker can be started: ")
	awaitStatus(t, api, small, "Invalid account or account/partition combination specified")
	awaitStatus(t, api, secret, "The workers take no new bundles now: no worker can be started: ") // its workers may have secrets
	awaitStatus(t, api, large, "No worker is large enough for 8 CPUs, 0 GPUs, 2g memory. Available resources: 1 CPU, 0 GPUs, 2g memory.")
	stop()
	awaitStatus(t, api, small, "No worker takes bundles that name no queue")
}

// eager is a backend that may be asked often.
type eager struct{ pilot.Backend }

func (eager) Refresh() time.Duration { return 100 * time.Millisecond }

// TestOwnersAreToldWhyAWSStartsNoWorker has a queue without instances of GPUs: AWS leaves the job RUNNABLE for ever, and tells
// the reason in its statusReason.
func TestOwnersAreToldWhyAWSStartsNoWorker(t *testing.T) {
	t.Parallel()
	web := startServer(t, filepath.Join(t.TempDir(), "server"))
	api := connectAnn(t, web.URL)
	gpu := stage(t, api, 1, codalab.Metadata{"request_gpus": int64(1)})[0]
	cloud := awstest.New(t, time.Now)
	cloud.Begun, cloud.Stuck = func(*awstest.Job) []string { return nil }, "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is higher than that can be met by the CE(s) attached to the job queue."
	b := &awsbatch.Backend{
		Client: awsbatch.Client{Region: awstest.Region, Batch: cloud.Client()},
		Queue:  "codalab-batch-cpu", Mark: "codalab", Now: time.Now,
		Definition: awsbatch.Definition{Name: "codalab-worker", Image: "lab/cl-worker:1", CPUs: 1, GPUs: 1, MemoryMB: 2048, Secret: "arn:aws:secretsmanager:x"},
	}
	loop := &pilot.Manager{
		Server: api, Backend: eager{b}, Shape: pilot.Shape{CPUs: 1, GPUs: 1, Memory: 2 << 30}, Max: 10, MostFailed: -1,
		Pause: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	shown(t, api, loop, "aws")
	awaitStatus(t, api, gpu, "The workers take no new bundles now: a worker does not start: "+cloud.Stuck)
	var jobs int
	cloud.Change(func(all []*awstest.Job) { jobs = len(all) })
	if jobs != 1 {
		t.Errorf("there are %d jobs", jobs)
	}
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
	second.Min, second.Backend = 1, eager{b}
	_, watching := newManager(t, web.URL, t.TempDir(), slurm) // the second uses b
	shown(t, api, second, "one")
	var conflict string
	testenv.Await(t, "the server refuses the second", func() bool {
		conflict = second.Presence.Conflict(t.Context())
		return strings.Contains(conflict, "is in use by another program")
	}, &conflict)
	pilots, err := watching.Pilots(t.Context())
	if err != nil || len(pilots) > 0 {
		t.Errorf("the second has started %v, %v", pilots, err)
	}
	stop()
	testenv.Await(t, "the second works once the first has ended", func() bool {
		pilots, err = watching.Pilots(t.Context())
		testenv.Must(t, err)
		return len(pilots) == 1
	}, &pilots)
}
