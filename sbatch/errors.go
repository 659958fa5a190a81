package sbatch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Error is a failed command of Slurm.
type Error struct {
	// Op is the operation that failed: "submit cl-ann-…", "observe".
	Op string
	// Message is Slurm's output, in one line.
	Message string
	// Refused is set for a submission if it is certain that no job of it will run.
	Refused bool
	// Retry is set for a refusal if the same request may succeed later: a limit on the number of jobs, a
	// partition that is down.
	Retry bool
	// OfSite is set for a refusal of a part of the request that the site or the queue's configuration
	// decides, such as an account, and not the bundle.
	OfSite bool
	// Err is the cause.
	Err error
}

// Error returns the operation and Slurm's message.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Op, e.Message) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same request may succeed later.
func (e *Error) Transient() bool { return !e.Refused || e.Retry }

// Outage reports whether the fault is Slurm's or the site's and not the request's. It is the same
// as Transient.
func (e *Error) Outage() bool { return e.Transient() }

// ErrNoAccounting means that the site has no accounting database.
var ErrNoAccounting = errors.New("there is no accounting database")

// accountingDisabled is sacct's message at a site without a database (Slurm src/sacct/sacct.c: main).
const accountingDisabled = "accounting storage is disabled"

// accountingError adds ErrNoAccounting to the error of a sacct that says so.
func accountingError(err error) error {
	if failed, ok := errors.AsType[*Error](err); ok && strings.Contains(failed.Message, accountingDisabled) {
		failed.Err = errors.Join(ErrNoAccounting, failed.Err)
	}
	return err
}

// submissionFailed begins sbatch's last line if a submission failed. The rest of the line is either the
// controller's answer, which is a refusal, or the reason for a missing answer (Slurm src/sbatch/sbatch.c:
// main).
const submissionFailed = "Batch job submission failed: "

// refusals are the answers with which slurmctld refuses a submission (Slurm 22.05, 24.11 and 26.05,
// src/common/slurm_errno.c: slurm_errtab). No other text counts as a refusal: above all not errors of
// communication, and not those of libc, which sbatch may print if no answer came.
var refusals = []struct { //nolint:gochecknoglobals // a table, never written
	text        string
	retry, site bool // Error.Retry, Error.OfSite
}{
	{text: "Invalid partition name specified", site: true},
	{text: "No partition specified or system default partition", site: true},
	{text: "User's group not permitted to use this partition", site: true},
	{text: "Requested partition configuration not available now", site: true},
	{text: "Multiple partition job request not supported when a partition is set in the association", site: true},
	{text: "Access/permission denied", site: true},
	{text: "Invalid user id", site: true},
	{text: "Invalid group id", site: true},
	{text: "Invalid account or account/partition combination specified", site: true},
	{text: "Invalid qos specification", site: true},
	{text: "Invalid QOS specification, relative QOS can only be used in a single partition per cluster", site: true}, // 24.11
	{text: "Invalid wckey specification", site: true},
	{text: "Invalid license specification", site: true},
	{text: "Invalid feature specification", site: true},
	{text: "Invalid preferred feature specification", site: true},
	{text: "Invalid cluster feature specification", site: true},
	{text: "Invalid node name specified", site: true},
	{text: "Requested nodes not in this partition", site: true},
	{text: "Requested node configuration is not available"},
	{text: "Requested topology configuration is not available"}, // 24.11
	{text: "Invalid generic resource (gres) specification"},
	{text: "Duplicate generic resource (gres) specification"},
	{text: "Invalid GRES specification (with and without type identification)"},
	{text: "Invalid Trackable RESource (TRES) specification"},
	{text: "Requested GRES option unsupported by configured SelectType plugin"},
	{text: "Memory required by task is not available"},
	{text: "More processors requested than permitted"},
	{text: "CPU count specification invalid"},
	{text: "Node count specification invalid"},
	{text: "Task count specification invalid"},
	{text: "Invalid job array specification"},
	{text: "Invalid time specified"},
	{text: "Requested time limit is invalid"},
	{text: "Time limit specification required, but not provided"},
	{text: "Invalid time-min specification"},
	{text: "Invalid --nice value"},
	{text: "Invalid mcs_label specified", site: true},
	{text: "Job dependency problem"},
	{text: "Requested reservation is invalid", site: true},
	{text: "Access denied to requested reservation", site: true},
	{text: "Burst Buffer permission denied", site: true},
	{text: "Burst Buffer request invalid", site: true},
	{text: "Pathname of a file, directory or other parameter too long"},
	{text: "Requested operation not supported on this system", site: true},
	{text: "Requested operation is presently disabled", site: true},
	{text: "Unspecified error", site: true}, // a site's job_submit plugin refuses
	{text: "Job violates accounting/QOS policy", retry: true},
	{text: "Required partition not available (inactive or drain)", retry: true},
	{text: "Required node not available (down, drained or reserved)", retry: true},
	{text: "Requested reservation not usable now", retry: true},
	{text: "Unable to create job record, try again", retry: true},
	{text: "MaxJobCount limit reached", retry: true},         // 26.05, replaces the one above
	{text: "Rate limit exceeded, please retry", retry: true}, // 24.11, the controller has not read the request yet
	{text: "I/O error writing script/environment to file", retry: true},
	{text: "System submissions disabled", retry: true},
	{text: "Slurm backup controller in standby mode", retry: true},
	{text: "Controller is in standby mode, try a different controller", retry: true},
}

