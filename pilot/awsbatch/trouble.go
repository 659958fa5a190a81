package awsbatch

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"

	"github.com/cl-slurm/cl-slurm/pilot"
)

const (
	// slowStart is the time after which a job that waits is unusual: an instance starts within a few minutes.
	slowStart = 5 * time.Minute
	// askQueueEvery is the interval of questions about the queue while a job waits for so long.
	askQueueEvery = 5 * time.Minute
	// patience is the time for which a wrong setting may last, and longPatience that for capacity that comes
	// and goes.
	patience     = 10 * time.Minute
	longPatience = 2 * time.Hour
)

// explainWaiting sets the trouble of pilots that wait: the reason that AWS gives for the first job of a queue that
// cannot start, or else what is wrong with the queue, if a pilot waits for longer than slowStart.
func (b *Backend) explainWaiting(ctx context.Context, pilots []pilot.Pilot, now time.Time) {
	for i, p := range pilots {
		if p.Phase != pilot.Pending || p.State == string(types.JobStatusStarting) {
			continue
		}
		if pilots[i].Trouble, pilots[i].Patience = troubleOf(p.Reason); pilots[i].Trouble != "" || now.Sub(p.Since) < slowStart {
			continue
		}
		if now.Sub(b.caused) >= askQueueEvery {
			b.cause, b.caused = b.whyStuck(ctx), now
		}
		pilots[i].Trouble, pilots[i].Patience = b.cause, patience
	}
}

// troubleOf returns the trouble in the reason of a job that waits, and the time for which it may last (Batch user
// guide, Jobs stuck in a RUNNABLE status).
func troubleOf(reason string) (trouble string, most time.Duration) {
	switch kind, _, _ := strings.Cut(reason, ":"); {
	case kind == "MISCONFIGURATION", strings.HasPrefix(reason, "ACTION_REQUIRED"):
		return reason, patience
	case kind == "CAPACITY", strings.HasPrefix(reason, "UNDETERMINED"):
		return reason, longPatience
	}
	return "", 0
}

// whyStuck returns the reason for which the queue starts no worker; empty if there is none, or if this account may not
// read it.
func (b *Backend) whyStuck(ctx context.Context) string {
	queue, err := b.describeQueue(ctx)
	if err != nil {
		return ""
	}
	if queue.Status == types.JQStatusInvalid {
		return fmt.Sprintf("the job queue %s is INVALID: %s", b.Queue, aws.ToString(queue.StatusReason))
	}
	environments, err := b.environments(ctx, queue)
	if err != nil {
		return ""
	}
	return b.misfit(environments)
}

// misfit returns the reasons for which no compute environment can run a worker; empty if one can.
func (b *Backend) misfit(environments []types.ComputeEnvironmentDetail) string {
	var reasons []string
	for _, e := range environments {
		reason := b.Definition.misfit(e)
		if reason == "" {
			return ""
		}
		reasons = append(reasons, fmt.Sprintf("the compute environment %s %s", aws.ToString(e.ComputeEnvironmentName), reason))
	}
	return strings.Join(reasons, "; ")
}

// describeQueue returns the queue.
func (b *Backend) describeQueue(ctx context.Context) (types.JobQueueDetail, error) {
	out, err := b.Batch.DescribeJobQueues(ctx, &batch.DescribeJobQueuesInput{JobQueues: []string{b.Queue}})
	if err != nil {
		return types.JobQueueDetail{}, b.failure("read the job queue "+b.Queue, err)
	}
	if len(out.JobQueues) == 0 {
		return types.JobQueueDetail{}, &Error{Text: fmt.Sprintf("there is no job queue %s in the region %s", b.Queue, b.Region)}
	}
	return out.JobQueues[0], nil
}

// environments returns the compute environments of a queue.
func (b *Backend) environments(ctx context.Context, queue types.JobQueueDetail) ([]types.ComputeEnvironmentDetail, error) {
	var names []string
	for _, e := range queue.ComputeEnvironmentOrder {
		names = append(names, aws.ToString(e.ComputeEnvironment))
	}
	if len(names) == 0 {
		return nil, nil
	}
	out, err := b.Batch.DescribeComputeEnvironments(ctx, &batch.DescribeComputeEnvironmentsInput{ComputeEnvironments: names})
	if err != nil {
		return nil, b.failure("read the compute environments of "+b.Queue, err)
	}
	return out.ComputeEnvironments, nil
}

// misfit returns the reason for which a compute environment runs no worker; empty if none is known.
func (d Definition) misfit(e types.ComputeEnvironmentDetail) string {
	r := e.ComputeResources
	switch {
	case e.State == types.CEStateDisabled:
		return "is DISABLED"
	case e.Status == types.CEStatusInvalid:
		return "is INVALID: " + aws.ToString(e.StatusReason)
	case e.ContainerOrchestrationType == types.OrchestrationTypeEks:
		return "is of EKS, and workers need one of ECS"
	case r == nil: // an UNMANAGED one: its instances are the owner's
		return ""
	case r.Type == types.CRTypeFargate || r.Type == types.CRTypeFargateSpot:
		return "is of type " + string(r.Type) + ", and workers need instances of EC2"
	case int64(aws.ToInt32(r.MaxvCpus)) < d.CPUs:
		return fmt.Sprintf("has at most %d vCPUs, and a worker asks for %d", aws.ToInt32(r.MaxvCpus), d.CPUs)
	case d.GPUs > 0 && len(r.InstanceTypes) > 0 && !slices.ContainsFunc(r.InstanceTypes, mayHaveGPUs):
		return fmt.Sprintf("has only instance types without GPUs, %s, and a worker asks for %d", strings.Join(r.InstanceTypes, ", "), d.GPUs)
	}
	return ""
}

// mayHaveGPUs reports whether instances of a type or family may have GPUs: the families p and g have, and those that
// Batch chooses by itself (optimal, default_x86_64) have none (EC2 user guide, Accelerated computing).
func mayHaveGPUs(name string) bool { return regexp.MustCompile(`^(p|g|gr)\d`).MatchString(name) }
