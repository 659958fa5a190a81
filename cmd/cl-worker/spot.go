package main

import (
	"context"
	"log/slog"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/spotnotice"
)

// awsJobVariable is in the environment of each job of AWS Batch (Batch user guide, Job environment variables).
const awsJobVariable = "AWS_BATCH_JOB_ID"

// metadataVariable is the address of another metadata service, as AWS's own programs take it.
const metadataVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT"

// azureTaskVariable is in the environment of each task of Azure Batch ("Azure Batch runtime environment variables"), and
// azureMetadataVariable, in tests, the address of another metadata service.
const (
	azureTaskVariable     = "AZ_BATCH_TASK_ID"
	azureMetadataVariable = "CL_WORKER_AZURE_METADATA"
)

// heedSpotNotice returns a context that ends as by a signal when EC2 takes the instance back under a job of AWS Batch, or
// Azure the machine under a task of Azure Batch. CodaLab's image has a script for EC2
// (scripts/detect-ec2-spot-preemption.sh). stop ends the questions.
func (w *standalone) heedSpotNotice(ctx context.Context) (heeding context.Context, stop func()) {
	var watch interface {
		Await(ctx context.Context) (spotnotice.Notice, error)
	}
	whose := "EC2 takes this instance back: the worker ends, as by TERM"
	switch {
	case w.Getenv(awsJobVariable) != "":
		watch = spotnotice.Watch{Address: w.Getenv(metadataVariable)}
	case w.Getenv(azureTaskVariable) != "":
		watch = spotnotice.Azure{Address: w.Getenv(azureMetadataVariable)}
		whose = "Azure takes this machine back: the worker ends, as by TERM"
	default:
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := background.Go(func() {
		notice, err := watch.Await(ctx)
		if err != nil {
			return // ctx has ended
		}
		w.log.WarnContext(ctx, whose, slog.String("action", notice.Action), slog.Time("at", notice.Time)) //nolint:sloglint // one of two texts
		cancel()
	})
	return ctx, func() {
		cancel()
		<-ended
	}
}
