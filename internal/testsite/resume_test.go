package testsite_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

var preemptions = flag.Int("preemptions", 3, "how often TestPreemptedRunHasTheResultOfAnUndisturbedOne preempts its run")

// preemptible has a queue for each way in which the cluster preempts jobs.
const preemptible = `
[queue.spot]
partition = "spot"
account = "lab"
kill_grace = "2s"

[queue.back]
partition = "back"
account = "lab"

[queue.timed]
partition = "cpu"
account = "lab"
max_time = "1h"
signal = "2s"

[queue.local]
partition = "cpu"
account = "lab"
workdir = "local"
`

// countTo is a command that counts to a number, and writes down each one and a checksum of all. It goes on with the last
// number that it has written, and writes its state in one step. It waits for a permission before it ends.
func countTo(to int) string {
	return fmt.Sprintf(`
n=0; sum=start
if test -e state; then read n sum < state; fi
echo "attempt $CODALAB_ATTEMPT begins with $n" >> attempts
while test $n -lt %d; do
  n=$((n + 1))
  sum=$(echo "$sum $n" | sha256sum | cut -c1-64)
  echo "$n $sum" > state.new
  mv state.new state
  sleep 0.05
done
while ! test -e finish; do sleep 0.05; done
echo $n $sum > result; echo done`, to)
}

// permit lets a run end that waits for a file finish, in whatever directory it runs.
func permit(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(s.Shared, "runs", bundle, "*-*"))
	testenv.Must(t, err)
	for _, dir := range dirs {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, "finish"), nil, 0o644))
	}
}

// preempting is held by one test that preempts jobs at a time. All use the same nodes: a job that waits there for its
// turn would preempt the run of another test.
var preempting sync.Mutex

// alone waits until no other test preempts jobs, and holds the others off to the test's end.
func alone(t *testing.T) {
	t.Helper()
	preempting.Lock()
	t.Cleanup(preempting.Unlock)
}

// preempt takes the place of a run's job on its node, as a job of another partition, and waits until the run goes on.
func preempt(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	job := begun(t, s, bundle)
	attempt := explain(t, s, bundle).Attempt
	node := facts(t, s, job)["NodeList"]
	counts := func() string {
		data, err := os.ReadFile(filepath.Join(s.Shared, "runs", bundle, fmt.Sprintf("%d-%s", attempt, bridgeID(t, s, bundle)), "attempts"))
		if err != nil {
			return ""
		}
		return string(data)
	}
	testenv.Await(t, "the command of attempt "+fmt.Sprint(attempt)+" counts", func() bool {
		return strings.Contains(counts(), fmt.Sprintf("attempt %d begins", attempt))
	})
	taker := strings.TrimSpace(must(t, s, "sbatch", "--parsable", "-p", "urgent", "-A", "lab", "-c", "40", "--mem=1", "-w", node, "-t", "1", "-o", "/dev/null", "--wrap", "true"))
	testenv.Await(t, "attempt "+fmt.Sprint(attempt)+" of "+bundle+" is resumed", func() bool { return explain(t, s, bundle).Attempt > attempt })
	_ = tryAdmin(t, "scancel", taker) // it has ended
}

// bridgeID returns the part of attempts' names that names the bridge.
func bridgeID(t *testing.T, s *testsite.Site, bundle string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(s.Shared, "spool", bundle, "*-*"))
	testenv.Must(t, err)
	if len(dirs) == 0 {
		t.Fatalf("bundle %s has no attempt", bundle)
	}
	_, id, _ := strings.Cut(filepath.Base(dirs[0]), "-")
	return id
}

