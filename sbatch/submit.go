package sbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Request is one batch job of one process on one node, or an array of such jobs. An empty field requests nothing.
type Request struct {
	Name        string
	Comment     string
	Partition   string
	Account     string
	QOS         string
	WCKey       string
	Reservation string
	Constraint  string
	// Exclude lists nodes on which the job must not run, separated by commas. Slurm refuses the job if no
	// other node fits.
	Exclude string
	CPUs    int64
	// MemoryMiB is the memory of the node that the job may use. 0 requests nothing. It differs from Slurm's
	// --mem=0, which requests the whole node.
	MemoryMiB int64
	// GPUType and GPUs request generic resources gpu[:type]:n.
	GPUType string
	GPUs    int64
	// Time is the limit; it is rounded up to whole minutes.
	Time time.Duration
	// Nice lowers the priority; it is never negative.
	Nice int64
	// Tasks makes an array with that many tasks, whose indices begin at 0; 0 makes a single job. All tasks have the name,
	// the comment and the script. Slurm tells a script its index in SLURM_ARRAY_TASK_ID, and in SLURM_JOB_ID a number of the
	// task's own, which is none of a JobID.
	Tasks int
	// Dir is the working directory of the batch script. Slurm appends its output to the file Output, a path
	// that may have any characters.
	Dir    string
	Output string
	// OutputPattern replaces Output by a filename pattern of sbatch(1): %A is the array's number, and %a a task's index. See
	// LiteralPattern.
	OutputPattern string
	// Env adds variables to the job's environment, or replaces them, as NAME=value. A job has PATH, HOME,
	// USER, LOGNAME, SHELL and LANG, and Slurm's variables. Env must hold no secret: Slurm's database may
	// store it (slurm.conf(5): AccountingStoreFlags=job_env).
	Env []string
	// LoginEnvironment gives the job the environment of the account's login shell on the node instead,
	// without Env. slurmd runs that shell before the job begins, and ends the job if the shell takes too
	// long (slurm.conf(5): BatchStartTimeout).
	LoginEnvironment bool
	// Extra has further options that a site needs, such as "--licenses=matlab".
	Extra []string
	// Script is the batch script. It begins with "#!".
	Script string
}

// Args returns sbatch's options for the request.
func (r Request) Args() []string {
	export := "--export=ALL" // of the environment that the Client gives sbatch
	if r.LoginEnvironment {
		export = "--export=NONE"
	}
	args := []string{"--parsable", export, "--propagate=NONE", "--no-requeue", "--open-mode=append", "--nodes=1", "--ntasks=1"}
	add := func(option, value string) {
		if value != "" {
			args = append(args, "--"+option+"="+value)
		}
	}
	add("job-name", r.Name)
	add("comment", r.Comment)
	add("partition", r.Partition)
	add("account", r.Account)
	add("qos", r.QOS)
	add("wckey", r.WCKey)
	add("reservation", r.Reservation)
	add("constraint", r.Constraint)
	exclude, extra := r.exclude()
	add("exclude", exclude)
	add("cpus-per-task", positive(r.CPUs))
	if r.MemoryMiB > 0 {
		add("mem", positive(r.MemoryMiB)+"M")
	}
	if r.GPUs > 0 {
		gres := "gpu:"
		if r.GPUType != "" {
			gres += r.GPUType + ":"
		}
		add("gres", gres+positive(r.GPUs))
	}
	if r.Time > 0 {
		add("time", strconv.FormatInt(int64((r.Time+time.Minute-1)/time.Minute), 10))
	}
	add("nice", positive(r.Nice))
	add("chdir", r.Dir)
	add("output", cmp.Or(r.OutputPattern, LiteralPattern(r.Output)))
	if r.Tasks > 0 {
		add("array", "0-"+strconv.Itoa(r.Tasks-1))
	}
	return append(args, extra...)
}

