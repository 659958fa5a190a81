package testsite_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// lossy submits a job and loses the answer, in a different way for each partition. It
// keeps the names of its jobs.
const lossy = `
case "$*" in *--version*) exec $BIN/sbatch "$@";; esac
for a; do case $a in --job-name=*) name=${a#*=};; esac; done
$BIN/sbatch "$@" >/dev/null || exit
echo $name >>$HERE/submitted
case "$*" in
*--partition=cpu*) exit 1;;
*--partition=gpu*) kill -9 $$;;
esac
echo welcome to the cluster, you have 3 messages
`

// I2: a job found by its submission name is adopted, never submitted again.
func TestI2LostSubmitAnswerIsAdopted(t *testing.T) {
	t.Parallel()
	need(t)
	bin := wrapped(t, map[string]string{"sbatch": lossy})
	s := own(t, testsite.Options{Config: often(bin)})
	bundles := map[string]string{}
	for _, queue := range []string{"cpu", "gpu", "short"} {
		bundles[queue] = run(t, s, queue, "echo once")
	}
	for queue, bundle := range bundles {
		ranOnce(t, s, bundle)
		e := explain(t, s, bundle)
		if slices.ContainsFunc(e.History, func(h entry) bool { return strings.Contains(h.Reason, "sbatch accepted it") }) {
			t.Errorf("queue %s: sbatch's answer was not lost: %+v", queue, e.History)
		}
		name := facts(t, s, fmt.Sprint(e.Job))["JobName"]
		if n := count(lines(filepath.Join(bin, "submitted")), name); n != 1 {
			t.Errorf("queue %s: %s was submitted %d times", queue, name, n)
		}
		testenv.Await(t, "the accounts show "+name, func() bool { return accounted(t, s, name) != nil })
		if got := accounted(t, s, name); len(got) != 1 || !strings.HasSuffix(got[0], "|COMPLETED") {
			t.Errorf("queue %s: the accounts show %q, want one job that is COMPLETED", queue, got)
		}
	}
}

func count(list []string, want string) int {
	n := 0
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

// accounted returns the ended jobs of a name, as sacct shows them.
func accounted(t *testing.T, s *testsite.Site, name string) []string {
	t.Helper()
	out := must(t, s, "sacct", "--allocations", "--parsable2", "--noheader", "--duplicates", "--name="+name, "--format=JobIDRaw,State")
	if out == "" || strings.Contains(out, "RUNNING") || strings.Contains(out, "PENDING") {
		return nil
	}
	return strings.Split(out, "\n")
}

// I4: an attempt begins at most once, however many jobs Slurm has of it.
func TestI4SecondJobOfAnAttemptLeavesAndTouchesNothing(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	bundle := run(t, s, "cpu", "echo once; while [ ! -e go ]; do sleep 0.1; done")
	first := begun(t, s, bundle)
	of, script := facts(t, s, first), filepath.Join(s.Shared, "script")
	must(t, s, "scontrol", "write", "batch_script", first, script)
	before := begins(t, s, bundle)
	second := byHand(t, s, of["JobName"], of["Comment"], script)
	testenv.Await(t, "the second job has ended", func() bool { return facts(t, s, second)["JobState"] == "FAILED" })
	if got := facts(t, s, second)["ExitCode"]; got != "121:0" {
		t.Errorf("the second job's worker ended with %s, want 121: another worker has begun the attempt", got)
	}
	if after := begins(t, s, bundle); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("begin records %v, then %v", before, after)
	}
	// The bridge has seen both jobs, and has recorded the one that runs the bundle.
	restarted(t, s)
	if e := explain(t, s, bundle); e.Phase != "running" || fmt.Sprint(e.Job) != first {
		t.Errorf("the bundle is %s as job %d, want running as %s", e.Phase, e.Job, first)
	}
	release(t, s, bundle)
	ranOnce(t, s, bundle)
}

