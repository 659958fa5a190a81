package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Commands judges whether Slurm's commands are in slurm.bin, or in PATH where
// that is empty.
func Commands(bin, version string, err error) Check {
	if err == nil {
		return ok("slurm.bin", "%s, in %s", version, cmp.Or(bin, "PATH"))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unreachable("slurm.bin", err.Error(), "this host or the disk of Slurm's commands may be slow: try again, or by hand: sbatch --version")
	}
	var refused *command.Error
	if errors.As(err, &refused) && refused.Started() {
		return failed("slurm.bin", err.Error(), "does slurm.bin name the directory of Slurm's own commands?")
	}
	absent := "sbatch"
	if refused != nil && len(refused.Args) > 0 {
		absent = filepath.Base(refused.Args[0])
	}
	if bin == "" {
		return failed("slurm.bin", "there is no "+absent+" in PATH", "name the directory of Slurm's commands as slurm.bin, such as \"/opt/slurm/bin\", or add it to PATH")
	}
	return failed("slurm.bin", "there is no "+absent+" in "+bin, "name the directory of Slurm's commands as slurm.bin, or leave it out where they are in PATH")
}

// Controller judges whether slurmctld answers.
func Controller(partitions int, err error) Check {
	if err == nil {
		return ok("slurm", "slurmctld answers: %s", termtext.Count(partitions, "partition"))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return unreachable("slurm", err.Error(), "slurmctld may be busy: try again later, or by hand: sinfo")
	}
	return unreachable("slurm", err.Error(), "is slurm.conf the right one, and slurmctld up? Try sinfo")
}

// Settings judges Slurm's own settings, and the keys that override them.
func Settings(c config.Slurm, s sbatch.Settings, err error) Check {
	const name = "slurm.settings"
	switch {
	case err != nil:
		return warning(name, err.Error(), "the bridge uses safe values: name the site's as slurm.accounting and slurm.min_job_age")
	case s.MinJobAge > 0 && c.MinJobAge.Or(0) > s.MinJobAge:
		return failed("slurm.min_job_age", fmt.Sprintf("%s is above the site's MinJobAge, %s", codalab.SpellDuration(c.MinJobAge.Duration), codalab.SpellDuration(s.MinJobAge)), "leave it out: the bridge asks Slurm for it")
	}
	return ok(name, "%s", s)
}

// Accounting judges whether sacct answers where the configuration says that it
// works.
func Accounting(configured bool, err error) Check {
	switch {
	case !configured:
		return ok("slurm.accounting", "there is none, and sacct is not asked; so these are not known: "+plan.UnknownWithoutAccounting)
	case err == nil:
		return ok("slurm.accounting", "sacct answers")
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable("slurm.accounting", err.Error(), "the accounting database may be busy: try again later, or by hand: sacct")
	}
	return failed("slurm.accounting", err.Error(), "write slurm.accounting = false where this site has no accounting database")
}

// Site has the partitions of Slurm, and the accounts and limits of the bridge's user.
type Site struct {
	User         string
	Partitions   []sbatch.Partition
	Associations []sbatch.Association
	// Limits are those of QOS and associations; nil if they are not known.
	Limits plan.Limits
}

func (s Site) names() []string {
	var names []string
	for _, p := range s.Partitions {
		names = append(names, p.Name)
	}
	return names
}

// Queue judges a queue's partition, times and GPUs by what Slurm said of its
// partitions.
func Queue(q plan.Queue, s Site) []Check {
	of, check := partition(q, s)
	if check.Verdict == Failed {
		return []Check{check}
	}
	return slices.Concat([]Check{check}, times(q, of), gpus(q, of))
}

// key returns a key of a queue's table.
func key(q plan.Queue, name string) string { return "queue." + q.Name + "." + name }

// partition judges a queue's partition and returns it. Of a queue with several
// partitions it returns what any of them allows.
func partition(q plan.Queue, s Site) (sbatch.Partition, Check) {
	name := key(q, "partition")
	wanted := strings.Split(q.Partition, ",")
	if q.Partition == "" {
		i := slices.IndexFunc(s.Partitions, func(p sbatch.Partition) bool { return p.Default })
		if i < 0 {
			return sbatch.Partition{}, failed(name, "no partition is named, and Slurm has no default one", "there are "+list(s.names()))
		}
		wanted = []string{s.Partitions[i].Name}
	}
	var of sbatch.Partition
	for i, w := range wanted {
		at := slices.IndexFunc(s.Partitions, func(p sbatch.Partition) bool { return p.Name == w })
		switch {
		case at < 0:
			return of, failed(name, fmt.Sprintf("Slurm has no partition %q", w), didYouMean(name, w, s.names()))
		case i == 0:
			of = s.Partitions[at]
		default:
			of = either(of, s.Partitions[at])
		}
	}
	switch {
	case of.Nodes == 0:
		return of, failed(name, of.Name+" has no nodes", "name another partition: there are "+list(s.names()))
	case !of.Up():
		return of, failed(name, of.Name+" is "+of.State+": no job begins there", "name another partition, or ask the cluster's administrator")
	case of.Ready == 0:
		return of, warning(name, fmt.Sprintf("no node of %s is up: %s", of.Name, termtext.Count(of.Nodes, "node")), "jobs wait until one is; ask the cluster's administrator")
	}
	nodes := termtext.Count(of.Nodes, "node")
	if of.Ready < of.Nodes {
		nodes += fmt.Sprintf(" (%d of them up)", of.Ready)
	}
	return of, ok(name, "%s is up: %s, of which one has at most %s", of.Name, nodes, sizes(of))
}

