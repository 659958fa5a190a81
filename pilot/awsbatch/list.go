package awsbatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"

	"github.com/cl-slurm/cl-slurm/pilot"
)

const (
	// settling is the time for which a new job may be missing in the answers of AWS.
	settling = 2 * time.Minute
	// lately is the time for which the first answer shows jobs that have ended, so that their tokens end.
	lately = pilot.CloudTokenLife
	// mostDescribed is the number of jobs that DescribeJobs takes (API_DescribeJobs: jobs).
	mostDescribed = 100
)

// liveStates are the states of jobs that have not ended, in the order of a job's life. A job that changes its state
// between two requests is in the second answer, too.
func liveStates() []types.JobStatus {
	return []types.JobStatus{
		types.JobStatusSubmitted, types.JobStatusPending, types.JobStatusRunnable, types.JobStatusStarting, types.JobStatusRunning,
	}
}

// Refresh costs a request of the account's quota, or some for very many workers.
func (b *Backend) Refresh() time.Duration { return 20 * time.Second }

// Pilots returns the pilots that have not ended, and those that have ended since the last answer. The first answer also
// has those that have ended lately.
func (b *Backend) Pilots(ctx context.Context) ([]pilot.Pilot, error) {
	asked := b.Now()
	pilots, err := b.listed(ctx, asked)
	if err != nil {
		return nil, err
	}
	live := map[string]*job{}
	for _, p := range pilots {
		live[p.Name] = &job{id: p.Job}
	}
	missing, err := b.missing(ctx, live, asked)
	if err != nil {
		return nil, err
	}
	for _, p := range missing {
		live[p.Name] = b.live[p.Name]
	}
	pilots = append(pilots, missing...)
	for _, p := range pilots {
		if p.Phase == pilot.Ended {
			delete(live, p.Name)
		}
	}
	b.explainWaiting(ctx, pilots, asked)
	b.live = live
	return pilots, nil
}

// listed returns the pilots that ListJobs shows. It asks by name as long as this takes no more requests than asking for
// each state, and only once if the jobs of other names count.
func (b *Backend) listed(ctx context.Context, now time.Time) ([]pilot.Pilot, error) {
	if b.byState {
		return b.inLiveStates(ctx)
	}
	jobs, pages, err := b.named(ctx, b.prefix()+"*")
	if err != nil {
		return nil, err
	}
	if b.Filter != nil {
		if _, err := b.inLiveStates(ctx); err != nil {
			return nil, err
		}
	}
	b.byState = pages > len(liveStates()) || b.Filter != nil
	var pilots []pilot.Pilot
	for _, j := range jobs {
		if p := pilotOf(j); p.Phase != pilot.Ended || now.Sub(millis(j.StoppedAt)) < lately {
			pilots = append(pilots, p)
		}
	}
	return pilots, nil
}

// inLiveStates returns the pilots that have not ended, and counts the other jobs that Filter matches.
func (b *Backend) inLiveStates(ctx context.Context) ([]pilot.Pilot, error) {
	var pilots []pilot.Pilot
	at, others := map[string]int{}, map[string]pilot.Phase{}
	for _, state := range liveStates() {
		jobs, _, err := b.list(ctx, &batch.ListJobsInput{JobQueue: &b.Queue, JobStatus: state})
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			p := pilotOf(j)
			i, again := at[p.Name]
			switch {
			case !b.isPilot(p.Name):
				if b.Filter != nil && b.Filter.MatchString(p.Name) {
					others[p.Job] = p.Phase
				}
			case again:
				pilots[i] = p
			default:
				at[p.Name] = len(pilots)
				pilots = append(pilots, p)
			}
		}
	}
	b.otherPending, b.otherActive = 0, 0
	for _, phase := range others {
		if phase == pilot.Pending {
			b.otherPending++
		} else {
			b.otherActive++
		}
	}
	return pilots, nil
}

// Others returns the numbers of the further jobs that Filter matches (aws_batch_worker_manager.py: get_worker_jobs).
func (b *Backend) Others() (pending, active int) { return b.otherPending, b.otherActive }

// named returns the pilots' jobs with a name, or with a beginning of the name that ends in an asterisk, in any state.
func (b *Backend) named(ctx context.Context, name string) (jobs []types.JobSummary, pages int, err error) {
	jobs, pages, err = b.list(ctx, &batch.ListJobsInput{
		JobQueue: &b.Queue, Filters: []types.KeyValuesPair{{Name: aws.String("JOB_NAME"), Values: []string{name}}},
	})
	// JOB_NAME ignores the case.
	return slices.DeleteFunc(jobs, func(j types.JobSummary) bool { return !b.isPilot(aws.ToString(j.JobName)) }), pages, err
}

// list returns the jobs on all pages of an answer, and the number of pages.
func (b *Backend) list(ctx context.Context, input *batch.ListJobsInput) (jobs []types.JobSummary, pages int, err error) {
	for answer := batch.NewListJobsPaginator(b.Batch, input); answer.HasMorePages(); pages++ {
		page, err := answer.NextPage(ctx)
		if err != nil {
			return nil, pages, b.failure("list the workers in the job queue "+b.Queue, err)
		}
		jobs = append(jobs, page.JobSummaryList...)
	}
	return jobs, pages, nil
}

// Locate sets the instances of pilots that have a container. It takes one request for 100 of them.
func (b *Backend) Locate(ctx context.Context, pilots []pilot.Pilot) error {
	var ids []string
	for _, p := range pilots {
		if p.Phase == pilot.Active && p.Node == "" {
			ids = append(ids, p.Job)
		}
	}
	details, err := b.describe(ctx, ids)
	if err != nil {
		return err
	}
	for i, p := range pilots {
		if d, known := details[p.Job]; known {
			pilots[i].Node = pilotOfDetail(d).Node
		}
	}
	return nil
}

// missing returns the pilots that were alive and are not in shown: those that have ended, and those that are too new
// for the list. It leaves out those that AWS no longer knows.
func (b *Backend) missing(ctx context.Context, shown map[string]*job, now time.Time) ([]pilot.Pilot, error) {
	var names, ids []string
	for _, name := range slices.Sorted(maps.Keys(b.live)) {
		if shown[name] == nil {
			names, ids = append(names, name), append(ids, b.live[name].id)
		}
	}
	details, err := b.describe(ctx, ids)
	if err != nil {
		return nil, err
	}
	var pilots []pilot.Pilot
	for _, name := range names {
		j := b.live[name]
		d, known := details[j.id]
		switch {
		case known:
			j.started = time.Time{}
			pilots = append(pilots, pilotOfDetail(d))
		case now.Sub(j.started) < settling:
			pilots = append(pilots, pilot.Pilot{Name: name, Phase: pilot.Pending, Job: j.id, State: string(types.JobStatusSubmitted), Since: j.started})
		}
	}
	return pilots, nil
}

// describe returns what DescribeJobs says about jobs, by id.
func (b *Backend) describe(ctx context.Context, ids []string) (map[string]types.JobDetail, error) {
	details := map[string]types.JobDetail{}
	for some := range slices.Chunk(ids, mostDescribed) {
		out, err := b.Batch.DescribeJobs(ctx, &batch.DescribeJobsInput{Jobs: some})
		if err != nil {
			return nil, b.failure("read the states of workers", err)
		}
		for _, d := range out.Jobs {
			details[aws.ToString(d.JobId)] = d
		}
	}
	return details, nil
}
