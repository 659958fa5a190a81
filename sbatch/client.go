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
	// A length of 0 is no limit: squeue and sacct would cut long lists of tasks. SQUEUE_ARRAY_UNIQUE keeps a task that is held or
	// was requeued apart from the record of those that wait; Slurm 22.05 knows it, and the option --array-unique, while newer ones
	// have neither, refuse the option, and join the records and their reasons (Slurm src/squeue/print.c:
	// _combine_pending_array_tasks).
	env := append(c.environment(), "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", "SQUEUE_ARRAY_UNIQUE=1")
	out, err := command.Command{Args: args, Env: env, Dir: anyDir}.Output(ctx)
	ended(err == nil || saysJobEnded(message(err)))
	if err != nil {
		return "", &Error{Op: op, Message: message(err), Err: err}
	}
	return string(out), nil
}

// The fields of a job, in the order of parseJob. Observe replaces "|" in squeueFields by a separator.
const (
	squeueFields = "|%i|%T|%N|%S|%j|%r|%V|%l|%k"
	sacctFields  = "JobID,State,NodeList,Start,JobName,Reason,Submit,ExitCode"
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
// the user's jobs). It returns a complete answer or an error.
//
// Each task of an array is a Job. Slurm has one record for all tasks that wait; that of more than MostTasks stays one Job,
// with the array's id. A task that is cancelled before it begins leaves the snapshot, or is CANCELLED if all that wait are
// cancelled at once. When none is left, the array's id may be CANCELLED instead.
func (c *Client) Observe(ctx context.Context, notBefore time.Time) (Snapshot, error) {
	// A name or a comment may contain any text of a user, including "|" and line feeds, but not a random
	// separator.
	separator := "|" + rand.Text()[:8] + "|"
	format := strings.ReplaceAll(squeueFields, "|", separator)
	out, err := c.query(ctx, "observe",
		c.onCluster("squeue", "--all", "--me", "--local", "--states=all", "--noheader", "--format="+format)...)
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
//
// The tasks of an array that wait share one record, and so do those that were cancelled before they began. A question by the
// array's id returns it, one by a task's id does not. The database changes it only when a task begins, or the last one is
// gone: until then a task that was cancelled is PENDING there.
func (c *Client) QueryAccounting(ctx context.Context, since time.Time, which Which) ([]Job, error) {
	var jobs []Job
	if len(which.IDs) > 0 {
		asked := ask(which.IDs)
		own, shared, err := c.account(ctx, since, asked.option())
		if err != nil {
			return nil, err
		}
		own = slices.DeleteFunc(own, func(j Job) bool { return !asked.has(j.ID) })
		shared = slices.DeleteFunc(shared, func(j Job) bool { return !asked.hasArrayOf(j.ID) })
		jobs = slices.Concat(own, shared)
	}
	if len(which.Names) > 0 { // in a separate sacct, because it would return only jobs that match both
		own, shared, err := c.account(ctx, since, "--name="+strings.Join(which.Names, ","))
		if err != nil {
			return nil, err
		}
		jobs = slices.Concat(jobs, own, shared)
	}
	c.nameCancellers(ctx, jobs)
	return c.setCluster(jobs), nil
}

func (c *Client) account(ctx context.Context, since time.Time, selection string) (own, shared []Job, err error) {
	separator := "|" + rand.Text()[:8] + "|" // names may have any characters, as in Observe
	out, err := c.query(ctx, "account",
		c.onCluster("sacct", "--allocations", "--parsable2", "--delimiter="+separator, "--noheader", "--duplicates",
			"--starttime="+since.UTC().Format("2006-01-02T15:04:05"), selection, "--format="+sacctFields)...)
	if err != nil {
		return nil, nil, accountingError(err)
	}
	if own, shared, err = parseAccounting(out, separator); err != nil {
		return nil, nil, &Error{Op: "account", Message: err.Error(), Err: err}
	}
	return own, shared, nil
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
// Cancel costs the controller one request for each single job, and one for all tasks of an array; with a name two more for
// all single jobs and arrays, and two more for all tasks (Slurm src/scancel/scancel.c: main, _signal_job_by_str,
// _load_job_records). With a name, a whole array costs one for each of its records.
func (c *Client) Cancel(ctx context.Context, name string, ids ...JobID) error {
	if len(ids) == 0 {
		return nil
	}
	op := cancelOp(ids)
	if name == "" {
		return c.scancel(ctx, op, cancelWords(ids))
	}
	whole, tasks := splitTasks(ids)
	var err error
	if len(whole) > 0 {
		err = c.scancel(ctx, op, cancelWords(whole), "--name="+name)
	}
	if len(tasks) == 0 {
		return err
	}
	// For one task that waits, scancel with a name would cancel all that wait (Slurm src/scancel/scancel.c:
	// _cancel_jobid_by_state, _build_jobid_str).
	arrays, errNames := c.arraysNamed(ctx, op, name, tasks)
	tasks = slices.DeleteFunc(tasks, func(id JobID) bool { array, _, _ := id.ArrayTask(); return !arrays[array] })
	if errNames == nil && len(tasks) > 0 {
		errNames = c.scancel(ctx, op, cancelWords(tasks))
	}
	return errors.Join(err, errNames)
}

// splitTasks returns the ids of single jobs and arrays, and those of tasks.
func splitTasks(ids []JobID) (whole, tasks []JobID) {
	for _, id := range ids {
		if _, _, isTask := id.ArrayTask(); isTask {
			tasks = append(tasks, id)
		} else {
			whole = append(whole, id)
		}
	}
	return whole, tasks
}

func (c *Client) scancel(ctx context.Context, op string, jobs []string, options ...string) error {
	// Not --quiet: with a name it fails without a message when the job has ended.
	_, err := c.query(ctx, op, c.onCluster(slices.Concat([]string{"scancel"}, options, jobs)...)...)
	if failed, ok := errors.AsType[*Error](err); ok && len(jobs) == 1 && saysJobEnded(failed.Message) {
		return nil
	}
	return err
}

// arraysNamed returns the arrays of the tasks that have a name, and a task that has not ended.
func (c *Client) arraysNamed(ctx context.Context, op, name string, tasks []JobID) (map[JobID]bool, error) {
	named := map[JobID]bool{}
	for _, id := range tasks {
		array, _, _ := id.ArrayTask()
		named[array] = false
	}
	var list []string
	for array := range named {
		list = append(list, array.String())
	}
	separator := "|" + rand.Text()[:8] + "|"
	out, err := c.query(ctx, op, c.onCluster("squeue", "--all", "--local", "--noheader", "--jobs="+strings.Join(list, ","),
		"--format="+separator+"%F"+separator+"%j")...)
	if failed, ok := errors.AsType[*Error](err); ok && saysJobEnded(failed.Message) {
		return nil, nil // the only array
	}
	if err != nil {
		return nil, err
	}
	fields := strings.Split(out, separator)
	if strings.TrimSpace(fields[0]) != "" || len(fields)%2 == 0 || len(fields) > 1 && !strings.HasSuffix(out, "\n") {
		err := fmt.Errorf("cannot read the names in %q", shorten(out))
		return nil, &Error{Op: op, Message: err.Error(), Err: err}
	}
	for f := range slices.Chunk(fields[1:], 2) {
		if array, err := ParseJobID(f[0]); err == nil && strings.TrimSuffix(f[1], "\n") == name {
			named[array] = true
		}
	}
	return named, nil
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
