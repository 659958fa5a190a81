package slurmtest

import (
	"slices"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// member is the place of a record in an array. The tasks of an array that have not begun share one record, which has the
// array's number. A task gets a record of its own, with a number of its own, when it starts or is changed; the last one
// keeps the shared record (Slurm src/slurmctld/job_mgr.c: job_array_split).
type member struct {
	number sbatch.JobID // Slurm's number of the record
	array  sbatch.JobID // 0 for a single job
	task   int          // of a record that is not shared
	shared bool
	// waiting has the indices of the tasks that share the record. It is never changed, but replaced. It is empty once the
	// last ones were cancelled as tasks.
	waiting []int
}

// id returns the id of the record's job or task; of a shared record, that of the array.
func (m *member) id() sbatch.JobID {
	if m.array == 0 || m.shared {
		return m.number
	}
	return m.array.Task(m.task)
}

// ids returns the ids of all jobs that the record stands for, as a Client reads them.
func (m *member) ids() []sbatch.JobID {
	if len(m.waiting) == 0 || len(m.waiting) > sbatch.MostTasks {
		return []sbatch.JobID{m.id()}
	}
	all := make([]sbatch.JobID, len(m.waiting))
	for i, task := range m.waiting {
		all[i] = m.array.Task(task)
	}
	return all
}

// size returns the number of jobs that count for a limit.
func (m *member) size() int { return max(1, len(m.waiting)) }

// remove takes a task from those that share the record.
func (m *member) remove(task int) {
	if m.waiting[0] == task {
		m.waiting = m.waiting[1:]
		return
	}
	m.waiting = slices.DeleteFunc(slices.Clone(m.waiting), func(t int) bool { return t == task })
}

// numbered returns the index of the record with a number; -1 if there is none.
func (c *Controller) numbered(number sbatch.JobID) int {
	i, ok := slices.BinarySearchFunc(c.jobs, number, func(j job, n sbatch.JobID) int { return int(j.number - n) })
	if !ok {
		return -1
	}
	return i
}

// jobByID returns the record of a job or a task, also a shared one; nil if it does not exist. Slurm takes the number of a
// task's record for the task, too.
func (c *Controller) jobByID(id sbatch.JobID) *job {
	array, index, isTask := id.ArrayTask()
	number, own := c.tasks[id]
	if !own {
		number = array
	}
	i := c.numbered(number)
	if i < 0 || isTask && !own && (!c.jobs[i].shared || !slices.Contains(c.jobs[i].waiting, index)) {
		return nil
	}
	return &c.jobs[i]
}

// ownJob is jobByID for a change: a task that shares a record gets its own.
func (c *Controller) ownJob(id sbatch.JobID) *job {
	j := c.jobByID(id)
	_, index, isTask := id.ArrayTask()
	if j == nil || !isTask || !j.shared {
		return j
	}
	return &c.jobs[c.split(c.numbered(j.number), index)]
}

// jobsOf returns the numbers of the records of a job, of a task, or of all tasks of an array.
func (c *Controller) jobsOf(id sbatch.JobID) []sbatch.JobID {
	var all []sbatch.JobID
	if _, _, isTask := id.ArrayTask(); !isTask && len(c.tasks) > 0 {
		for i := range c.jobs {
			if c.jobs[i].array == id {
				all = append(all, c.jobs[i].number)
			}
		}
	}
	if j := c.jobByID(id); len(all) == 0 && j != nil {
		all = append(all, j.number)
	}
	return all
}

// split gives a task that shares the record at an index one of its own, and returns its index.
func (c *Controller) split(at, task int) int {
	shared := &c.jobs[at]
	shared.remove(task)
	c.dirty = true
	if c.tasks == nil {
		c.tasks = map[sbatch.JobID]sbatch.JobID{}
	}
	if len(shared.waiting) == 0 {
		shared.member = member{number: shared.number, array: shared.array, task: task}
		c.records[shared.record].member = shared.member
		c.tasks[shared.id()] = shared.number
		return at
	}
	known := &c.records[shared.record]
	known.waiting = shared.waiting // only now does the database learn of tasks that were cancelled before
	j, r := *shared, *known
	j.member = member{number: c.nextID, array: shared.array, task: task}
	r.member = j.member
	c.nextID++
	j.record = len(c.records)
	c.records = append(c.records, r)
	c.jobs = append(c.jobs, j)
	c.tasks[j.id()] = j.number
	return len(c.jobs) - 1
}

// cancelTask cancels a task that shares a record. Nothing is left of it; the record ends with its last task (Slurm
// src/slurmctld/job_mgr.c: job_str_signal).
func (j *job) cancelTask(task int) (left bool) {
	j.remove(task)
	return len(j.waiting) > 0
}
