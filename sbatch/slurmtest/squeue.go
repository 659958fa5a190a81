package slurmtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

var squeueOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"all", 'a', false},
	{"array", 'r', false},
	{"format", 'o', true},
	{"jobs", 'j', true},
	{"local", 0, false},
	{"me", 0, false},
	{"name", 'n', true},
	{"nodelist", 'w', true},
	{"noheader", 'h', false},
	{"partition", 'p', true},
	{"states", 't', true},
	{"user", 'u', true},

	{"Format", 'O', true},
	{"json", 0, false},
	{"long", 'l', false},
	{"sort", 'S', true},
	{"start", 0, false},
	{"steps", 's', true},
	{"account", 'A', true},
	{"qos", 'q', true},
	{"yaml", 0, false},
}

// question is what a squeue asks for.
type question struct {
	call
	all, array, bare bool
	format           string
	jobs, names      []string
	nodes            []string
	partitions       []string
	users            []string
	states           []string // empty: those that have not ended; "ALL"
}

func (q *question) set(option, value string) error {
	list := strings.Split(value, ",")
	switch option {
	case "all":
		q.all = true
	case "array":
		q.array = true
	case "noheader":
		q.bare = true
	case "local": // there is no other cluster
	case "format":
		q.format = value
	case "jobs":
		q.jobs = list
		return jobNumbers(list)
	case "name":
		q.names = list
	case "nodelist":
		q.nodes = list
	case "partition":
		q.partitions = list
	case "user":
		q.users = list
	case "me":
		q.users = []string{strconv.Itoa(q.UID)}
	case "states":
		q.states = strings.Split(strings.ToUpper(value), ",")
		return knownStates(q.states)
	default:
		return &UnmodelledError{What: "squeue --" + option}
	}
	return nil
}

func jobNumbers(jobs []string) error {
	for _, j := range jobs {
		number, _, _ := strings.Cut(j, "_")
		if n, err := strconv.ParseInt(number, 10, 32); err != nil || n <= 0 {
			return fail(1, "squeue: error: Invalid job id: "+j)
		}
	}
	return nil
}

func knownStates(states []string) error {
	for _, s := range states {
		known := s == "ALL" || slices.Contains(sbatch.States(), sbatch.State(s))
		for _, code := range stateCodes {
			known = known || s == code
		}
		if !known {
			return fail(1, "squeue: error: Invalid job state specified: "+s,
				"squeue: error: Valid job states include: PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,"+
					"PREEMPTED,BOOT_FAIL,DEADLINE,OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,"+
					"REQUEUE_HOLD,REVOKED,SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED", "")
		}
	}
	return nil
}

// stateCodes are the short forms of those states that a Controller's jobs can
// be in (squeue(1), JOB STATE CODES).
var stateCodes = map[sbatch.State]string{ //nolint:gochecknoglobals // a table, never written
	sbatch.StatePending: "PD", sbatch.StateRunning: "R", sbatch.StateCompleting: "CG", sbatch.StateCompleted: "CD",
	sbatch.StateFailed: "F", sbatch.StateCancelled: "CA", sbatch.StateTimeout: "TO", sbatch.StateNodeFail: "NF",
	sbatch.StatePreempted: "PR", sbatch.StateBootFail: "BF", sbatch.StateOutOfMemory: "OOM",
}

const squeueFormat = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"

func (k *Cluster) squeue(c call) (string, error) {
	q := &question{call: c, format: squeueFormat}
	rest, err := scan("squeue", squeueOptions, c.Args, q.set)
	switch {
	case err != nil:
		return "", err
	case len(rest) > 0:
		return "", &UnmodelledError{What: "squeue " + rest[0]}
	}
	fields, err := parseFormat("squeue", q.format, queueFields)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if !q.bare {
		for _, f := range fields {
			f.print(&out, queueFields[f.letter])
		}
		out.WriteString("\n")
	}
	k.Do(func(now time.Time, m *Controller) {
		if m.stopped {
			err = fail(1, "slurm_load_jobs error: "+away)
			return
		}
		m.advance(now)
		if len(q.jobs) == 1 && !slices.ContainsFunc(m.jobs, q.isOne) {
			err = fail(1, "slurm_load_jobs error: "+invalidID)
			return
		}
		for _, r := range q.records(m) {
			for _, f := range fields {
				f.print(&out, k.queueField(q, now, r, f.letter))
			}
			out.WriteString("\n")
		}
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// record is one line of squeue's: a job, or tasks of an array.
type record struct {
	*job
	tasks []int // that wait
}

// records are the lines of the answer, by partition, state and priority.
func (q *question) records(m *Controller) []record {
	var found []record
	for i := range m.jobs {
		j := &m.jobs[i]
		p := m.partition(j.Partition)
		switch {
		case !q.all && p != nil && p.Hidden, !q.wants(m, j):
		case q.array && len(j.waiting) > 0:
			for _, task := range listed(j.waiting) {
				found = append(found, record{j, []int{task}})
			}
		default:
			found = append(found, record{j, j.waiting})
		}
	}
	slices.SortStableFunc(found, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.view().State, b.view().State),
			cmp.Compare(b.priority(), a.priority()), cmp.Compare(b.id, a.id))
	})
	return found
}

