package sbatch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MostTasks bounds the tasks that one record of an answer is expanded into. A user's own larger array stays one Job.
const MostTasks = 10_000

// taskRange is a part of a list of tasks: each step-th index from first to last.
type taskRange struct{ first, last, step int64 }

// appendIDs adds the ids of one record of an answer: of a single job, of a task ("123_4"), or of all tasks of an array that
// share a record ("123_[0-3,7,9-20:2%5]"; shared is then set). The id of a component of a heterogeneous job is the leader's
// plus the offset: one request makes all of them.
//
// Slurm src/squeue/print.c: _print_job_job_id; src/common/slurmdb_defs.c: slurmdb_get_job_id_str;
// src/common/slurm_protocol_defs.c: xlate_array_task_str.
func appendIDs(ids []JobID, text string) (all []JobID, shared bool, err error) {
	number, list, isList := strings.Cut(text, "_[")
	list, closed := strings.CutSuffix(list, "]")
	leader, offset, isComponent := strings.Cut(number, "+")
	id, err := ParseJobID(leader)
	switch {
	case err != nil:
		return nil, false, err
	case isComponent:
		k, ok := parseDigits(offset, mostIndex)
		if !ok || isList || int64(id)+k > mostNumber {
			return nil, false, fmt.Errorf("cannot read job id %q", shorten(text))
		}
		return append(ids, id+JobID(k)), false, nil
	case !isList:
		return append(ids, id), false, nil
	}
	ranges, err := parseTaskList(list)
	if _, _, isTask := id.ArrayTask(); err != nil || isTask || !closed {
		return nil, false, fmt.Errorf("cannot read job id %q", shorten(text))
	}
	count := int64(0)
	for _, r := range ranges {
		count += (r.last-r.first)/r.step + 1
	}
	if count > MostTasks {
		return append(ids, id), true, nil
	}
	ids = slices.Grow(ids, int(count))
	for _, r := range ranges {
		for index := r.first; index <= r.last; index += r.step {
			ids = append(ids, id.Task(int(index)))
		}
	}
	return ids, true, nil
}

// parseTaskList reads a list such as "0-3,7,9-20:2%5". The number after "%" bounds the tasks that run at once.
func parseTaskList(list string) ([]taskRange, error) {
	list, _, _ = strings.Cut(list, "%")
	var ranges []taskRange
	for part := range strings.SplitSeq(list, ",") {
		bounds, step, stepped := strings.Cut(part, ":")
		first, last, isRange := strings.Cut(bounds, "-")
		if !isRange {
			last = first
		}
		if !stepped {
			step = "1"
		}
		r, ok := taskRange{}, [3]bool{}
		r.first, ok[0] = parseDigits(first, mostIndex)
		r.last, ok[1] = parseDigits(last, mostIndex)
		r.step, ok[2] = parseDigits(step, mostIndex)
		if ok != [3]bool{true, true, true} || r.last < r.first || r.step == 0 {
			return nil, fmt.Errorf("cannot read the tasks %q", shorten(list))
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// asked is the set of ids of a question to the accounting database.
type asked map[JobID]bool

func ask(ids []JobID) asked {
	a := make(asked, len(ids))
	for _, id := range ids {
		a[id] = true
	}
	return a
}

// has reports whether the question was for a job, or for the array of a task.
func (a asked) has(id JobID) bool { return a[id] || a.hasArrayOf(id) }

func (a asked) hasArrayOf(id JobID) bool { array, _, _ := id.ArrayTask(); return a[array] }

// mostListed bounds the tasks of one array that a command line lists. sacct knows no ranges, and a command line has an end.
const mostListed = 100

// option returns sacct's option for the ids. For many tasks of an array it selects all of them.
func (a asked) option() string {
	ids := slices.Sorted(maps.Keys(a))
	tasks := map[JobID]int{}
	for _, id := range ids {
		if array, _, isTask := id.ArrayTask(); isTask {
			tasks[array]++
		}
	}
	var list []string
	for _, id := range ids {
		if array, _, _ := id.ArrayTask(); tasks[array] <= mostListed {
			list = append(list, id.String())
		}
	}
	for _, array := range slices.Sorted(maps.Keys(tasks)) {
		if tasks[array] > mostListed {
			list = append(list, array.String())
		}
	}
	return "--jobs=" + strings.Join(list, ",")
}

// cancelWords returns the ids as the fewest words for scancel: all tasks of one array are one word, "123_[0-5,7]".
func cancelWords(ids []JobID) []string {
	var all []string
	indices, arrays := map[JobID][]int{}, []JobID(nil)
	for _, id := range ids {
		array, index, isTask := id.ArrayTask()
		if !isTask {
			all = append(all, id.String())
			continue
		}
		if indices[array] == nil {
			arrays = append(arrays, array)
		}
		indices[array] = append(indices[array], index)
	}
	for _, array := range arrays {
		if of := indices[array]; len(of) == 1 {
			all = append(all, array.Task(of[0]).String())
		} else {
			all = append(all, array.String()+"_["+joinTasks(of)+"]")
		}
	}
	return all
}

// joinTasks writes indices as a list, such as "0-5,7".
func joinTasks(indices []int) string {
	indices = slices.Clone(indices)
	slices.Sort(indices)
	indices = slices.Compact(indices)
	var list []byte
	for len(indices) > 0 {
		n := 1
		for n < len(indices) && indices[n] == indices[0]+n {
			n++
		}
		if list != nil {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(indices[0]), 10)
		if n > 1 {
			list = strconv.AppendInt(append(list, '-'), int64(indices[n-1]), 10)
		}
		indices = indices[n:]
	}
	return string(list)
}
