package awsbatch

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"

	"github.com/cl-slurm/cl-slurm/pilot"
)

// pilotOf returns the pilot of a job as ListJobs shows it.
func pilotOf(j types.JobSummary) pilot.Pilot {
	p := pilot.Pilot{
		Name: aws.ToString(j.JobName), Phase: phaseOf(j.Status), Job: aws.ToString(j.JobId), State: string(j.Status),
		Reason: aws.ToString(j.StatusReason), Since: since(j.CreatedAt, j.StartedAt),
	}
	if c := j.Container; c != nil && p.Phase == pilot.Ended {
		p.Reason = reason(p.Reason, aws.ToString(c.Reason), c.ExitCode)
	}
	p.Cancelled = p.Phase == pilot.Ended && strings.HasPrefix(p.Reason, stopReason)
	return p
}

// pilotOfDetail returns the pilot of a job as DescribeJobs shows it.
func pilotOfDetail(d types.JobDetail) pilot.Pilot {
	p := pilot.Pilot{
		Name: aws.ToString(d.JobName), Phase: phaseOf(d.Status), Job: aws.ToString(d.JobId), State: string(d.Status),
		Reason: aws.ToString(d.StatusReason), Since: since(d.CreatedAt, d.StartedAt),
	}
	if c := d.Container; c != nil {
		arn := aws.ToString(c.ContainerInstanceArn)
		p.Node = arn[strings.LastIndex(arn, "/")+1:]
		if p.Phase == pilot.Ended {
			p.Reason = reason(p.Reason, aws.ToString(c.Reason), c.ExitCode)
		}
	}
	p.Cancelled = p.Phase == pilot.Ended &&
		(aws.ToBool(d.IsCancelled) || aws.ToBool(d.IsTerminated) || strings.HasPrefix(p.Reason, stopReason))
	return p
}

// phaseOf returns the phase of a state (Batch user guide, Job states). In an unknown state the job may run.
func phaseOf(state types.JobStatus) pilot.Phase {
	switch state {
	case types.JobStatusSubmitted, types.JobStatusPending, types.JobStatusRunnable, types.JobStatusStarting:
		return pilot.Pending
	case types.JobStatusSucceeded, types.JobStatusFailed:
		return pilot.Ended
	case types.JobStatusRunning:
	}
	return pilot.Active
}

// reason returns the reason of an end: that of the job, that of the container, such as OutOfMemoryError, and the
// exit code.
func reason(job, container string, code *int32) string {
	var more []string
	if container != "" && container != job {
		more = append(more, container)
	}
	if code != nil {
		more = append(more, fmt.Sprintf("exit code %d", *code))
	}
	switch {
	case len(more) == 0:
		return job
	case job == "":
		return strings.Join(more, ", ")
	}
	return job + " (" + strings.Join(more, ", ") + ")"
}

// since returns the time of a job's start, or else of its submission.
func since(created, started *int64) time.Time {
	return cmp.Or(millis(started), millis(created))
}

// millis returns the time of a number of milliseconds since 1970; zero for none.
func millis(n *int64) time.Time {
	if aws.ToInt64(n) <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(*n)
}
