package sbatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Client runs Slurm's commands. The zero value uses the commands in PATH and
// Slurm's default configuration. A Client is safe for concurrent use.
type Client struct {
	// Bin is the directory of Slurm's commands; empty means PATH.
	Bin string
	// Conf is the path of slurm.conf; empty means Slurm's default.
	Conf string
	// Cluster names the cluster of all jobs; empty for slurm.conf's own (slurm.conf(5): ClusterName).
	// For another one Slurm's commands need the accounting database. It cannot be a list of clusters:
	// squeue leaves out those that it cannot reach, and exits with status 0.
	Cluster string
	// SubmitTimeout bounds one submission, QueryTimeout each other command. 0 means 60 seconds.
	SubmitTimeout, QueryTimeout time.Duration
	// Watch, if not nil, is called before each run of a command of Slurm with its name, which is "sbatch --test-only" for
	// a trial. It returns a function for the end of the run. answered is false if the command has failed; a refusal of a
	// job, and the cancellation of one that has ended, are answers. Set it before the first use.
	Watch func(name string) (ended func(answered bool))
}

// testOnly is the name of a trial for Client.Watch: sbatch, which submits nothing.
const testOnly = "sbatch --test-only"

// watch tells Watch that a command begins, and returns the function for its end.
func (c *Client) watch(name string) (ended func(answered bool)) {
	if c.Watch == nil {
		return func(bool) {}
	}
	return c.Watch(name)
}

// defaultTimeout is longer than Slurm's commands usually wait for a controller: 9 s if it refuses the
// connection, 39 s if it never answers (TCPTimeout=3, MessageTimeout=10). Only sbatch may wait longer,
// for two minutes, while the controller's job table is full.
const defaultTimeout = 60 * time.Second

func (c *Client) submitTimeout() time.Duration { return cmp.Or(c.SubmitTimeout, defaultTimeout) }
func (c *Client) queryTimeout() time.Duration  { return cmp.Or(c.QueryTimeout, defaultTimeout) }

// SubmitBound is the longest time that Submit takes. After it, sbatch's request has reached the
// controller's host, or never will. A slow controller may still act on it later.
func (c *Client) SubmitBound() time.Duration { return c.submitTimeout() + 10*time.Second }

func (c *Client) program(name string) string {
	if c.Bin == "" {
		return name
	}
	return filepath.Join(c.Bin, name)
}

// anyDir is the directory in which Slurm's commands run. sbatch fails in a directory that has gone, such
// as a home whose file server was restored while the caller ran there.
const anyDir = "/"

// onCluster adds the cluster to a command's arguments.
func (c *Client) onCluster(args ...string) []string {
	if c.Cluster == "" {
		return args
	}
	return slices.Insert(args, 1, "--clusters="+c.Cluster)
}

func (c *Client) query(ctx context.Context, op string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	ended := c.watch(args[0])
	args[0] = c.program(args[0])
	env := append(c.environment(), "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=%s")
	out, err := command.Command{Args: args, Env: env, Dir: anyDir}.Output(ctx)
	ended(err == nil || saysJobEnded(message(err)))
	if err != nil {
		return "", &Error{Op: op, Message: message(err), Err: err}
	}
	return string(out), nil
}

// The fields of a job, in the order of parseJob. Observe replaces "|" in squeueFields by a separator.
const (
	squeueFields = "|%A|%T|%N|%S|%j|%r|%V|%l|%k"
	sacctFields  = "JobIDRaw,State,NodeList,Start,JobName,Reason,Submit,ExitCode"
)

// Version returns Slurm's version, such as "slurm-wlm 22.05.8". It asks no controller. It fails if sbatch,
// squeue or scancel cannot be started, because no job can run without them.
func (c *Client) Version(ctx context.Context) (string, error) {
	var out string
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		var err error
		if out, err = c.query(ctx, "look for Slurm", name, "--version"); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(out), nil
}

// Observe returns all jobs of the user who runs it. It asks at once: notBefore is the present time by the
// caller's clock, and becomes the snapshot's Asked. It costs the controller two requests (partitions, and
// the user's jobs). It returns a complete answer or an error, with one exception: if an array has more
// than five waiting tasks that are evenly spaced with gaps, such as 2-20:2, squeue omits the last task.
func (c *Client) Observe(ctx context.Context, notBefore time.Time) (Snapshot, error) {
	// A name or a comment may contain any text of a user, including "|" and line feeds, but not a random
	// separator.
	separator := "|" + rand.Text()[:8] + "|"
	format := strings.ReplaceAll(squeueFields, "|", separator)
	out, err := c.query(ctx, "observe",
		c.onCluster("squeue", "--all", "--me", "--local", "--array", "--states=all", "--noheader", "--format="+format)...)
	if err != nil {
		return Snapshot{}, err
	}
	jobs, err := parseQueue(out, separator)
	if err != nil {
		return Snapshot{}, &Error{Op: "observe", Message: err.Error(), Err: err}
	}
	return Snapshot{Asked: notBefore, Jobs: c.setCluster(jobs)}, nil
}

