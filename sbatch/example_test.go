package sbatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// pending returns a Slurm within this process, in which jobs wait for an hour.
func pending() sbatch.Scheduler {
	site := slurmtest.NewSite()
	site.StartDelay = time.Hour
	return slurmtest.NewClocked(site, func(slurmtest.Order) {})
}

// A caller submits a job, finds it by its name, and cancels it.
func Example() {
	slurm := pending() // on a cluster: &sbatch.Client{}

	ctx := context.Background()
	id, err := slurm.Submit(ctx, sbatch.Request{
		Name:      "train-1",
		Partition: "gpu",
		GPUs:      2,
		Time:      4 * time.Hour,
		Dir:       "/shared/train",
		Output:    "/shared/train/out",
		Script:    "#!/bin/sh\npython train.py\n",
	})
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		snapshot, err := slurm.Observe(ctx, time.Now())
		if err != nil {
			log.Fatal(err) // no answer says nothing of the job
		}
		for _, job := range snapshot.ByName()["train-1"] {
			fmt.Println("job", job.ID, job.State, "ended:", job.State.Ended())
		}
	}
	show()
	if err := slurm.Cancel(ctx, "train-1", id); err != nil {
		log.Fatal(err)
	}
	show()

	// Output:
	// job 1 PENDING ended: false
	// job 1 CANCELLED ended: true
}

// A refusal is an *Error with Slurm's words. After any other failure the job may exist: the caller looks for
// its name in a later snapshot.
func ExampleError() {
	slurm := pending()
	_, err := slurm.Submit(context.Background(), sbatch.Request{
		Name: "train-1", Partition: "gpuu", Script: "#!/bin/sh\n", Output: "/dev/null",
	})
	var refused *sbatch.Error
	if errors.As(err, &refused) && refused.Refused {
		fmt.Println("no job was made:", refused.Message)
	}

	// Output:
	// no job was made: Invalid partition name specified (invalid partition specified: gpuu)
}

// Several parts of a program ask for the jobs. An Observer answers all of them with one squeue.
func ExampleObserver() {
	observer := &sbatch.Observer{Scheduler: pending(), Interval: 6 * time.Second, Now: time.Now}

	asked := observer.Now()
	first, err := observer.Observe(context.Background(), asked)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("jobs:", len(first.Jobs))
	fmt.Println("the next squeue waits:", observer.Next().After(asked.Add(5*time.Second)))

	// Output:
	// jobs: 0
	// the next squeue waits: true
}
