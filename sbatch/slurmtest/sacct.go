package slurmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

var sacctOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"allocations", 'X', false},
	{"allusers", 'a', false},
	{"duplicates", 'D', false},
	{"format", 'o', true},
	{"jobs", 'j', true},
	{"name", 0, true},
	{"noheader", 'n', false},
	{"parsable2", 'P', false},
	{"starttime", 'S', true},
	{"user", 'u', true},

	{"endtime", 'E', true},
	{"json", 0, false},
	{"parsable", 'p', false},
	{"partition", 'r', true},
	{"state", 's', true},
}

// inquiry is what a sacct asks for.
type inquiry struct {
	call
	allocations, duplicates, bare, parsable, everybody bool
	fields, jobs, names, users                         []string
	since                                              time.Time
}

func (q *inquiry) set(option, value string) error {
	list := strings.Split(value, ",")
	switch option {
	case "allocations":
		q.allocations = true
	case "allusers":
		q.everybody = true
	case "duplicates":
		q.duplicates = true
	case "noheader":
		q.bare = true
	case "parsable2":
		q.parsable = true
	case "format":
		q.fields = list
	case "jobs":
		q.jobs = list
	case "name":
		q.names = list
	case "user":
		q.users = list
	case "starttime":
		since, err := time.ParseInLocation(clockFormat, value, q.zone())
		if q.since = since; err != nil {
			return fail(1, "Invalid time specification (pos=0): "+value)
		}
	default:
		return &UnmodelledError{What: "sacct --" + option}
	}
	return nil
}

func (k *Cluster) sacct(c call) (string, error) {
	q := &inquiry{call: c}
	rest, err := scan("sacct", sacctOptions, c.Args, q.set)
	switch {
	case err != nil:
		return "", err
	case len(rest) > 0 || !q.allocations || !q.parsable || q.fields == nil:
		return "", &UnmodelledError{What: "sacct without --allocations, --parsable2 and --format"}
	case q.since.IsZero() && q.jobs == nil:
		now := time.Now().In(c.zone())
		q.since = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	}
	if err := q.header(); err != nil {
		return "", err
	}
	var out strings.Builder
	if !q.bare {
		out.WriteString(strings.Join(q.fields, "|") + "\n")
	}
	k.Do(func(now time.Time, m *Controller) {
		m.advance(now)
		if now.Before(m.Database.AwayUntil) {
			err = fail(1, databaseAway)
			return
		}
		for i := range m.rows {
			a, ok := q.wants(now, m, i)
			if !ok {
				continue
			}
			for n, f := range q.fields {
				if n > 0 {
					out.WriteString("|")
				}
				out.WriteString(q.field(m, &m.rows[i], a, f))
			}
			out.WriteString("\n")
		}
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// sacctFields are the fields of sacct(1)'s --format that are modelled.
var sacctFields = []string{ //nolint:gochecknoglobals // a table, never written
	"Account", "Comment", "Eligible", "End", "ExitCode", "JobID", "JobIDRaw", "JobName", "NodeList", "Partition", "QOS", "Reason",
	"Start", "State", "Submit", "User", "WCKey",
}

// header spells the fields as Slurm does.
func (q *inquiry) header() error {
	for i, f := range q.fields {
		n := slices.IndexFunc(sacctFields, func(known string) bool { return strings.EqualFold(known, f) })
		if n < 0 {
			return &UnmodelledError{What: "sacct --format=" + f}
		}
		q.fields[i] = sacctFields[n]
	}
	return nil
}

// wants says whether a row is shown, and how. Of a job's instances only the
// last one is, unless all are asked for.
func (q *inquiry) wants(now time.Time, m *Controller, i int) (account, bool) {
	r := &m.rows[i]
	a, shown := m.shown(now, r)
	name := ""
	if u := m.site.user(r.user); u != nil {
		name = u.Name
	}
	switch {
	case !shown, !a.end.IsZero() && a.end.Before(q.since):
		return a, false
	case q.names != nil && !slices.Contains(q.names, a.name(r)):
		return a, false
	case q.jobs != nil && !slices.Contains(q.jobs, r.id.String()) && !slices.Contains(q.jobs, r.array.String()):
		return a, false
	case q.users != nil && !slices.Contains(q.users, name), q.users == nil && !q.everybody && q.UID != 0 && r.user != q.UID:
		return a, false
	case q.duplicates:
		return a, true
	}
	for later := i + 1; later < len(m.rows); later++ {
		if _, shown := m.shown(now, &m.rows[later]); shown && m.rows[later].id == r.id {
			return a, false
		}
	}
	return a, true
}

func (a account) name(r *row) string {
	if !a.named {
		return "allocation"
	}
	return r.Name
}

func (q *inquiry) field(m *Controller, r *row, a account, field string) string {
	switch field {
	case "JobIDRaw":
		return r.id.String()
	case "JobID":
		if r.array == 0 {
			return r.id.String()
		}
		if len(r.waiting) > 0 {
			return fmt.Sprintf("%d_[%s]", r.array, taskList(r.waiting, r.atOnce))
		}
		return fmt.Sprintf("%d_%d", r.array, r.task)
	case "JobName":
		return a.name(r)
	case "State":
		if a.state == sbatch.StateCancelled {
			return "CANCELLED by " + strconv.Itoa(r.cancelledBy)
		}
		return string(a.state)
	case "NodeList":
		if a.node == "" {
			return "None assigned"
		}
		return a.node
	case "Start":
		if a.start.IsZero() && !a.end.IsZero() {
			return "None"
		}
		return q.clock(a.start, "Unknown")
	case "End":
		return q.clock(a.end, "Unknown")
	case "Submit":
		return q.clock(r.submitted, "Unknown")
	case "Eligible":
		return q.clock(r.eligible, "Unknown")
	case "Reason":
		return a.reason
	case "Comment": // it arrives with the end
		if a.end.IsZero() {
			return ""
		}
		return r.Comment
	case "ExitCode":
		if a.end.IsZero() {
			return "0:0"
		}
		return r.exit.String()
	case "User":
		return m.site.user(r.user).Name
	}
	return r.given(field)
}

// given is a field that was asked for at the submission.
func (r *row) given(field string) string {
	switch field {
	case "Account":
		return r.Account
	case "Partition":
		return r.Partition
	case "QOS":
		return r.QOS
	}
	return r.WCKey
}

// String prints an end as Slurm does, such as 3:0.
func (e End) String() string {
	if e.OutOfMemory {
		return "0:125"
	}
	return fmt.Sprintf("%d:%d", e.Code, e.Signal)
}