func (j *job) priority() int {
	if j.held {
		return 0
	}
	return 1
}

func (q *question) isOne(j job) bool {
	for _, id := range q.jobs {
		id, task, isTask := strings.Cut(id, "_")
		n := j.id.String() == id || j.array.String() == id
		if n && (!isTask || strconv.Itoa(j.task) == task && len(j.waiting) == 0) {
			return true
		}
	}
	return false
}

func (q *question) wants(m *Controller, j *job) bool {
	in := func(list []string, values ...string) bool {
		return list == nil || slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
	}
	state := j.view().State
	name := ""
	if u := m.site.user(j.user); u != nil {
		name = u.Name
	}
	return (q.states != nil || !state.Ended()) && (slices.Contains(q.states, "ALL") || in(q.states, string(state), stateCodes[state])) &&
		in(q.users, name, strconv.Itoa(j.user)) && in(q.names, j.Name) && in(q.partitions, j.Partition) && in(q.nodes, j.nodeName) &&
		(q.jobs == nil || q.isOne(*j))
}

// queueFields are the fields of squeue(1)'s --format that are modelled, with
// their headings.
var queueFields = map[byte]string{ //nolint:gochecknoglobals // a table, never written
	'A': "JOBID", 'a': "ACCOUNT", 'b': "TRES_PER_NODE", 'C': "CPUS", 'D': "NODES", 'e': "END_TIME", 'F': "ARRAY_JOB_ID", 'i': "JOBID",
	'j': "NAME", 'K': "ARRAY_TASK_ID", 'k': "COMMENT", 'l': "TIME_LIMIT", 'M': "TIME", 'm': "MIN_MEMORY", 'N': "NODELIST",
	'P': "PARTITION", 'Q': "PRIORITY", 'q': "QOS", 'R': "NODELIST(REASON)", 'r': "REASON", 'S': "START_TIME", 'T': "STATE", 't': "ST",
	'U': "UID", 'u': "USER", 'V': "SUBMIT_TIME", 'v': "RESERVATION", 'Z': "WORK_DIR",
}

func (k *Cluster) queueField(q *question, now time.Time, r record, letter byte) string {
	v := r.view()
	array, task := r.array, "N/A"
	id := r.id.String()
	if r.array != 0 {
		task = strconv.Itoa(r.task)
		if len(r.tasks) == 1 && q.array {
			task = strconv.Itoa(r.tasks[0])
		} else if len(r.tasks) > 0 {
			task = taskList(r.tasks, r.atOnce)
		}
		id = fmt.Sprintf("%d_%s", r.array, task)
		if len(r.tasks) > 0 && !q.array {
			id = fmt.Sprintf("%d_[%s]", r.array, task)
		}
	} else {
		array = r.id
	}
	switch letter {
	case 'A':
		return v.ID.String()
	case 'F':
		return array.String()
	case 'i':
		return id
	case 'K':
		return task
	case 'e':
		return q.clock(r.ends(v), "N/A")
	case 'S':
		return q.clock(v.Start, "N/A")
	case 'V':
		return q.clock(r.submitted, "N/A")
	case 'M':
		return span(r.elapsed(now))
	case 'u':
		return k.site.user(r.user).Name
	}
	return plainField(r.job, v, letter)
}

// plainField is a field that is the same for whoever asks.
func plainField(j *job, v sbatch.Job, letter byte) string {
	orNull := func(s string) string { return cmp.Or(s, "(null)") }
	switch letter {
	case 'a':
		return j.Account
	case 'b':
		if j.GPUs == 0 {
			return "N/A"
		}
		return "gres:gpu:" + strconv.FormatInt(j.GPUs, 10)
	case 'C':
		return strconv.FormatInt(max(1, j.CPUs), 10)
	case 'D':
		return strconv.FormatInt(max(1, j.nodes), 10)
	case 'j':
		return v.Name
	case 'k':
		return orNull(v.Comment)
	case 'l':
		return span(j.limit)
	case 'm':
		return strconv.FormatInt(j.MemoryMiB, 10) + "M"
	case 'N':
		return v.Nodes
	case 'P':
		return j.Partition
	case 'Q':
		return strconv.Itoa(j.priority())
	case 'q':
		return j.QOS
	case 'R':
		if v.Nodes != "" && v.State != sbatch.StateFailed && v.State != sbatch.StatePending {
			return v.Nodes
		}
		return "(" + v.Reason + ")"
	case 'r':
		return v.Reason
	case 'T':
		return string(v.State)
	case 't':
		return stateCodes[v.State]
	case 'U':
		return strconv.Itoa(j.user)
	case 'v':
		return orNull(j.Reservation)
	}
	return j.Dir
}

// ends is when a job ended, or is to end.
func (j *job) ends(v sbatch.Job) time.Time {
	if !j.end.IsZero() || v.Start.IsZero() {
		return j.end
	}
	return v.Start.Add(j.limit)
}

func (j *job) elapsed(now time.Time) time.Duration {
	if j.start.IsZero() {
		return 0
	}
	if !j.end.IsZero() {
		now = j.end
	}
	return now.Sub(j.start)
}
