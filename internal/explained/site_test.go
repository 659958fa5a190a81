package explained_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// site is a whole site on the second cluster. Its bridge looks at Slurm every second, and tries nothing twice.
type site struct {
	*testsite.Site
	s *slurm

	mu      sync.Mutex
	bundles []string
	// server and queue are the answers of cl info about all bundles, and of squeue.
	server, queue question
}

// question is a question that many tests ask at a time. They share an answer that is young.
type question struct {
	mu     sync.Mutex
	asked  time.Time
	answer string
}

func (q *question) ask(command func() string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.Sub(q.asked) > 250*time.Millisecond {
		q.answer, q.asked = command(), now
	}
	return q.answer
}

// sites has the site of the test of ends, which closes it: nil before that, and if no test needed one.
var sites []*testsite.Site

// siteConfig lets the bridge see a job more than once within disk_settle: Slurm shows a job whose launch has failed as
// FAILED for a moment, before it puts the job back into the queue.
const siteConfig = `stage_patience = "1s"
disk_settle = "4s"
max_attempts = 1
[slurm]
observe_every = "1s"
`

// startSite starts the site with a queue for each partition.
func startSite(t *testing.T, s *slurm, partitions map[string]partition) *site {
	t.Helper()
	queues := ""
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		p := partitions[name]
		if p.settings != nil {
			s.root(t, append([]string{"scontrol", "create", "PartitionName=" + name}, p.settings...)...)
		}
		queues += fmt.Sprintf("\n[queue.%s]\npartition = %q\naccount = \"lab\"\n%s", name, name, p.queue)
	}
	started, err := testsite.Start(t.Context(), testsite.Options{Config: siteConfig, Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	sites = append(sites, started)
	if _, err := started.CL(t.Context(), "uinfo"); err != nil { // it signs in, before many do at once
		t.Fatal(err)
	}
	return &site{Site: started, s: s}
}

// endSite ends the site.
func endSite(failed bool) error {
	var errs []error
	for _, s := range sites {
		if failed {
			fmt.Fprintln(os.Stderr, s.Log())
		}
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// bundle is a run of the site.
type bundle struct {
	site *site
	uuid string
	// said are further lines of the golden file.
	said []string
}

// run creates a run in a queue.
func (s *site) run(t *testing.T, queue, command string, args ...string) *bundle {
	t.Helper()
	b := &bundle{site: s}
	b.uuid = b.cl(t, slices.Concat([]string{"run", "--request-queue", queue, "--request-memory", "64m"}, args, []string{command})...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bundles = append(s.bundles, b.uuid)
	return b
}

// cl runs cl as the researcher; it has to succeed.
func (b *bundle) cl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.site.CL(t.Context(), args...)
	if err != nil {
		t.Fatalf("cl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// field returns a field of the bundle.
func (b *bundle) field(t *testing.T, name string) string {
	t.Helper()
	return b.cl(t, "info", "-f", name, b.uuid)
}

// shown returns the bundle's state and its run_status; empty for a bundle that is younger than the answer.
func (b *bundle) shown(t *testing.T) (state, status string) {
	t.Helper()
	s := b.site
	all := s.server.ask(func() string {
		s.mu.Lock()
		args := append([]string{"info", "-f", "uuid,state,run_status"}, s.bundles...)
		s.mu.Unlock()
		return b.cl(t, args...)
	})
	for line := range strings.Lines(all) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3); len(f) == 3 && f[0] == b.uuid {
			return f[1], f[2]
		}
	}
	return "", ""
}

// until waits for the bundle's state to be one of some.
func (b *bundle) until(t *testing.T, states ...string) string {
	t.Helper()
	var last, seen string
	testenv.Await(t, fmt.Sprintf("the bundle is one of %s", states), func() bool {
		var status string
		last, status = b.shown(t)
		seen = last + ", " + status
		return slices.Contains(states, last)
	}, &seen)
	return last
}

// runs waits until the bundle's command runs, and returns its job.
func (b *bundle) runs(t *testing.T) (id string) {
	t.Helper()
	if state := b.until(t, "running", "ready", "failed", "killed"); state != "running" {
		t.Fatalf("the bundle is %s: %s", state, b.field(t, "failure_message"))
	}
	return b.job(t, "RUNNING").id
}

// job waits until Slurm shows the bundle's job in one of some states, or with such a reason.
func (b *bundle) job(t *testing.T, want ...string) job {
	t.Helper()
	var found job
	testenv.Await(t, fmt.Sprintf("the job is one of %s", want), func() bool {
		found = b.site.jobOf(t, b.uuid)
		return slices.Contains(want, found.state) || slices.ContainsFunc(want, func(reason string) bool {
			return found.state == "PENDING" && strings.HasPrefix(strings.ReplaceAll(found.reason, "_", " "), reason)
		})
	}, &found)
	return found
}

// suspended waits until the bundle's job stands still and its run_status says so.
func (b *bundle) suspended(t *testing.T) {
	t.Helper()
	id := b.job(t, "SUSPENDED").id
	b.status(t, "suspended")
	testenv.AwaitStopped(t, b.site.s.Cluster, id)
}

// jobOf returns the job of a bundle, whose comment names it.
func (s *site) jobOf(t *testing.T, uuid string) job {
	t.Helper()
	const mark = "\x1f"
	all := s.queue.ask(func() string {
		return s.s.owner(t, "squeue", "--all", "--me", "--noheader", "--states=all", "--format=%A"+mark+"%T"+mark+"%r"+mark+"%k")
	})
	for line := range strings.Lines(all) {
		if f := strings.Split(line, mark); len(f) == 4 && strings.Contains(f[3], uuid) {
			return job{f[0], f[1], f[2]}
		}
	}
	return job{}
}

// status waits until run_status has a part, and keeps it for the golden file.
func (b *bundle) status(t *testing.T, part string) {
	t.Helper()
	last := ""
	testenv.Await(t, "run_status has "+part, func() bool {
		_, last = b.shown(t)
		return strings.Contains(last, part)
	}, &last)
	b.said = append(b.said, "meanwhile: "+last)
}

// goOn lets a command that waits for it end.
func (b *bundle) goOn(t *testing.T) {
	t.Helper()
	testenv.Must(t, b.site.GoOn(t.Context(), b.uuid))
}

// onNode runs a shell's command in a node's mount namespace.
func (s *slurm) onNode(t *testing.T, node, script string) {
	t.Helper()
	s.root(t, "nsenter", "--mount="+filepath.Join(filepath.Dir(s.Conf), "../run/namespaces", node+".mnt"), "sh", "-ec", script)
}

// slurmd returns the process id of a node's slurmd.
func (s *slurm) slurmd(t *testing.T, node string) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(s.Conf), "../run/slurmd-"+node+".pid"))
	testenv.Must(t, err)
	return strings.TrimSpace(string(pid))
}

// changing are the parts of sentences that differ from run to run.
var changing = []struct {
	match *regexp.Regexp
	with  string
}{
	{regexp.MustCompile(`\bjob \d+`), "job JOB"},
	{regexp.MustCompile(`\bn\d+\b`), "NODE"},
	{regexp.MustCompile(`0x[0-9a-f]{32}`), "UUID"},
	{regexp.MustCompile(`\(used \S+\)`), "(used SIZE)"},
	{regexp.MustCompile(`uptime \S+ >`), "uptime TIME >"},
	{regexp.MustCompile(`ran for [0-9a-z.]+`), "ran for TIME"},
	{regexp.MustCompile(` Slurm expects to start it at [^.]*\.`), ""},
	{regexp.MustCompile(`\d+ jobs? (is|are) ahead of it`), "JOBS are ahead of it"},
}

// result returns the bundle's part of the golden file. Exit codes of the command that are among these do not count.
func (b *bundle) result(t *testing.T, name string, leftOut ...string) string {
	t.Helper()
	lines := append([]string{name}, b.said...)
	state, exit := b.field(t, "state"), b.field(t, "exitcode")
	if exit != "" && exit != "None" && !slices.Contains(leftOut, exit) {
		state += ", exit code " + exit
	}
	lines = append(lines, state)
	if failure := b.field(t, "failure_message"); failure != "" && failure != "None" {
		lines = append(lines, strings.Split(failure, "\n")...)
	}
	text := strings.Join(lines, "\n\t") + "\n"
	for _, c := range changing {
		text = c.match.ReplaceAllString(text, c.with)
	}
	return text
}
