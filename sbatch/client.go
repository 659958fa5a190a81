package sbatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Client runs Slurm's commands. The zero value uses those in PATH and the
// configuration in Slurm's usual place. A Client is safe for concurrent use.
type Client struct {
	// Bin is the directory of Slurm's commands; empty means PATH.
	Bin string
	// Conf is the path of slurm.conf; empty means Slurm's usual place.
	Conf string
	// SubmitTimeout bounds one sbatch, QueryTimeout one squeue, sacct or
	// scancel. 0 means 60 seconds.
	SubmitTimeout, QueryTimeout time.Duration
}

// defaultTimeout is above the time after which Slurm's commands themselves
// give up on a controller: 100 s at worst with MessageTimeout=10 (9 s when the
// connection is refused, 39 s when it is never answered).
const defaultTimeout = 60 * time.Second

func (c *Client) submitTimeout() time.Duration { return orDefault(c.SubmitTimeout) }
func (c *Client) queryTimeout() time.Duration  { return orDefault(c.QueryTimeout) }

func orDefault(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultTimeout
	}
	return d
}

// SubmitBound is the longest that Submit takes. After it, a submission that
// was begun has reached the controller or never will.
func (c *Client) SubmitBound() time.Duration { return c.submitTimeout() + 10*time.Second }

func (c *Client) program(name string) string {
	if c.Bin == "" {
		return name
	}
	return filepath.Join(c.Bin, name)
}

// environment is all that Slurm's commands see: nothing of the login shell.
func (c *Client) environment() []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"}
	if c.Conf != "" {
		env = append(env, "SLURM_CONF="+c.Conf)
	}
	return env
}

func (c *Client) query(ctx context.Context, op string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	args[0] = c.program(args[0])
	out, err := command.Command{Args: args, Env: c.environment()}.Output(ctx)
	if err != nil {
		e := &Error{Op: op, Err: err, Message: err.Error()}
		var failed *command.Error
		if errors.As(err, &failed) && failed.Stderr != "" {
			e.Message = lastWords(failed.Stderr)
		}
		return "", e
	}
	return string(out), nil
}

// squeueFormat asks for what a Job holds. A name or a comment may hold the
// separator; they come last, and jobs with such names are not ours.
const squeueFormat = "%A|%T|%r|%N|%S|%j|%k"

// Observe returns all jobs of the user who runs it, at the price of two
// requests to the controller. It returns a whole answer or an error, never
// a part.
func (c *Client) Observe(ctx context.Context, now time.Time) (Snapshot, error) {
	out, err := c.query(ctx, "observe",
		"squeue", "--all", "--me", "--local", "--array", "--states=all", "--noheader", "--format="+squeueFormat)
	if err != nil {
		return Snapshot{}, err
	}
	jobs, err := parseJobs(out)
	if err != nil {
		return Snapshot{}, &Error{Op: "observe", Message: err.Error(), Err: err}
	}
	return Snapshot{Asked: now, Jobs: jobs}, nil
}

// Account returns the jobs of these names that the accounting database knows,
// among those submitted or active since a time. It costs the controller
// nothing. The database learns of a job seconds after its submission.
func (c *Client) Account(ctx context.Context, since time.Time, names []string) ([]Job, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := c.query(ctx, "account",
		"sacct", "--allocations", "--parsable2", "--noheader", "--duplicates",
		"--starttime="+since.Format("2006-01-02T15:04:05"),
		"--name="+strings.Join(names, ","),
		"--format=JobIDRaw,State,Reason,NodeList,Start,JobName,Comment")
	if err != nil {
		return nil, err
	}
	jobs, err := parseJobs(out)
	if err != nil {
		return nil, &Error{Op: "account", Message: err.Error(), Err: err}
	}
	return jobs, nil
}

// Cancel ends a job: TERM to its batch script, KILL after the site's KillWait.
// It is no error when the job has ended already.
func (c *Client) Cancel(ctx context.Context, id JobID) error {
	_, err := c.query(ctx, "cancel "+id.String(), "scancel", "--quiet", id.String())
	var failed *Error
	if errors.As(err, &failed) && strings.Contains(failed.Message, "Invalid job id specified") {
		return nil // purged: MinJobAge after its end
	}
	return err
}

func parseJobs(out string) ([]Job, error) {
	var jobs []Job
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		job, err := parseJob(line)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func parseJob(line string) (Job, error) {
	f := strings.SplitN(line, "|", 7)
	if len(f) != 7 {
		return Job{}, fmt.Errorf("cannot read %q: want 7 fields", line)
	}
	id, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return Job{}, fmt.Errorf("cannot read job id in %q", line)
	}
	state, _, _ := strings.Cut(f[1], " ") // sacct: "CANCELLED by 1001"
	if state == "" {
		return Job{}, fmt.Errorf("cannot read state in %q", line)
	}
	nodes := f[3]
	if nodes == "None assigned" || nodes == "(null)" {
		nodes = ""
	}
	job := Job{ID: JobID(id), State: State(state), Reason: f[2], Nodes: nodes, Name: f[5], Comment: f[6]}
	if s, err := strconv.ParseInt(f[4], 10, 64); err == nil { // "N/A", "Unknown"
		job.Start = time.Unix(s, 0)
	}
	return job, nil
}