// release lets a command that waits for a file "go" end.
func release(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(one(t, filepath.Join(s.Shared, "runs", bundle, "1*")), "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// restarted stops the bridge and starts it again.
func restarted(t *testing.T, s *testsite.Site) {
	t.Helper()
	if err := errors.Join(s.StopBridge(), s.StartBridge(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// killed kills the bridge and starts it again.
func killed(t *testing.T, s *testsite.Site) {
	t.Helper()
	if err := errors.Join(s.KillBridge(), s.StartBridge(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// counting counts the calls of squeue.
const counting = `echo >>$HERE/looks; exec $BIN/squeue "$@"` + "\n"

// I5: the bridge cancels no job within the grace, and no job of others ever.
func TestI5OrphanIsListedAndJobsOfOthersAreNotTouched(t *testing.T) {
	t.Parallel()
	need(t)
	bin := wrapped(t, map[string]string{"squeue": counting})
	s := own(t, testsite.Options{Config: often(bin)})
	bundle := run(t, s, "cpu", "echo once; while [ ! -e go ]; do sleep 0.1; done") // while it runs, the bridge observes
	of := facts(t, s, begun(t, s, bundle))
	id := of["JobName"][strings.LastIndexByte(of["JobName"], '-')+1:]
	stamp := func(bridge string, generation int) string {
		return fmt.Sprintf("codalab bundle=0x%032x attempt=1 owner=2 bridge=%s generation=%d", generation, bridge, generation)
	}
	script := filepath.Join(s.Shared, "sleep")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsleep 3000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	orphan := byHand(t, s, "cl-researcher-000000000000.1-"+id, stamp(id, 1), script)
	others := []string{
		byHand(t, s, "cl-researcher-000000000000.1-ffffff", stamp("ffffff", 99), script),
		byHand(t, s, "train", "my own job", script),
		byHand(t, s, "cl-researcher-000000000000.1-"+id, "charge=1234", script),
	}
	for _, job := range append(slices.Clone(others), orphan) {
		testenv.Await(t, "job "+job+" runs", func() bool { return facts(t, s, job)["JobState"] == "RUNNING" })
	}
	looks := len(lines(filepath.Join(bin, "looks")))
	testenv.Await(t, "the bridge has looked three times more", func() bool { return len(lines(filepath.Join(bin, "looks"))) > looks+3 })
	for _, job := range append(slices.Clone(others), orphan) {
		if state := facts(t, s, job)["JobState"]; state != "RUNNING" {
			t.Errorf("job %s is %s, want RUNNING", job, state)
		}
	}
	listed := bridge(t, s, "recover")
	if !regexp.MustCompile(`(?m)^` + orphan + ` .* the ledger does not know its bundle: cancelled after 10m0s$`).MatchString(listed) {
		t.Errorf("recover does not list job %s:\n%s", orphan, listed)
	}
	for _, job := range others {
		if strings.Contains(listed, "\n"+job+" ") {
			t.Errorf("recover lists job %s, which is not the bridge's:\n%s", job, listed)
		}
	}
	release(t, s, bundle)
	ranOnce(t, s, bundle)
}

// I5: a job that is newer than the ledger ends the bridge, until an operator accepts the
// ledger.
func TestI5OldLedgerStopsTheBridgeUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often(""), Queues: "[queue.one]\npartition = \"cpu\"\naccount = \"lab\"\nmax_in_flight = 1\n"})
	waits := "echo once; while [ ! -e go ]; do sleep 0.1; done"
	first := run(t, s, "one", waits)
	begun(t, s, first)
	second := run(t, s, "one", waits)
	testenv.Await(t, "the second bundle waits for its place", func() bool {
		e, _ := explained(t, s, second)
		return e.Reason == "image and dependencies are ready"
	})
	old := stopAndCopy(t, s)
	if err := s.StartBridge(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, s, first)
	job := begun(t, s, second)
	if err := s.KillBridge(); err != nil {
		t.Fatal(err)
	}
	putBack(t, s, old)
	if err := s.StartBridge(t.Context()); err != nil {
		t.Fatal(err)
	}
	code, words, err := s.BridgeEnd(t.Context())
	want := "job " + job + " is submission 2 of bundle " + second + ", and the ledger's last one is 1: the ledger is older than Slurm's jobs; " +
		`"cl-bridge recover --config ` + s.BridgeConfig() + `" lists`
	if err != nil || code != 1 || !strings.Contains(words, want) {
		t.Fatalf("the bridge ended with %d, %v; want 1 and %q in\n%s", code, err, want, words)
	}
	if listed := bridge(t, s, "recover"); !regexp.MustCompile(`(?m)^` + job + ` +RUNNING +` + second + ` .* taken up by its bundle`).MatchString(listed) {
		t.Errorf("recover does not list job %s:\n%s", job, listed)
	}
	if said := bridge(t, s, "recover", "--accept"); !strings.Contains(said, "Accepted: ") {
		t.Errorf("recover --accept:\n%s", said)
	}
	if err := s.StartBridge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ranOnce(t, s, first)
	// The bundle's row adopts its job.
	testenv.Await(t, "the second bundle runs as job "+job, func() bool {
		e := explain(t, s, second)
		return e.Phase == "running" && fmt.Sprint(e.Job) == job
	})
	release(t, s, second)
	ranOnce(t, s, second)
}

// stopAndCopy stops the bridge and returns its ledger's files.
func stopAndCopy(t *testing.T, s *testsite.Site) map[string][]byte {
	t.Helper()
	if err := s.StopBridge(); err != nil {
		t.Fatal(err)
	}
	copied := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if data, err := os.ReadFile(s.Ledger() + suffix); err == nil {
			copied[suffix] = data
		}
	}
	return copied
}

// putBack replaces the ledger by an old copy.
func putBack(t *testing.T, s *testsite.Site, copied map[string][]byte) {
	t.Helper()
	info, err := os.Stat(s.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := owner(info)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		path := s.Ledger() + suffix
		_ = os.Remove(path) // it may not be there
		data, ok := copied[suffix]
		if !ok {
			continue
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// I1, I6: everything that is saved is done exactly once, whenever the bridge dies: while it
// stages, and while its jobs run. A death between the saving of a submission and its sbatch
// costs a minute and a half, so none is sought there.
func TestI1BridgeKilledAgainAndAgainLosesNothing(t *testing.T) {
	t.Parallel()
	s := cold(t, testsite.Options{Config: often("")})
	var bundles []string
	for i := range 10 {
		bundles = append(bundles, run(t, s, "cpu", fmt.Sprintf("echo once; sleep %d.%d", i/2, i%2*5)))
	}
	for range 3 {
		field(t, s, bundles[0], "state")
		killed(t, s)
	}
	for _, b := range bundles {
		until(t, s, b, "state", "^(running|finalizing|ready)$")
	}
	moments := rand.New(rand.NewPCG(1, 7))
	for range 15 {
		<-time.After(time.Duration(moments.IntN(300)) * time.Millisecond)
		killed(t, s)
	}
	for _, b := range bundles {
		ranOnce(t, s, b)
		if e := explain(t, s, b); e.Attempt != 1 {
			t.Errorf("bundle %s had %d attempts", b, e.Attempt)
		}
	}
}