// Each attempt has a directory of its own, and no number is lost or counted twice. The history names all attempts.
func TestPreemptedRunHasTheResultOfAnUndisturbedOne(t *testing.T) {
	t.Parallel()
	alone(t)
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	const to = 40
	undisturbed := run(t, s, "spot", countTo(to))
	begun(t, s, undisturbed)
	testenv.Await(t, "it has counted", func() bool { permit(t, s, undisturbed); return field(t, s, undisturbed, "state") == "ready" })
	for _, queue := range []string{"spot", "back"} {
		n := *preemptions
		if queue == "back" {
			n = 1
		}
		bundle := run(t, s, queue, countTo(to), "--resume", fmt.Sprint(n), "--request-cpus", "40")
		for range n {
			preempt(t, s, bundle)
		}
		begun(t, s, bundle)
		testenv.Await(t, "it ends", func() bool { permit(t, s, bundle); return field(t, s, bundle, "state") == "ready" })
		if got, want := cl(t, s, "cat", bundle+"/result"), cl(t, s, "cat", undisturbed+"/result"); got != want {
			t.Errorf("after %d preemptions: %q, undisturbed %q", n, got, want)
		}
		began := strings.Split(cl(t, s, "cat", bundle+"/attempts"), "\n")
		if len(began) != n+1 || len(begins(t, s, bundle)) != n+1 {
			t.Errorf("%d attempts began: %q", len(begins(t, s, bundle)), began)
		}
		for i, line := range began {
			if !strings.HasPrefix(line, fmt.Sprintf("attempt %d begins with ", i+1)) {
				t.Errorf("line %d of its own history: %q", i+1, line)
			}
		}
		t.Logf("%s: %d preemptions; result %.20s…; %s", queue, n, cl(t, s, "cat", bundle+"/result"), field(t, s, bundle, "remote_history"))
	}
}

// The last verdict stands, with the attempts, and the last attempt's files are the results.
func TestRunThatIsPreemptedTooOftenFailsWithItsFiles(t *testing.T) {
	t.Parallel()
	alone(t)
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	bundle := run(t, s, "spot", countTo(1_000_000), "--resume", "1", "--request-cpus", "40")
	preempt(t, s, bundle)
	job := begun(t, s, bundle)
	testenv.Await(t, "the second attempt counts", func() bool {
		out, err := s.CL(t.Context(), "cat", bundle+"/attempts")
		return err == nil && strings.Count(out, "\n") == 1
	})
	node := facts(t, s, job)["NodeList"]
	must(t, s, "sbatch", "-p", "urgent", "-A", "lab", "-c", "40", "--mem=1", "-w", node, "-t", "1", "-o", "/dev/null", "--wrap", "true")
	if state := ended(t, s, bundle); state != "failed" {
		t.Fatalf("state %s", state)
	}
	got := field(t, s, bundle, "failure_message")
	want := "The run was resumed 1 time before, as often as it asks for (--resume 1). Its attempts before ran on n"
	if !strings.HasPrefix(got, "Slurm preempted job "+job) || !strings.Contains(got, want) {
		t.Errorf("failure_message %q", got)
	}
	if got := cl(t, s, "cat", bundle+"/attempts"); strings.Count(got, "begins with") != 2 {
		t.Errorf("its files: %q", got)
	}
}

func TestTimedOutRunGoesOnWithItsFiles(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	// It notices TERM ahead of the limit, saves its state, and ends.
	command := `n=0; test ! -e n || n=$(cat n); trap 'echo saved; echo $((n + 1)) > n; exit 0' TERM; test $n -lt 2 || exit 0; while :; do sleep 0.1; done`
	bundle := run(t, s, "timed", command, "--resume", "100", "--request-time", "6s")
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "saved\nsaved" {
		t.Errorf("stdout %q", got)
	}
	if got := cl(t, s, "cat", bundle+"/n"); got != "2" {
		t.Errorf("counted to %q", got)
	}
	failed := run(t, s, "timed", "sleep 3000", "--resume", "1", "--request-time", "4s")
	local := run(t, s, "local", "sleep 3000", "--resume", "1", "--request-time", "4s")
	for bundle, want := range map[string]string{
		failed: `Time limit exceeded\. \(TERM at container uptime .*s, \d\.\ds before the time limit 4\.0s\) .* The run was resumed 1 time before, as often as it asks for \(--resume 1\)\. Its attempts before ran on n[12] \(Slurm job \d+\)\.`,
		local:  `Time limit exceeded\. .* It is not resumed, because the runs of queue local work on the nodes' own disks\.`,
	} {
		if state := ended(t, s, bundle); state != "failed" {
			t.Errorf("state %s", state)
		}
		until(t, s, bundle, "failure_message", want)
	}
}

