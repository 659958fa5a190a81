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
	// the same. A job that waits for a time, a limit, or a release is ahead of none. An array counts as one job.
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
const turnFields = "|%A|%P|%Q|%r"

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

// waitingJob is a job that waits for its turn.
type waitingJob struct {
	id         JobID
	partitions []string
	priority   uint64
}

// before orders jobs as Slurm considers them.
func (j waitingJob) before(other waitingJob) int {
	return cmp.Or(cmp.Compare(other.priority, j.priority), cmp.Compare(j.id, other.id))
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
	queues, own := map[string][]waitingJob{}, []waitingJob(nil)
	for f := range slices.Chunk(fields, perJob) {
		job, err := parseWaiting(f)
		if err != nil {
			return nil, err
		}
		if Explain(strings.TrimSuffix(f[3], "\n")).Category != WaitsForTurn {
			continue
		}
		for _, p := range job.partitions {
			queues[p] = append(queues[p], job)
		}
		if wanted[job.id] {
			own = append(own, job)
		}
	}
	return places(queues, own), nil
}

func parseWaiting(f []string) (waitingJob, error) {
	id, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || id <= 0 {
		return waitingJob{}, fmt.Errorf("cannot read job id %q", shorten(f[0]))
	}
	priority, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil || f[1] == "" {
		return waitingJob{}, fmt.Errorf("cannot read the partition %q and the priority %q of job %d", shorten(f[1]), shorten(f[2]), id)
	}
	return waitingJob{JobID(id), strings.Split(strings.Clone(f[1]), ","), priority}, nil
}

// places returns the places of the own jobs in the queues of the partitions.
func places(queues map[string][]waitingJob, own []waitingJob) map[JobID]Turn {
	for _, queue := range queues {
		slices.SortFunc(queue, waitingJob.before)
	}
	turns := make(map[JobID]Turn, len(own))
	for _, job := range own {
		for _, p := range job.partitions {
			ahead, _ := slices.BinarySearchFunc(queues[p], job, waitingJob.before)
			if best, ok := turns[job.id]; !ok || ahead < best.Ahead {
				turns[job.id] = Turn{p, ahead}
			}
		}
	}
	return turns
}
