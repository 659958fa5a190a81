package slurmtest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

var scancelOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"me", 0, false},
	{"name", 'n', true},
	{"quiet", 'Q', false},
	{"user", 'u', true},

	{"account", 'A', true},
	{"batch", 'b', false},
	{"full", 'f', false},
	{"partition", 'p', true},
	{"signal", 's', true},
	{"state", 't', true},
}

// scancel cancels jobs. With a filter it looks at the queue first, and takes
// it ill when a job is not in it or has ended; without one it does not.
func (k *Cluster) scancel(c call) error {
	quiet, name, user := false, "", ""
	rest, err := scan("scancel", scancelOptions, c.Args, func(option, value string) error {
		switch option {
		case "quiet":
			quiet = true
		case "name":
			name = value
		case "user":
			user = value
		case "me":
			user = k.site.user(c.UID).Name
		default:
			return &UnmodelledError{What: "scancel --" + option}
		}
		return nil
	})
	if err != nil {
		return err
	}
	ids := make([]sbatch.JobID, 0, len(rest))
	for _, arg := range rest {
		id, err := strconv.ParseInt(arg, 10, 64)
		if strings.Contains(arg, "_") {
			return &UnmodelledError{What: "scancel of one task"}
		}
		if err != nil || id <= 0 {
			return fail(1, "scancel: error: Invalid job id "+arg)
		}
		ids = append(ids, sbatch.JobID(id))
	}
	if len(ids) == 0 && name == "" && user == "" {
		return fail(1, "scancel: error: No job identification provided")
	}
	k.Do(func(now time.Time, m *Controller) { err = cancelAll(now, m, c.UID, ids, name, user, quiet) })
	return err
}

func cancelAll(now time.Time, m *Controller, uid int, ids []sbatch.JobID, name, user string, quiet bool) error {
	filtered := name != "" || user != ""
	switch {
	case m.stopped && filtered:
		return fail(1, "slurm_load_jobs error: "+away)
	case m.stopped:
		return fail(8, killError(ids[0], away))
	}
	m.advance(now)
	if len(ids) == 0 {
		for i := range m.jobs {
			if j := &m.jobs[i]; !j.state.Ended() && (name == "" || j.Name == name) && !slices.Contains(ids, j.id) &&
				(user == "" && j.user == uid || m.site.user(j.user).Name == user) {
				ids = append(ids, j.id)
			}
		}
	}
	for _, id := range ids {
		f := m.cancel(now, uid, id, name)
		switch {
		case f == nil:
		case f.exit == 1 && !filtered: // none is as good as cancelled
		case f.exit == 1 && quiet:
			return fail(1)
		default:
			return f
		}
	}
	return nil
}
