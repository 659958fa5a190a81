package sbatch

import (
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

// Request is one batch job of one task on one node. Empty fields are not
// asked for.
type Request struct {
	Name        string
	Comment     string
	Partition   string
	Account     string
	QOS         string
	WCKey       string
	Reservation string
	Constraint  string
	CPUs        int64
	// MemoryMiB is the memory of the node that the job may use. 0 asks for
	// nothing, never for Slurm's --mem=0, which is the whole node.
	MemoryMiB int64
	// GPUType and GPUs ask for generic resources gpu[:type]:n.
	GPUType string
	GPUs    int64
	// Time is the limit; it is rounded up to whole minutes.
	Time time.Duration
	// Nice lowers the priority; it is never negative.
	Nice int64
	// Dir is the working directory of the batch script, Output the path of
	// the file that its output is appended to, whatever characters are in it.
	Dir    string
	Output string
	// Extra are further options as a site needs them, such as
	// "--licenses=matlab".
	Extra []string
	// Script is the batch script. It begins with "#!".
	Script string
}

// Args are sbatch's options for the request.
func (r Request) Args() []string {
	args := []string{"--parsable", "--export=NONE", "--propagate=NONE", "--no-requeue", "--open-mode=append", "--nodes=1", "--ntasks=1"}
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
	add("output", strings.ReplaceAll(r.Output, "%", "%%")) // sbatch(1): filename pattern
	return append(args, r.Extra...)
}

// Quote makes one word of any text, for the shell that runs a Script.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// jobLine is the answer of sbatch --parsable: the id, and the cluster's name
// where there are several. Site wrappers print other lines around it.
var jobLine = regexp.MustCompile(`(?m)^(\d+)(;\S+)?$`)

// sbatch is the command that submits a request.
func (c *Client) sbatch(r Request, options ...string) command.Command {
	return command.Command{
		Args:  slices.Concat([]string{c.program("sbatch")}, r.Args(), options),
		Env:   c.environment(),
		Stdin: strings.NewReader(r.Script),
	}
}

// Submit submits a job and returns its id.
//
// An error is an *Error. When Refused is set Slurm said no and no job of this
// submission will ever run (a refused one may leave a record of a job that
// FAILED without a node). Otherwise it is not known whether a job was made:
// look for its name before trying again.
func (c *Client) Submit(ctx context.Context, r Request) (JobID, error) {
	ctx, cancel := context.WithTimeout(ctx, c.submitTimeout())
	defer cancel()
	out, err := c.sbatch(r).Output(ctx)
	// An id that was printed counts, whatever came after it: a site's wrapper
	// may exit with a status of its own.
	if id, ok := printedID(string(out)); ok {
		return id, nil
	}
	if err == nil {
		err = fmt.Errorf("sbatch printed no job id: %q", shorten(strings.TrimSpace(string(out))))
	}
	return 0, submitError(r.Name, err)
}

// Try asks the controller whether it would take a job, and submits none (sbatch(1):
// --test-only). The controller checks that partition, account, QOS, reservation,
// constraint and resources exist and are open to this user. It does not refuse a
// time above the partition's limit, nor a partition that is down: it takes such a
// job and lets it wait.
//
// An error is an *Error, with Refused set where Slurm refuses the job.
func (c *Client) Try(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	_, err := c.sbatch(r, "--test-only").Output(ctx)
	if err == nil {
		return nil
	}
	e := &Error{Op: "try to submit " + r.Name, Message: message(err), Err: err}
	var failed *command.Error
	if errors.As(err, &failed) && failed.ExitCode > 0 {
		// Only the words before the controller's answer differ from those of a
		// submission (Slurm src/sbatch/sbatch.c: main).
		said := strings.Replace(failed.Stderr, "allocation failure: ", "sbatch: error: "+failedWords, 1)
		e.Message = words(said)
		e.Refused, e.Retry = judge(said, failed.ExitCode)
	}
	return e
}

// printedID finds the one id in sbatch's answer.
func printedID(out string) (JobID, bool) {
	lines := jobLine.FindAllStringSubmatch(out, -1)
	if len(lines) != 1 {
		return 0, false
	}
	id, err := strconv.ParseInt(lines[0][1], 10, 64)
	return JobID(id), err == nil && id > 0
}

func submitError(name string, err error) *Error {
	e := &Error{Op: "submit " + name, Message: message(err), Err: err}
	var failed *command.Error
	switch {
	case !errors.As(err, &failed):
	case !failed.Started():
		// Nothing was sent to Slurm, but that is for its own repair to end,
		// not the bundle's fault.
		e.Refused, e.Retry = true, true
	case failed.ExitCode > 0: // else killed: by our time-out or somebody else's hand
		e.Refused, e.Retry = judge(failed.Stderr, failed.ExitCode)
	}
	return e
}

// Judge returns the error of a submission for which sbatch exited with this
// status, not 0, after it had written this to its standard error. It is how
// doubles of Slurm say no.
func Judge(name, stderr string, exit int) *Error {
	e := &Error{Op: "submit " + name, Message: words(stderr), Err: fmt.Errorf("exit status %d", exit)}
	e.Refused, e.Retry = judge(strings.TrimSpace(stderr), exit)
	return e
}