// localRefusals are the messages with which sbatch itself refuses a submission, with exit status 1, before
// it asks the controller.
var localRefusals = []string{ //nolint:gochecknoglobals // a table, never written
	"Batch script is empty!",
	"Batch script contains only whitespace!",
	"Batch script contains DOS line breaks",
	"This does not look like a batch script",
	"Invalid generic resource (gres) specification",
	"Invalid numeric value",
	cliFilter,
}

// cliFilter is sbatch's message if a plugin of the site refuses.
const cliFilter = "cli_filter plugin terminated with error"

// classify reads the standard error and the exit status of a failed sbatch. It returns whether it is
// certain that no job of the submission will run, whether the same request may succeed later, and whether
// the site or the queue is at fault (Error.OfSite).
//
// Only the last answer of the controller counts. Before it, sbatch may have printed that Slurm is
// "temporarily unable to accept job", and tried again.
func classify(stderr string, exit int) (refused, retry, ofSite bool) {
	if i := strings.LastIndex(stderr, submissionFailed); i >= 0 {
		answer := stderr[i+len(submissionFailed):]
		for _, r := range refusals {
			if strings.HasPrefix(answer, r.text) {
				return true, r.retry && !tooLarge(stderr[:i]), r.site
			}
		}
		return false, false, false
	}
	if exit == 255 && parserLine.MatchString(stderr) {
		// A bundle chooses the value of --nice, and of no other option that sbatch can refuse.
		return true, false, !strings.Contains(stderr, "--nice")
	}
	for _, line := range ownLine.FindAllStringSubmatch(stderr, -1) {
		for _, o := range localRefusals {
			if strings.HasPrefix(line[1], o) {
				return true, false, o == cliFilter
			}
		}
	}
	return false, false, false
}

// parserLine matches a line in which sbatch refuses an option, before it asks the controller: by getopt(3),
// which names the program by its path, or by Slurm's src/common/slurm_opt.c. The exit status of sbatch is
// then 255. An ssh in a site's wrapper has the same status if it lost its connection, perhaps after the
// submission. So no other line is a refusal, such as one of a site's plugin.
var parserLine = regexp.MustCompile(`(?m)^(?:/\S*/)?sbatch: (?:` +
	`unrecognized option '|invalid option -- '|option '[^']*' (?:is ambiguous|requires an argument|doesn't allow an argument)` +
	`|error: (?:[Ii]nvalid --|--[ug]id only permitted|Rejecting --|Priority must be |"[^"]*" is not a valid node count))`)

// ownLine matches a line that sbatch wrote itself.
var ownLine = regexp.MustCompile(`(?m)^sbatch: (?:error: )?(.*)$`)

// limitLine matches a line with only the name of the limit that a refused submission would have exceeded.
var limitLine = regexp.MustCompile(`(?m)^sbatch: error: ([A-Z]\w+)$`)

// tooLarge reports whether the limit concerns a job's size, such as QOSMaxCpuPerJobLimit: the same job will
// always exceed it. The limits on the number of jobs are AssocMaxSubmitJobLimit, AssocGrpSubmitJobsLimit,
// QOSMaxSubmitJobPerUserLimit, QOSGrpSubmitJobsLimit and MaxSubmitJobsPerAccount (Slurm
// src/common/slurm_protocol_defs.c: job_reason_string).
func tooLarge(stderr string) bool {
	limit := limitLine.FindStringSubmatch(stderr)
	return limit != nil && !SaysFull(limit[1])
}

// SaysFull reports whether Slurm's words about a refused submission name a limit on the number of jobs.
func SaysFull(words string) bool { return strings.Contains(words, "SubmitJob") }

// message returns Slurm's message about a failed command, or the error if there is none.
func message(err error) string {
	failed, ok := errors.AsType[*command.Error](err)
	switch {
	case !ok:
		return err.Error()
	case failed.Stderr == "":
		return failed.Err.Error()
	}
	return oneLine(failed.Stderr)
}

// keptLines is the number of lines of standard error that a message keeps, because wrappers and plugins of
// a site may print many.
const keptLines = 4

// oneLine makes one line of the standard error of a command: the answer, followed by the earlier lines in
// parentheses.
//
//	sbatch: error: Memory specification can not be satisfied
//	sbatch: error: Batch job submission failed: Requested node configuration is not available
//
// becomes "Requested node configuration is not available (Memory specification
// can not be satisfied)".
func oneLine(stderr string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(stderr)) {
		line = strings.TrimSpace(line)
		if before, after, ok := strings.Cut(line, ": "); ok && !strings.Contains(before, " ") {
			// Drop the program's name and the severity.
			line = strings.TrimPrefix(strings.TrimPrefix(after, "error: "), "fatal: ")
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	last := len(lines) - 1
	before := lines[max(0, last-keptLines):last]
	if answer, ok := strings.CutPrefix(lines[last], submissionFailed); ok {
		if len(before) == 0 {
			return answer
		}
		return answer + " (" + strings.Join(before, "; ") + ")"
	}
	return strings.Join(append(before, lines[last]), "; ")
}
