package awsbatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/smithy-go"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// Preview returns the requests by which Start would start a pilot, as JSON in AWS's shape.
func (b *Backend) Preview(name string) (string, error) {
	definition, err := b.Definition.Input()
	if err != nil {
		return "", err
	}
	placeholder := ""
	if b.Definition.Secret == "" {
		placeholder = "TOKEN-OF-THIS-WORKER"
	}
	job := b.Job(name, placeholder)
	job.JobDefinition = aws.String(b.Definition.Name + ":REVISION")
	var text strings.Builder
	for _, part := range []struct {
		operation string
		request   any
	}{{"RegisterJobDefinition, unless an active revision has this content", definition}, {"SubmitJob", job}} {
		content, err := plain(part.request)
		if err != nil {
			return "", err
		}
		data, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return "", fmt.Errorf("print the request: %w", err)
		}
		fmt.Fprintf(&text, "%s:\n%s\n\n", part.operation, data)
	}
	return text.String(), nil
}

// noRevision is a revision that no definition has.
const noRevision = 999_999_999

// Check tries each need of a manager. It tries permissions that change something by requests that AWS must refuse:
// AWS looks at the permission first.
func (b *Backend) Check(ctx context.Context) []pilot.Finding {
	found := []pilot.Finding{}
	add := func(name, text string, err error) {
		if err != nil {
			text = err.Error()
		}
		found = append(found, pilot.Finding{Name: name, OK: err == nil, Text: text})
	}
	queue, err := b.describeQueue(ctx)
	add("job queue", b.Queue+" in "+b.Region, errors.Join(err, b.queueTrouble(queue)))
	if err == nil {
		text, err := b.checkEnvironments(ctx, queue)
		add("instances", text, err)
	}
	jobs, _, err := b.named(ctx, b.prefix()+"*")
	add("list jobs", termtext.Count(len(jobs), "worker")+" of this manager in the last days", err)
	text, err := b.checkDefinition(ctx)
	add("job definition", text, err)
	_, err = b.Batch.RegisterJobDefinition(ctx, &batch.RegisterJobDefinitionInput{JobDefinitionName: &b.Definition.Name, Type: types.JobDefinitionTypeContainer})
	add("register definitions", "permitted", b.refusal("register a job definition", err))
	_, err = b.Batch.SubmitJob(ctx, &batch.SubmitJobInput{
		JobName: aws.String(b.NewName()), JobQueue: &b.Queue, JobDefinition: aws.String(fmt.Sprintf("%s:%d", b.Definition.Name, noRevision)),
	})
	add("start jobs", "permitted", b.refusal("start a job", err))
	_, err = b.Batch.TerminateJob(ctx, &batch.TerminateJobInput{JobId: aws.String("00000000-0000-0000-0000-000000000000"), Reason: aws.String(stopReason)})
	add("end jobs", "permitted", b.refusal("end a job", err))
	_, err = b.Logs.GetLogEvents(ctx, &cloudwatchlogs.GetLogEventsInput{LogGroupName: aws.String(logGroup), LogStreamName: aws.String(b.NewName())})
	if _, none := errors.AsType[*logtypes.ResourceNotFoundException](err); none {
		err = nil
	}
	add("read logs", "permitted", b.refusal("read a log", err))
	return found
}

// refusal returns the error of a request that AWS must refuse; nil if the refusal is about the request itself.
func (b *Backend) refusal(do string, err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); err == nil || ok && api.ErrorCode() == "ClientException" {
		return nil
	}
	return b.failure(do, err)
}

// queueTrouble returns the reason for which a queue takes no jobs; nil if it does.
func (b *Backend) queueTrouble(q types.JobQueueDetail) error {
	switch {
	case q.State == types.JQStateDisabled:
		return &Error{Text: fmt.Sprintf("the job queue %s is DISABLED; enable it", b.Queue)}
	case q.Status == types.JQStatusInvalid:
		return &Error{Text: fmt.Sprintf("the job queue %s is INVALID: %s", b.Queue, aws.ToString(q.StatusReason))}
	}
	return nil
}

// checkEnvironments returns the compute environments of the queue as a text. It fails if none can run a worker.
func (b *Backend) checkEnvironments(ctx context.Context, queue types.JobQueueDetail) (string, error) {
	environments, err := b.environments(ctx, queue)
	if err != nil {
		return "", err
	}
	if len(environments) == 0 {
		return "", &Error{Text: fmt.Sprintf("the job queue %s has no compute environment", b.Queue)}
	}
	if reason := b.misfit(environments); reason != "" {
		return "", &Error{Text: reason}
	}
	var texts []string
	for _, e := range environments {
		text := aws.ToString(e.ComputeEnvironmentName)
		if r := e.ComputeResources; r != nil {
			text += fmt.Sprintf(" (%s, %s, at most %d vCPUs)", r.Type, strings.Join(r.InstanceTypes, " "), aws.ToInt32(r.MaxvCpus))
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", "), nil
}

func (b *Backend) checkDefinition(ctx context.Context) (string, error) {
	input, err := b.Definition.Input()
	if err != nil {
		return "", err
	}
	revision, err := b.findRevision(ctx, input)
	switch {
	case err != nil:
		return "", err
	case revision == "":
		return "no active revision of " + b.Definition.Name + " has this content: the first start registers one", nil
	}
	return revision[strings.LastIndex(revision, "/")+1:], nil
}