// sizes returns the resources of single nodes, for people. The most of each resource may be that of different
// nodes, and no job gets it all.
func sizes(of sbatch.Partition) string {
	if len(of.Sizes) < 2 {
		return has(of.Most)
	}
	var each []string
	for _, s := range of.Sizes {
		each = append(each, has(s))
	}
	return strings.Join(each, "; or ")
}

// either returns the limits of a job that may run in both of two partitions.
func either(a, b sbatch.Partition) sbatch.Partition {
	a.Name += "," + b.Name
	a.Nodes, a.Ready = a.Nodes+b.Nodes, a.Ready+b.Ready
	if b.Up() {
		a.State = b.State
	}
	if a.MaxTime == 0 || b.MaxTime == 0 {
		a.MaxTime = 0 // no bound
	} else {
		a.MaxTime = max(a.MaxTime, b.MaxTime)
	}
	a.Most, a.Sizes = a.Most.Max(b.Most), a.Sizes.With(b.Sizes...)
	return a
}

func has(r sbatch.NodeResources) string {
	said := fmt.Sprintf("%s, %s of memory", termtext.Count(r.CPUs, "CPU"), codalab.FormatSize(r.Memory))
	if r.GPUs > 0 {
		said += ", " + termtext.Count(r.GPUs, "GPU")
		if kinds := types(r); len(kinds) > 0 {
			said += " (" + list(kinds) + ")"
		}
	}
	return said
}

func types(r sbatch.NodeResources) []string { return slices.Sorted(maps.Keys(r.GPUTypes)) }

// times judges a queue's time limits. Slurm takes a job that asks for more than
// its partition allows, and never starts it.
func times(q plan.Queue, of sbatch.Partition) []Check {
	if of.MaxTime == 0 {
		return nil
	}
	limit := codalab.SpellDuration(of.MaxTime)
	fallback := cmp.Or(q.DefaultTime, q.MaxTime)
	if fallback > 0 && q.MaxTime == 0 {
		fallback += q.TimeGrace
	}
	var checks []Check
	switch {
	case fallback > of.MaxTime && q.DefaultTime > 0:
		checks = append(checks, failed(key(q, "default_time"),
			fmt.Sprintf("%s is above the %s that %s allows: no such job would ever start", spell(q, fallback), limit, of.Name),
			fmt.Sprintf("write max_time = %q, and a default_time that is not above it", limit)))
	case q.DefaultTime > 0:
		checks = append(checks, ok(key(q, "default_time"), "%s, of the %s that %s allows", codalab.SpellDuration(q.DefaultTime), limit, of.Name))
	}
	switch {
	case q.MaxTime > of.MaxTime:
		checks = append(checks, failed(key(q, "max_time"),
			fmt.Sprintf("%s is above the %s that %s allows: a job that asks for it would never start", codalab.SpellDuration(q.MaxTime), limit, of.Name),
			fmt.Sprintf("write max_time = %q", limit)))
	case q.MaxTime > 0:
		checks = append(checks, ok(key(q, "max_time"), "%s, of the %s that %s allows", codalab.SpellDuration(q.MaxTime), limit, of.Name))
	default:
		checks = append(checks, warning(key(q, "max_time"),
			fmt.Sprintf("it is not set, and %s allows %s: a bundle that asks for more gets a job that never starts", of.Name, limit),
			fmt.Sprintf("write max_time = %q", limit)))
	}
	return checks
}

// spell prints a job's time limit, with time_grace named if it is part of it.
func spell(q plan.Queue, limit time.Duration) string {
	if limit > q.DefaultTime {
		return fmt.Sprintf("%s with the time_grace of %s", codalab.SpellDuration(q.DefaultTime), codalab.SpellDuration(q.TimeGrace))
	}
	return codalab.SpellDuration(limit)
}

