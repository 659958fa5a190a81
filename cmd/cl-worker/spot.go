package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/spotnotice"
)

// awsJobVariable is in the environment of each job of AWS Batch (Batch user guide, Job environment variables).
const awsJobVariable = "AWS_BATCH_JOB_ID"

// metadataVariable is the address of another metadata service, as AWS's own programs take it.
const metadataVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT"

// heedSpotNotice returns a context that ends as by a signal when EC2 takes the instance back under a job of AWS Batch.
// CodaLab's image has a script for it (scripts/detect-ec2-spot-preemption.sh). stop ends the questions.
func (w *standalone) heedSpotNotice(ctx context.Context) (heeding context.Context, stop func()) {
	if w.Getenv(awsJobVariable) == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := background.Go(func() {
		notice, err := spotnotice.Watch{Address: w.Getenv(metadataVariable)}.Await(ctx)
		if err != nil {
			return // ctx has ended
		}
		w.log.WarnContext(ctx, "EC2 takes this instance back: the worker ends, as by TERM", slog.String("action", notice.Action), slog.String("at", notice.Time.Format(time.RFC3339)))
		cancel()
	})
	return ctx, func() {
		cancel()
		<-ended
	}
}