// Neither a plain failure nor a kill nor memory is an interruption.
func TestOtherEndsAreEnds(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	failed := run(t, s, "timed", "exit 3", "--resume", "5")
	memory := run(t, s, "timed", "tail /dev/zero", "--resume", "5", "--request-memory", "50m")
	killed := run(t, s, "timed", "echo began; sleep 3000", "--resume", "5")
	cancelled := run(t, s, "timed", "echo began; sleep 3000", "--resume", "5")
	untilPrinted(t, s, killed, "began")
	cl(t, s, "kill", killed)
	untilPrinted(t, s, cancelled, "began")
	must(t, s, "scancel", begun(t, s, cancelled))
	for _, bundle := range []string{failed, memory, killed, cancelled} {
		state := ended(t, s, bundle)
		if n := len(begins(t, s, bundle)); n != 1 || (state == "killed") != (bundle == killed) {
			t.Errorf("%s began %d times, and is %s: %s", bundle, n, state, field(t, s, bundle, "failure_message"))
		}
	}
}

// CodaLab's own cl has no --resume, but may give a run the tag.
func TestRunIsResumedByItsTag(t *testing.T) {
	t.Parallel()
	alone(t)
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	command := `echo "attempt $CODALAB_ATTEMPT begins" >> attempts; test $CODALAB_ATTEMPT -gt 1 || sleep 3000`
	bundle := run(t, s, "spot", command, "--tags", "vision", "resume=1", "--request-cpus", "40")
	preempt(t, s, bundle)
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/attempts"); got != "attempt 1 begins\nattempt 2 begins" {
		t.Errorf("attempts %q", got)
	}
	wrong, err := s.Create(t.Context(), "timed", "true", map[string]any{"tags": []string{"resume=often"}})
	testenv.Must(t, err)
	until(t, s, wrong, "failure_message", `^The tag "resume=often" does not say how often the run may be resumed: give it a number from 0 to 1000, not "often"\.$`)
	if _, err := s.CL(t.Context(), "run", "--tags", "resume=often", "-n", "x", "true"); err == nil || !strings.Contains(err.Error(), "a number from 0 to 1000") {
		t.Errorf("cl: %v", err)
	}
}

// The bridge is killed at any moment, and the run's attempts stay apart.
func TestBridgeIsKilledWhileARunIsResumed(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often(""), Queues: preemptible})
	bundle := run(t, s, "timed", `echo $CODALAB_ATTEMPT >> attempts; test $(wc -l < attempts) -gt 3 || sleep 3000`, "--request-time", "4s", "--resume", "1000")
	for range 4 {
		begunOrEnded(t, s, bundle) // the bridge may look again when the last attempt has ended
		killed(t, s)
	}
	ready(t, s, bundle)
	got := strings.Fields(cl(t, s, "cat", bundle+"/attempts"))
	if len(got) < 4 {
		t.Errorf("attempts %q", got)
	}
	last := 0 // numbers are left out: on a slow node an attempt's time may be over before its command begins
	for _, attempt := range got {
		n, err := strconv.Atoi(attempt)
		if err != nil || n <= last {
			t.Errorf("attempt %q after %d: %q", attempt, last, got)
		}
		last = n
	}
	if _, err := os.Stat(filepath.Join(s.Shared, "runs", bundle)); errors.Is(err, os.ErrNotExist) {
		t.Error("the results are gone from the shared disk already")
	}
}
