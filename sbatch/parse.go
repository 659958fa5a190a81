package sbatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The number of fields of a job: seven that parseJob reads, and then in squeue's answer a time limit and a comment, and in
// sacct's an exit status.
const (
	queueFields      = 9
	accountingFields = 8
)

// parseQueue reads squeue's answer, in which the separator precedes each of a job's fields. An answer
// that begins with other text is an error, because it may come from a wrapper and be incomplete.
func parseQueue(out, separator string) ([]Job, error) {
	fields := strings.Split(out, separator)
	if banner := strings.TrimSpace(fields[0]); banner != "" {
		return nil, fmt.Errorf("cannot read %q", shorten(banner))
	}
	fields = fields[1:]
	if len(fields)%queueFields != 0 || (len(fields) > 0 && !strings.HasSuffix(out, "\n")) {
		return nil, fmt.Errorf("cannot read an answer that ends in %q", out[max(0, len(out)-200):])
	}
	jobs := make([]Job, 0, len(fields)/queueFields)
	var ids []JobID
	for f := range slices.Chunk(fields, queueFields) {
		job, err := parseJob(f)
		if err == nil {
			ids, _, err = appendIDs(ids[:0], f[0])
		}
		if err != nil {
			return nil, err
		}
		if job.State == StateCompleted {
			job.Exit = ExitedWell
		}
		job.TimeLimit = parseTimeLimit(f[7])
		if job.Comment = strings.Clone(strings.TrimSuffix(f[8], "\n")); job.Comment == "(null)" {
			job.Comment = ""
		}
		for _, job.ID = range ids {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// parseAccounting reads sacct's answer. It returns the jobs with a record of their own, and the tasks that share one because
// they have not begun. A shared record may still list tasks that have begun since: a task's own record counts.
func parseAccounting(out, separator string) (jobs, shared []Job, err error) {
	records, err := splitRecords(out, separator, accountingFields)
	if err != nil {
		return nil, nil, err
	}
	var ids []JobID
	own := map[JobID]bool{}
	for _, fields := range records {
		job, err := parseJob(fields)
		isShared := false
		if err == nil {
			ids, isShared, err = appendIDs(ids[:0], fields[0])
		}
		if err != nil {
			return nil, nil, err
		}
		if job.State.Ended() && job.State != StateCompleted {
			job.Exit = strings.Clone(fields[7])
		}
		for _, job.ID = range ids {
			if isShared {
				shared = append(shared, job)
			} else {
				jobs, own[job.ID] = append(jobs, job), true
			}
		}
	}
	return jobs, slices.DeleteFunc(shared, func(j Job) bool { return own[j.ID] }), nil
}

// splitRecords returns the fields of each record of an answer. A separator stands between two fields of a record, and a
// line feed after its last one. All fields but the first and the last may have line feeds of their own. It fails if a
// record does not have n fields, because the answer is then incomplete.
func splitRecords(out, separator string, n int) ([][]string, error) {
	if out == "" {
		return nil, nil
	}
	whole, ended := strings.CutSuffix(out, "\n")
	parts := strings.Split(whole, separator)
	if !ended || (len(parts)-1)%(n-1) != 0 {
		return nil, fmt.Errorf("cannot read an answer of records with %d fields that ends in %q", n, out[max(0, len(out)-200):])
	}
	var records [][]string
	first := parts[0]
	for rest := range slices.Chunk(parts[1:], n-1) {
		fields := append([]string{first}, rest...)
		fields[n-1], first, _ = strings.Cut(fields[n-1], "\n") // of this record, and of the next one
		records = append(records, fields)
	}
	if len(records) == 0 || first != "" {
		return nil, fmt.Errorf("cannot read %q: want %d fields", shorten(out), n)
	}
	return records, nil
}

// splitLines returns the fields of each line of an answer. It fails if a line does not have n fields or has
// no line feed, because the answer is then incomplete.
func splitLines(out string, n int) ([][]string, error) {
	var lines [][]string
	for line := range strings.Lines(out) {
		line, whole := strings.CutSuffix(line, "\n")
		fields := strings.Split(line, "|")
		if len(fields) != n || !whole {
			return nil, fmt.Errorf("cannot read %q: want %d fields and a line's end", shorten(line), n)
		}
		lines = append(lines, fields)
	}
	return lines, nil
}

// parseJob reads the fields state, nodes, start, name, reason and submission, which come after the id. The job shares no
// memory with them, so that one kept job of ten thousand does not keep the whole answer in memory.
func parseJob(f []string) (Job, error) {
	state, by, _ := strings.Cut(f[1], " by ") // sacct: "CANCELLED by 1001"
	if state == "" {
		return Job{}, fmt.Errorf("cannot read the state of job %s", shorten(f[0]))
	}
	job := Job{
		State: State(strings.Clone(state)), Nodes: strings.Clone(f[2]), Name: strings.Clone(f[4]), Reason: strings.Clone(f[5]),
	}
	if job.State == StateCancelled {
		job.CancelledBy = strings.Clone(by)
	}
	if job.Nodes == "None assigned" || job.Nodes == "(null)" {
		job.Nodes = ""
	}
	job.Start, job.Submitted = parseTime(f[3]), parseTime(f[6])
	return job, nil
}

// parseTimeLimit reads a job's time limit; zero for NOT_SET and INVALID.
func parseTimeLimit(s string) time.Duration {
	limit, err := ParseLimit(s)
	if err == nil && limit == 0 {
		return Unlimited
	}
	return limit
}

// parseTime reads a time in seconds; zero for "N/A", "Unknown", "None".
func parseTime(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

func shorten(s string) string { return s[:min(len(s), 200)] }