// LiteralPattern returns the filename pattern of sbatch(1) for a path that may have any characters.
func LiteralPattern(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// exclude returns all nodes that the job must not run on, and the options of Extra without --exclude. sbatch
// follows only the last --exclude.
func (r Request) exclude() (nodes string, extra []string) {
	var lists []string
	for _, option := range r.Extra {
		if list, ok := strings.CutPrefix(option, "--exclude="); ok {
			lists = append(lists, list)
		} else {
			extra = append(extra, option)
		}
	}
	if r.Exclude != "" {
		lists = append(lists, r.Exclude)
	}
	return strings.Join(lists, ","), extra
}

// Quote makes one shell word of any text, for use in a Script.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// jobLine matches the answer of sbatch --parsable: the id, and the name of the cluster if there are several.
// A site's wrappers print other lines around it.
var jobLine = regexp.MustCompile(`(?m)^(\d+)(;\S+)?$`)

// sbatch returns the command that submits a request. The given options come before those of the request: if
// the request's last option lacks its argument, sbatch takes the next word for it. If it does not end in time, all
// that a site's wrapper has started ends with it, so that no later submission comes of it.
func (c *Client) sbatch(r Request, options ...string) command.Command {
	args := slices.Concat([]string{c.program("sbatch")}, options, r.Args())
	return command.Command{
		Args:  c.onCluster(args...),
		Env:   c.jobEnvironment(r),
		Dir:   anyDir,
		Stdin: strings.NewReader(r.Script),
		Group: true,
	}
}

// Submit submits a job, or an array, and returns its id. The controller counts each task of an array as a job, and accepts
// or refuses all of them.
//
// An error is an *Error. If Refused is set, no job of this submission will ever run (it may leave a record
// of a job that FAILED without a node). Otherwise Slurm may have made a job, and the caller has to search
// for its name before it tries again.
func (c *Client) Submit(ctx context.Context, r Request) (JobID, error) {
	ctx, cancel := context.WithTimeout(ctx, c.submitTimeout())
	defer cancel()
	ended := c.watch("sbatch")
	id, err := c.submit(ctx, r)
	refused, ok := errors.AsType[*Error](err)
	ended(err == nil || ok && refused.Refused && !refused.Retry)
	return id, err
}

func (c *Client) submit(ctx context.Context, r Request) (JobID, error) {
	out, err := c.sbatch(r).Output(ctx)
	// A printed id counts whatever the exit status is, because a site's wrapper may have a status of its
	// own.
	id, cluster, ok := printedID(string(out))
	switch {
	case ok && (c.Cluster == "" || cluster == "" || cluster == c.Cluster):
		return id, nil
	case ok:
		return 0, SubmissionError(r.Name, fmt.Errorf("sbatch made job %s on cluster %s, and not on %s", id, cluster, c.Cluster))
	case err == nil:
		err = fmt.Errorf("sbatch printed no job id: %q", shorten(strings.TrimSpace(string(out))))
	}
	return 0, SubmissionError(r.Name, err)
}

// Try asks the controller whether it would accept a job, and submits none (sbatch(1): --test-only). The
// controller checks that partition, account, QOS, reservation, constraint and resources exist and are open
// to this user. It does not refuse a time above the partition's limit, nor a partition that is down: it
// accepts such a job and lets it wait.
//
// An error is an *Error, with Refused set if Slurm refuses the job.
func (c *Client) Try(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	ended := c.watch(testOnly)
	_, err := c.sbatch(r, "--test-only").Output(ctx)
	if err == nil {
		ended(true)
		return nil
	}
	e := trialError(r.Name, err)
	ended(e.Refused && !e.Retry)
	return e
}

// trialError classifies the error of an sbatch --test-only for a job of this name.
func trialError(name string, err error) *Error {
	e := &Error{Op: "try to submit " + name, Message: message(err), Err: err}
	if failed, ok := errors.AsType[*command.Error](err); ok && failed.ExitCode > 0 {
		// Only the text before the controller's answer differs from a submission's (Slurm
		// src/sbatch/sbatch.c: main).
		stderr := strings.Replace(failed.Stderr, "allocation failure: ", "sbatch: error: "+submissionFailed, 1)
		e.Message = oneLine(stderr)
		e.Refused, e.Retry, e.OfSite = classify(stderr, failed.ExitCode)
	}
	return e
}

// CommandLine returns the command that Submit runs for a request, for people; the script goes to its standard input.
func (c *Client) CommandLine(r Request) []string { return c.sbatch(r).Args }

// printedID returns the id in sbatch's answer, if there is exactly one, and the name of its cluster.
func printedID(out string) (id JobID, cluster string, ok bool) {
	lines := jobLine.FindAllStringSubmatch(out, -1)
	if len(lines) != 1 {
		return 0, "", false
	}
	id, err := ParseJobID(lines[0][1])
	return id, strings.TrimPrefix(lines[0][2], ";"), err == nil
}

// SubmissionError classifies the error of an sbatch for a job of this name. Test doubles of Slurm use it
// too.
func SubmissionError(name string, err error) *Error {
	e := &Error{Op: "submit " + name, Message: message(err), Err: err}
	var failed *command.Error
	switch {
	case !errors.As(err, &failed):
	case failed.ExitCode > 0:
		e.Refused, e.Retry, e.OfSite = classify(failed.Stderr, failed.ExitCode)
	case !failed.Started(): // a started one was killed, by the time-out or by another process
		// Slurm got no request. The job's request is not at fault: it may succeed once sbatch can be
		// started again.
		e.Refused, e.Retry = true, true
	}
	return e
}
