package sbatch

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// JobID identifies a job of one cluster: a single job, an array, or one task of an array. Zero is no job.
//
// The id of a single job, and of an array, is its number, as Slurm's commands print it. A task's id is made of the number of its
// array and of the task's index: String returns "123_4", as Slurm's commands print and accept it. Slurm also gives each task
// a number of its own when the task starts (SLURM_JOB_ID), and none before. That number is never a task's JobID, because a
// waiting task could not be recognized after its start.
//
// The value of a task's id has the array's number in the low 32 bits, and the index plus 1 above them. Ids are thus
// comparable, and fit in a column of integers. Their order is that of submission for single jobs, and that of the indices for
// the tasks of an array.
type JobID int64

// numberBits is the size of a job's number in Slurm (a uint32_t).
const numberBits = 32

// Bounds of the parts of an id. Slurm permits arrays of up to four million tasks (slurm.conf(5): MaxArraySize).
const (
	mostNumber = 1<<numberBits - 1
	mostIndex  = 1<<(62-numberBits) - 1
)

// Task returns the id of the task with an index, from 0, of the array id.
func (id JobID) Task(index int) JobID { return id&mostNumber | JobID(index+1)<<numberBits }

// ArrayTask returns the array of a task, and its index in it. ok is false, and array is id, if the id is none of a task.
func (id JobID) ArrayTask() (array JobID, index int, ok bool) {
	if id>>numberBits <= 0 {
		return id, 0, false
	}
	return id & mostNumber, int(id>>numberBits) - 1, true
}

// String returns the id in the form that Slurm's commands accept: "123", or "123_4" for a task.
func (id JobID) String() string {
	array, index, ok := id.ArrayTask()
	number := strconv.FormatInt(int64(array), 10)
	if !ok {
		return number
	}
	return number + "_" + strconv.Itoa(index)
}

// ParseJobID reads what String returns.
func ParseJobID(s string) (JobID, error) {
	number, task, isTask := strings.Cut(s, "_")
	id, ok := parseDigits(number, mostNumber)
	if !ok || id == 0 {
		return 0, fmt.Errorf("cannot read job id %q", shorten(s))
	}
	if !isTask {
		return JobID(id), nil
	}
	index, ok := parseDigits(task, mostIndex)
	if !ok {
		return 0, fmt.Errorf("cannot read job id %q", shorten(s))
	}
	return JobID(id).Task(int(index)), nil
}

// parseDigits reads a decimal number as Slurm prints it: without a sign, and without zeros before it.
func parseDigits(s string, most int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && n <= most && strconv.FormatInt(n, 10) == s
}

// MarshalJSON writes a number, and for a task the text of String: many readers of JSON lose digits of so large a number.
func (id JobID) MarshalJSON() ([]byte, error) {
	if _, _, ok := id.ArrayTask(); ok {
		return strconv.AppendQuote(nil, id.String()), nil
	}
	return strconv.AppendInt(nil, int64(id), 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (id *JobID) UnmarshalJSON(data []byte) error {
	if text, ok := bytes.CutPrefix(data, []byte{'"'}); ok {
		read, err := ParseJobID(string(bytes.TrimSuffix(text, []byte{'"'})))
		if err != nil {
			return err
		}
		*id = read
		return nil
	}
	if string(data) == "null" {
		return nil // json.Unmarshaler: by convention
	}
	number, ok := parseDigits(string(data), mostNumber)
	if !ok {
		return fmt.Errorf("cannot read job id %s", shorten(string(data)))
	}
	*id = JobID(number)
	return nil
}
