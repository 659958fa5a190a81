package sbatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Turn is the place of a pending job among the pending jobs of all users. The zero value is an unknown place.
type Turn struct {
	// Partition is the partition of which Ahead counts the jobs; empty if the place is not known. Of a job that may
	// run in several it is the one with the fewest.
	Partition string
	// Ahead counts the jobs that Slurm considers before this one: those of a higher priority, and the older ones of
	// the same. A job that waits for a time, a limit, or a release is ahead of none. The tasks of an array that never began
	// count as one job, and have one place.
	Ahead int
}

// Rounded returns the turn with an Ahead of two digits that count, rounded up from 100 on. A place far behind thus
// changes seldom.
func (t Turn) Rounded() Turn {
	unit := 1
	for t.Ahead >= 100*unit {
		unit *= 10
	}
	t.Ahead = (t.Ahead + unit - 1) / unit * unit
	return t
}

// turnFields are the fields of parseTurns.
const turnFields = "|%i|%P|%Q|%r"

// Turns returns the places of those of the jobs that wait for their turn. It costs the controller two requests
// (partitions, and all jobs), whatever the number of jobs, so a caller asks once a minute at most. Where users do not
// see each other's jobs (Settings.PrivateJobs) the places are wrong.
func (c *Client) Turns(ctx context.Context, ids []JobID) (map[JobID]Turn, error) {
	separator := "|" + rand.Text()[:8] + "|"
	out, err := c.query(ctx, "list the waiting jobs",
		c.onCluster("squeue", "--start", "--all", "--local", "--noheader", "--format="+strings.ReplaceAll(turnFields, "|", separator))...)
	if err != nil {
		return nil, err
	}
	turns, err := parseTurns(out, separator, ids)
	if err != nil {
		return nil, &Error{Op: "list the waiting jobs", Message: err.Error(), Err: err}
	}
	return turns, nil
}

// waitingJob is a job that waits for its turn. Tasks that share a record are one, with the id of the first of them.
type waitingJob struct {
	id         JobID
	partitions []string
	priority   uint64
}

// before orders jobs as Slurm considers them (Slurm src/slurmctld/job_scheduler.c: sort_job_queue2).
func (j waitingJob) before(other waitingJob) int {
	array, _, _ := j.id.ArrayTask()
	otherArray, _, _ := other.id.ArrayTask()
	return cmp.Or(cmp.Compare(other.priority, j.priority), cmp.Compare(array, otherArray), cmp.Compare(j.id, other.id))
}

// parseTurns reads squeue's answer about the pending jobs of all users.
func parseTurns(out, separator string, ids []JobID) (map[JobID]Turn, error) {
	fields := strings.Split(out, separator)
	if banner := strings.TrimSpace(fields[0]); banner != "" {
		return nil, fmt.Errorf("cannot read %q", shorten(banner))
	}
	fields = fields[1:]
	const perJob = 4
	if len(fields)%perJob != 0 || (len(fields) > 0 && !strings.HasSuffix(out, "\n")) {
		return nil, fmt.Errorf("cannot read an answer that ends in %q", out[max(0, len(out)-200):])
	}
	wanted := make(map[JobID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	queues, own := map[string][]waitingJob{}, map[JobID]waitingJob{}
	var record []JobID
	for f := range slices.Chunk(fields, perJob) {
		job, err := parseWaiting(f)
		if err == nil {
			record, _, err = appendIDs(record[:0], f[0])
		}
		if err != nil {
			return nil, err
		}
		job.id = record[0]
		if Explain(strings.TrimSuffix(f[3], "\n")).Category != WaitsForTurn {
			continue
		}
		for _, p := range job.partitions {
			queues[p] = append(queues[p], job)
		}
		for _, id := range record {
			if wanted[id] {
				own[id] = job
			}
		}
	}
	return places(queues, own), nil
}

// parseWaiting reads the fields partition and priority, which come after the id.
func parseWaiting(f []string) (waitingJob, error) {
	priority, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil || f[1] == "" {
		return waitingJob{}, fmt.Errorf("cannot read the partition %q and the priority %q of job %s", shorten(f[1]), shorten(f[2]), shorten(f[0]))
	}
	return waitingJob{partitions: strings.Split(strings.Clone(f[1]), ","), priority: priority}, nil
}

// places returns the places of the own jobs in the queues of the partitions.
func places(queues map[string][]waitingJob, own map[JobID]waitingJob) map[JobID]Turn {
	for _, queue := range queues {
		slices.SortFunc(queue, waitingJob.before)
	}
	turns := make(map[JobID]Turn, len(own))
	for id, job := range own {
		for _, p := range job.partitions {
			ahead, _ := slices.BinarySearchFunc(queues[p], job, waitingJob.before)
			if best, ok := turns[id]; !ok || ahead < best.Ahead {
				turns[id] = Turn{p, ahead}
			}
		}
	}
	return turns
}
