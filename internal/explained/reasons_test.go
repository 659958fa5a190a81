package explained_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Each reason that the cluster can be made to give is in the golden file, with its sentence.
func TestEachReasonThatSlurmGivesHasItsSentence(t *testing.T) {
	t.Parallel()
	s := start(t)
	var all []placed
	for i, name := range slices.Sorted(maps.Keys(waits(s))) {
		w := placed{s: s, wait: waits(s)[name], reason: name, name: "wait" + itoa(i), options: &[]string{}}
		if w.wait.reason != "" {
			w.reason = w.wait.reason
		}
		all = append(all, w)
	}
	makeLimits(t, s, all)
	for _, w := range all {
		w.place(t)
	}
	for _, w := range all { // else the job itself might run, and the earlier one wait
		for i := range w.wait.before {
			w.await(t, "-before"+itoa(i), func(j job) bool { return j.state == "RUNNING" })
		}
	}
	for _, w := range all {
		w.provoke(t)
	}
	s.compare(t, "reasons.golden", explain(t, s, all), true)
}

// placed is a wait in a run of the test.
type placed struct {
	s    *slurm
	wait wait
	// reason begins Slurm's reason: see wait.reason.
	reason string
	// name is that of the wait's partition, QOS, account and reservation, and begins the names of its jobs.
	name string
	// options are those that request the former.
	options *[]string
}

// makeLimits makes the QOS of all waits, several at a time, and then the accounts, which slurmdbd mixes up if it makes
// several at a time.
func makeLimits(t *testing.T, s *slurm, all []placed) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(4)
	var accounts []string
	for _, w := range all {
		if w.wait.qos != nil {
			g.Go(func() error {
				_, err := s.try(append([]string{"sacctmgr", "--immediate", "add", "qos", w.name}, w.wait.qos...)...)
				return err
			})
		}
	}
	testenv.Must(t, g.Wait())
	for _, w := range all {
		if w.wait.account != nil {
			s.root(t, append([]string{"sacctmgr", "--immediate", "add", "account", w.name}, w.wait.account...)...)
			accounts = append(accounts, w.name)
		}
	}
	s.root(t, "sacctmgr", "--immediate", "add", "user", "researcher", "account="+strings.Join(accounts, ","))
}

// place makes the wait's partition, and its jobs that run.
func (w placed) place(t *testing.T) {
	t.Helper()
	settings := w.wait.partition
	if w.wait.account != nil {
		*w.options = append(*w.options, "--account="+w.name)
	}
	if w.wait.qos != nil {
		settings = append(slices.Clone(settings), "QOS="+w.name)
	}
	if settings != nil || w.wait.account != nil {
		if !slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "Nodes=") }) {
			settings = append(slices.Clone(settings), "Nodes=n[1-4]")
		}
		w.s.root(t, append([]string{"scontrol", "create", "PartitionName=" + w.name}, settings...)...)
		*w.options = append(*w.options, "--partition="+w.name)
	}
	if w.wait.prepare != nil {
		w.wait.prepare(t, w)
	}
	for i := range w.wait.before {
		w.submit(t, "-before"+itoa(i), "sleep 900", slices.Concat(w.wait.options, w.wait.first)...)
	}
}

// provoke submits the job that waits.
func (w placed) provoke(t *testing.T) {
	t.Helper()
	for i := range w.wait.behind {
		w.submit(t, "-behind"+itoa(i), "sleep 900", w.wait.options...)
	}
	script := w.wait.script
	if script == "" {
		script = "sleep 900"
	}
	w.submit(t, "", script, slices.Concat(w.wait.options, w.wait.own)...)
	if w.wait.then != nil {
		w.wait.then(t, w)
	}
}

// submit submits a job with the wait's options, and returns its id.
func (w placed) submit(t *testing.T, suffix, script string, options ...string) string {
	t.Helper()
	args := []string{"sbatch", "--parsable", "--no-requeue", "--mem=16", "--time=10", "--output=/dev/null", "--job-name=" + w.name + suffix}
	return w.s.owner(t, slices.Concat(args, *w.options, options, []string{"--wrap=" + script})...)
}

// reserve makes a reservation of the wait's name.
func (w placed) reserve(t *testing.T, settings ...string) {
	t.Helper()
	w.s.root(t, append([]string{"scontrol", "create", "reservation", "ReservationName=" + w.name, "Duration=10"}, settings...)...)
}

// job is a job as squeue shows it.
type job struct{ id, state, reason string }

// jobs returns the jobs of the researcher by their names. A name may have several, of an array.
func (s *slurm) jobs(t *testing.T) map[string][]job {
	t.Helper()
	found := map[string][]job{}
	const mark = "\x1f"
	for line := range strings.Lines(s.owner(t, "squeue", "--all", "--me", "--array", "--noheader", "--states=all", "--format=%A"+mark+"%T"+mark+"%j"+mark+"%r") + "\n") {
		f := strings.Split(strings.TrimSuffix(line, "\n"), mark)
		if len(f) == 4 {
			found[f[2]] = append(found[f[2]], job{f[0], f[1], f[3]})
		}
	}
	return found
}

// await waits until one of the wait's jobs is as wanted.
func (w placed) await(t *testing.T, suffix string, want func(job) bool) job {
	t.Helper()
	var found []job
	i := -1
	testenv.Await(t, w.reason+": the job "+suffix+" is as wanted", func() bool {
		found = w.s.jobs(t)[w.name+suffix]
		i = slices.IndexFunc(found, want)
		return i >= 0
	}, &found)
	return found[i]
}

// hasReason reports whether a reason is the wait's.
func (w placed) hasReason(reason string) bool {
	return slices.ContainsFunc(strings.Split(w.reason, "|"), func(begin string) bool {
		return strings.HasPrefix(strings.ReplaceAll(reason, "_", " "), begin)
	})
}

var waitingStates = []string{"PENDING", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}

// explain waits until all jobs wait for their reasons, and returns these with their sentences.
func explain(t *testing.T, s *slurm, all []placed) map[string]string {
	t.Helper()
	var missing []string
	said := map[string]string{}
	testenv.Await(t, "the jobs wait for their reasons", func() bool {
		missing = nil
		shown := s.jobs(t)
		for _, w := range all {
			i := slices.IndexFunc(shown[w.name], func(j job) bool {
				return slices.Contains(waitingStates, j.state) && w.hasReason(j.reason)
			})
			if i < 0 {
				missing = append(missing, fmt.Sprintf("%s: %+v\n", w.reason, shown[w.name]))
				continue
			}
			reason := waitName.ReplaceAllString(shown[w.name][i].reason, "NAME")
			said[reason] = sentences(reason)
		}
		return len(missing) == 0
	}, &missing)
	return said
}

var waitName = regexp.MustCompile(`wait\d+`)

// sentences are what the product says about a reason.
func sentences(reason string) string {
	e := sbatch.Explain(reason)
	text := fmt.Sprintf("%s\n\t%s: %s.\n", reason, e.Category, e.Text)
	if e.Action != "" {
		text += "\t" + e.Action + "\n"
	}
	return text
}

func itoa(n int) string { return strconv.Itoa(n) }