// QueryAccounting returns the jobs that the accounting database knows, among those submitted or active
// since a time, without their comments. It returns a job that has both one of the ids and one of the names
// twice. It costs the controller nothing. The database learns of a job seconds after its submission, and
// later after an outage of the database. A question by name never finds a job that was not eligible to run
// (held, or to begin later), even after its cancellation; a question by id does. At a site without a database the error is
// an ErrNoAccounting.
func (c *Client) QueryAccounting(ctx context.Context, since time.Time, which Which) ([]Job, error) {
	var jobs []Job
	for _, selection := range which.options() {
		found, err := c.account(ctx, since, selection)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, found...)
	}
	return jobs, nil
}

// options returns the options of a separate sacct for the ids and for the names. Given both, sacct would
// return only jobs that match both.
func (w Which) options() []string {
	var options []string
	if len(w.IDs) > 0 {
		ids := make([]string, len(w.IDs))
		for i, id := range w.IDs {
			ids[i] = id.String()
		}
		options = append(options, "--jobs="+strings.Join(ids, ","))
	}
	if len(w.Names) > 0 {
		options = append(options, "--name="+strings.Join(w.Names, ","))
	}
	return options
}

func (c *Client) account(ctx context.Context, since time.Time, selection string) ([]Job, error) {
	separator := "|" + rand.Text()[:8] + "|" // names may have any characters, as in Observe
	out, err := c.query(ctx, "account",
		c.onCluster("sacct", "--allocations", "--parsable2", "--delimiter="+separator, "--noheader", "--duplicates",
			"--starttime="+since.UTC().Format("2006-01-02T15:04:05"), selection, "--format="+sacctFields)...)
	if err != nil {
		return nil, accountingError(err)
	}
	jobs, err := parseAccounting(out, separator)
	if err != nil {
		return nil, &Error{Op: "account", Message: err.Error(), Err: err}
	}
	c.nameCancellers(ctx, jobs)
	return c.setCluster(jobs), nil
}

// setCluster sets the jobs' cluster.
func (c *Client) setCluster(jobs []Job) []Job {
	for i := range jobs {
		jobs[i].Cluster = c.Cluster
	}
	return jobs
}

// Cancel ends the jobs of these ids: each batch script gets TERM, and after the site's KillWait all
// processes get KILL. It is no error if a job does not exist any more. After an error some of the jobs may
// have been ended.
//
// A controller that lost its state assigns ids again. With a name, Cancel ends only the jobs that have it.
// Without one, the caller takes the ids from a fresh snapshot that shows that the jobs are its own.
//
// Cancel costs the controller one request for each job, and with a name two more (Slurm
// src/scancel/scancel.c: main, _signal_job_by_str, _load_job_records).
func (c *Client) Cancel(ctx context.Context, name string, ids ...JobID) error {
	if len(ids) == 0 {
		return nil
	}
	args := []string{"scancel"}
	if name != "" {
		args = append(args, "--name="+name)
	}
	for _, id := range ids {
		args = append(args, id.String())
	}
	// Not --quiet: with a name it fails without a message when the job has ended.
	_, err := c.query(ctx, cancelOp(ids), c.onCluster(args...)...)
	if failed, ok := errors.AsType[*Error](err); ok && len(ids) == 1 && saysJobEnded(failed.Message) {
		return nil
	}
	return err
}

// saysJobEnded reports whether Slurm's words say that a job has ended.
func saysJobEnded(words string) bool {
	return strings.Contains(words, invalidID) || strings.Contains(words, "Job/step already completing or completed")
}

// cancelOp returns the name of a cancellation for errors.
func cancelOp(ids []JobID) string {
	switch len(ids) {
	case 0:
		return "cancel"
	case 1:
		return "cancel " + ids[0].String()
	}
	return fmt.Sprintf("cancel %s and %d more", ids[0], len(ids)-1)
}

const invalidID = "Invalid job id specified"
