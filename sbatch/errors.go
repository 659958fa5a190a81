package sbatch

import (
	"fmt"
	"strings"
)

// Error is a failed command of Slurm.
type Error struct {
	// Op says what was tried: "submit cl-ann-…", "observe".
	Op string
	// Message is Slurm's own words, in one line.
	Message string
	// Refused is set for a submission that surely made no job that runs.
	Refused bool
	// Retry is set for a refusal that may be another answer later, without
	// the request being changed: a limit on the number of jobs, a partition
	// that is down.
	Retry bool
	// Err is the cause.
	Err error
}

// Error prints what was tried and Slurm's words.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Op, e.Message) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient says whether the same request may succeed later.
func (e *Error) Transient() bool { return !e.Refused || e.Retry }

// refusals are the words with which slurmctld refuses a submission for good
// (Slurm src/common/slurm_errno.c: slurm_errtab). What is not listed is not
// known to be a refusal: an answer that could not be had, a site plugin's own
// text.
var refusals = []struct { //nolint:gochecknoglobals // a table, never written
	text  string
	retry bool
}{
	{text: "Invalid partition name specified"},
	{text: "Invalid account or account/partition combination specified"},
	{text: "Invalid wckey specification"},
	{text: "Invalid qos specification"},
	{text: "Requested node configuration is not available"},
	{text: "Invalid feature specification"},
	{text: "Invalid node name specified"},
	{text: "Invalid generic resource (gres) specification"},
	{text: "Invalid job array specification"},
	{text: "Invalid reservation", retry: false},
	{text: "Requested reservation is invalid"},
	{text: "Requested time limit is invalid"},
	{text: "User's group not permitted to use this partition"},
	{text: "User not permitted to use this partition"},
	{text: "Access/permission denied"},
	{text: "Batch script is empty!"},
	{text: "This does not look like a batch script"},
	{text: "Batch script contains DOS line breaks"},
	{text: "Memory required by task is not available"},
	{text: "More processors requested than permitted"},
	{text: "Job violates accounting/QOS policy", retry: true},
	{text: "Required partition not available (inactive or drain)", retry: true},
	{text: "Required node not available (down, drained or reserved)", retry: true},
	{text: "Slurm temporarily unable to accept job", retry: true},
	{text: "Resource temporarily unavailable", retry: true},
}

// lastWords is the line of a command's standard error that says most: the
// last one, without the program's name.
func lastWords(stderr string) string {
	line := lastLine(stderr)
	if _, after, ok := strings.Cut(line, ": error: "); ok {
		line = after
	}
	return line
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
