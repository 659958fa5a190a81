package awsbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// logGroup is the group to which Batch writes the output of jobs (Batch user guide, Use the awslogs log driver).
const logGroup = "/aws/batch/job"

// followEvery is the default of Backend.FollowEvery.
const followEvery = 2 * time.Second

// Logged returns the pilots of the last seven days, which is the time for which Batch knows a job. Those that have not
// ended come first, then those that ended last.
func (b *Backend) Logged(ctx context.Context) ([]pilot.Pilot, error) {
	jobs, _, err := b.named(ctx, b.prefix()+"*")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(jobs, func(x, y types.JobSummary) int {
		switch xEnd, yEnd := aws.ToInt64(x.StoppedAt), aws.ToInt64(y.StoppedAt); {
		case xEnd == yEnd:
			return int(aws.ToInt64(y.CreatedAt) - aws.ToInt64(x.CreatedAt))
		case xEnd == 0:
			return -1
		case yEnd == 0:
			return 1
		default:
			return int(yEnd - xEnd)
		}
	})
	var pilots []pilot.Pilot
	for _, j := range jobs {
		pilots = append(pilots, pilotOf(j))
	}
	return pilots, nil
}

// WriteLog writes a pilot's output, which CloudWatch keeps as lines. CloudWatch may show the last lines a moment after
// the end, so that a followed log is read once more then.
func (b *Backend) WriteLog(ctx context.Context, w io.Writer, p pilot.Pilot, follow bool) error {
	var at logPlace
	for last := !follow; ; {
		stream, ended, err := b.logStream(ctx, p)
		if err != nil {
			return err
		}
		if stream != "" {
			if err := b.copyLog(ctx, w, stream, &at); err != nil {
				return err
			}
		}
		switch {
		case last && !at.printed && at.gone:
			return fmt.Errorf("%w, or CloudWatch keeps it no longer: %s (log group %s, stream %s)", pilot.ErrNoLog, at.said, logGroup, stream)
		case last && !at.printed:
			return pilot.ErrNoLog
		case last:
			return nil
		}
		if err := pause.For(ctx, cmp.Or(b.FollowEvery, followEvery)); err != nil {
			return err
		}
		last = ended
	}
}

// logStream returns the name of the stream with a pilot's output, empty if it has none yet, and whether the pilot has
// ended.
func (b *Backend) logStream(ctx context.Context, p pilot.Pilot) (stream string, ended bool, err error) {
	id, err := b.jobID(ctx, p)
	if err != nil || id == "" {
		return "", true, err
	}
	details, err := b.describe(ctx, []string{id})
	if err != nil {
		return "", false, err
	}
	d, known := details[id]
	if !known {
		return "", false, fmt.Errorf("AWS Batch no longer knows the job of worker %s, and so the place of its log", pilot.WorkerID(p.Name))
	}
	if d.Container != nil {
		stream = aws.ToString(d.Container.LogStreamName)
	}
	return stream, phaseOf(d.Status) == pilot.Ended, nil
}

// logPlace is the place in a log up to which it is copied.
type logPlace struct {
	next    *string // the page to ask for; nil for the first one
	printed bool    // there was a line
	gone    bool    // CloudWatch has no such group or stream
	said    string  // CloudWatch's words for that
}

// copyLog writes the lines of a stream that have come since the last call.
func (b *Backend) copyLog(ctx context.Context, w io.Writer, stream string, at *logPlace) error {
	for {
		page, err := b.Logs.GetLogEvents(ctx, &cloudwatchlogs.GetLogEventsInput{
			LogGroupName: aws.String(logGroup), LogStreamName: &stream, StartFromHead: aws.Bool(true), NextToken: at.next,
		})
		var gone *logtypes.ResourceNotFoundException
		if at.gone = errors.As(err, &gone); at.gone {
			at.said = strings.TrimSuffix(gone.ErrorMessage(), ".")
			return nil
		}
		if err != nil {
			return b.failure("read the log "+stream, err)
		}
		for _, e := range page.Events {
			at.printed = true
			if _, err := io.WriteString(w, strings.TrimSuffix(aws.ToString(e.Message), "\n")+"\n"); err != nil {
				return fmt.Errorf("print log: %w", err)
			}
		}
		// The last page has the token of the request (API_GetLogEvents: nextForwardToken). A page before it may
		// be empty.
		token := page.NextForwardToken
		if token == nil || at.next != nil && *token == *at.next {
			return nil
		}
		at.next = token
	}
}