// gpus judges a queue's type of GPUs.
func gpus(q plan.Queue, of sbatch.Partition) []Check {
	name, kinds := key(q, "gres_type"), types(of.Most)
	switch {
	case q.GPUType == "" && len(kinds) > 1:
		return []Check{warning(name, fmt.Sprintf("%s has GPUs of several types, and a job gets any: %s", of.Name, list(kinds)), "write gres_type where it matters, in a queue for each")}
	case q.GPUType == "":
		return nil
	case of.Most.GPUs == 0:
		return []Check{failed(name, fmt.Sprintf("%s has no GPUs", of.Name), "leave gres_type out, or name another partition")}
	case of.Most.GPUTypes[q.GPUType] == 0:
		return []Check{failed(name, fmt.Sprintf("no node of %s has GPUs of type %q", of.Name, q.GPUType), didYouMean(name, q.GPUType, kinds))}
	}
	return []Check{ok(name, "%s, at most %d on a node", q.GPUType, of.Most.GPUTypes[q.GPUType])}
}

// refusals has words of Slurm's answer to a submission, and the key of a queue's table
// that such an answer is about.
var refusals = []struct{ said, key string }{ //nolint:gochecknoglobals // a table, never written
	{"account", "account"},
	{"qos", "qos"},
	{"QOS", "qos"},
	{"wckey", "wckey"},
	{"eservation", "reservation"},
	{"feature", "constraint"},
	{"artition", "partition"},
	{"option", "sbatch_options"},
	{"specification", "sbatch_options"},
	{"(gres)", "gres_type"},
}

// Tried judges the error of [canary.Ask]: Slurm checks that the queue's partition, account,
// QOS, reservation and so on exist and are open to the user.
func Tried(q plan.Queue, s Site, err error) Check {
	if err == nil {
		return ok(key(q, "account"), "Slurm takes jobs of %s: %s", s.User, charged(q, s))
	}
	c := unsubmitted(q, err)
	switch c.Name {
	case key(q, "account"):
		c.Do = advice(c.Name, "account", q.Account, s.User, accounts(s))
	case key(q, "qos"):
		c.Do = advice(c.Name, "QOS", q.QOS, s.User, qualities(q, s))
	case key(q, "partition"):
		c.Do = "name a partition that " + s.User + " may use: there are " + list(s.names())
	case key(q, "reservation"), key(q, "constraint"), key(q, "wckey"), key(q, "gres_type"):
		c.Do = "correct it, or leave it out"
	case key(q, "sbatch_options"):
		c.Do = "correct them, or leave them out"
	}
	return c
}

// TriedPack judges the error of [canary.AskPack].
func TriedPack(q plan.Queue, err error) Check {
	if err == nil {
		return ok(key(q, "pack_time"), "Slurm takes a pack of %s", codalab.SpellDuration(q.PackTime))
	}
	c := unsubmitted(q, err)
	if c.Verdict == Failed {
		c.Name = key(q, "pack_time")
		c.Found = strings.Replace(c.Found, refusedWords, "Slurm refuses a pack: ", 1)
		c.Do = "write a pack_time and a pack_side_by_side that Slurm takes: until then each pack is halved, down to single jobs"
	}
	return c
}

// unsubmitted judges why a job was not submitted, by the error alone.
func unsubmitted(q plan.Queue, err error) Check {
	name := "queue." + q.Name
	var e *sbatch.Error
	switch {
	case !errors.As(err, &e) || !e.Refused:
		return unreachable(name, "Slurm does not say whether it takes a job: "+err.Error(), "try again later")
	case e.Retry:
		return warning(name, "Slurm takes no job now: "+e.Message, "jobs are submitted again until it does")
	}
	for _, r := range refusals {
		if strings.Contains(e.Message, r.said) {
			name = key(q, r.key)
			break
		}
	}
	return failed(name, refusedWords+e.Message, "try it by hand: sbatch --test-only")
}

// refusedWords begin the finding about a submission that Slurm has refused.
const refusedWords = "Slurm refuses a job: "

// advice returns advice about an account or a QOS that Slurm refuses.
func advice(key, what, asked, user string, known []string) string {
	if len(known) == 0 {
		return fmt.Sprintf("the accounting database has no %s of %s: ask the cluster's administrator for one", what, user)
	}
	slices.Sort(known)
	if asked == "" {
		return fmt.Sprintf("name one as %s: %s has %s", key, user, list(known))
	}
	return fmt.Sprintf("%s has %s", user, list(known))
}

func accounts(s Site) []string {
	var names []string
	for _, a := range s.Associations {
		if !slices.Contains(names, a.Account) {
			names = append(names, a.Account)
		}
	}
	return names
}

func qualities(q plan.Queue, s Site) []string {
	var names []string
	for _, a := range s.Associations {
		if q.Account != "" && a.Account != q.Account || q.Account == "" && !a.Default {
			continue
		}
		for _, qos := range a.QOS {
			if !slices.Contains(names, qos) {
				names = append(names, qos)
			}
		}
	}
	return names
}

// charged says which account a queue's jobs are charged to.
func charged(q plan.Queue, s Site) string {
	account := q.Account
	for _, a := range s.Associations {
		if account == "" && a.Default {
			account = a.Account + ", the default one"
		}
	}
	said := "account " + cmp.Or(account, "of Slurm's choice")
	if q.QOS != "" {
		said += ", QOS " + q.QOS
	}
	return said
}
