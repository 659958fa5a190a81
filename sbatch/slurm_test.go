package sbatch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Each test here runs as the user researcher, on the Slurm cluster of this
// machine.

// site returns a client, and a name for the test's jobs that no other job has.
func site(t *testing.T) (*sbatch.Client, string) {
	t.Helper()
	cluster := testenv.Slurm(t)
	return &sbatch.Client{Bin: cluster.Bin, Conf: cluster.Conf}, fmt.Sprintf("cltest-%d-%d", os.Getpid(), time.Now().UnixNano())
}

func request(name, script string) sbatch.Request {
	return sbatch.Request{Name: name, MemoryMiB: 16, Output: "/dev/null", Dir: "/tmp", Script: "#!/bin/sh\n" + script + "\n"}
}

func held(name string) sbatch.Request {
	r := request(name, "true")
	r.Extra = []string{"--hold"}
	return r
}

// submit makes a job that is cancelled when the test ends.
func submit(t *testing.T, c *sbatch.Client, r sbatch.Request) sbatch.JobID {
	t.Helper()
	id, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	cancelLater(t, c, id)
	return id
}

func cancelLater(t *testing.T, c *sbatch.Client, id sbatch.JobID) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Cancel(context.Background(), id, name); err != nil {
			t.Error(err)
		}
	})
}

func observe(t *testing.T, c *sbatch.Client) sbatch.Snapshot {
	t.Helper()
	s, err := c.Observe(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// await looks at the one job of this name until it is as wanted.
func await(t *testing.T, look func() []sbatch.Job, want func(sbatch.Job) bool) sbatch.Job {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(40 * time.Second)
	for {
		found := look()
		if len(found) > 1 {
			t.Fatalf("several jobs: %+v", found)
		}
		if len(found) == 1 && want(found[0]) {
			return found[0]
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not seen in time; last %+v", found)
		}
	}
}

func queue(t *testing.T, c *sbatch.Client, name string) func() []sbatch.Job {
	t.Helper()
	return func() []sbatch.Job { return observe(t, c).ByName()[name] }
}

func in(state sbatch.State) func(sbatch.Job) bool {
	return func(j sbatch.Job) bool { return j.State == state }
}

func TestJobIsSeenByItsNameFromItsSubmissionToItsAccount(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	dir := filepath.Join(os.Getenv("TMPDIR"), "100%j")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	r := request(name, "pwd; env; ulimit -c")
	r.Dir, r.Output, r.Comment = dir, filepath.Join(dir, "out %x"), "a|b\nc"
	r.WCKey, r.Account, r.QOS, r.Partition, r.CPUs, r.Time, r.Nice = "proj1", "nlp", "normal", "short", 2, time.Minute, 5
	id := submit(t, c, r)
	first := observe(t, c).ByName()[name]
	if len(first) != 1 || first[0].ID != id || first[0].Comment != r.Comment {
		t.Errorf("at once: %+v", first)
	}
	ended := await(t, queue(t, c, name), in(sbatch.StateCompleted))
	if ended.Nodes == "" || ended.Start.Before(before.Add(-time.Second)) || ended.Start.After(time.Now()) {
		t.Errorf("ended: %+v", ended)
	}
	out, err := os.ReadFile(r.Output)
	if err != nil {
		t.Fatal(err)
	}
	said := string(out)
	if !strings.HasPrefix(said, dir+"\n") || !strings.Contains(said, "\nSLURM_CPUS_PER_TASK=2\n") || !strings.Contains(said, "\nSLURM_JOB_ACCOUNT=nlp\n") {
		t.Errorf("the job says:\n%s", said)
	}
	if strings.Contains(said, "SLURM_TIME_FORMAT") || strings.Contains(said, "TMPDIR="+os.Getenv("TMPDIR")) {
		t.Errorf("the submitter's environment in the job's:\n%s", said)
	}
	account := await(t, func() []sbatch.Job {
		jobs, err := c.Account(t.Context(), before.Add(-time.Minute), []string{name, "cltest-none"})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}, in(sbatch.StateCompleted))
	if account.ID != id || account.Nodes != ended.Nodes || !account.Start.Equal(ended.Start) {
		t.Errorf("account %+v, queue %+v", account, ended)
	}
}

func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	for words, change := range map[string]func(*sbatch.Request){
		"Invalid partition name specified (invalid partition specified: nosuch)": func(r *sbatch.Request) { r.Partition = "nosuch" },
		"Invalid qos specification":                                  func(r *sbatch.Request) { r.QOS = "nosuch" },
		"Invalid account or account/partition combination specified": func(r *sbatch.Request) { r.Account = "nosuch" },
		"Batch script is empty!":                                     func(r *sbatch.Request) { r.Script = "" },
		"Invalid --time specification":                               func(r *sbatch.Request) { r.Extra = []string{"--time=x"} },
		"Requested node configuration is not available (Memory specification can not be satisfied)":   func(r *sbatch.Request) { r.MemoryMiB = 900 << 10 },
		"unrecognized option '--no-such-option'; Try \"sbatch --help\" for more information":          func(r *sbatch.Request) { r.Extra = []string{"--no-such-option"} },
		"Pathname of a file, directory or other parameter too long":                                   func(r *sbatch.Request) { r.Name += strings.Repeat("0", 1024) },
		"Requested node configuration is not available":                                               func(r *sbatch.Request) { r.GPUs = 1 },
		"Invalid wckey specification":                                                                 func(r *sbatch.Request) { r.WCKey = "nosuch" },
		"Invalid feature specification":                                                               func(r *sbatch.Request) { r.Constraint = "nosuch" },
		"Requested reservation is invalid":                                                            func(r *sbatch.Request) { r.Reservation = "nosuch" },
		"Invalid generic resource (gres) specification":                                               func(r *sbatch.Request) { r.Extra = []string{"--gres=nosuch"} },
		"Invalid job array specification":                                                             func(r *sbatch.Request) { r.Extra = []string{"--array=1-20000"} },
		"Invalid node name specified":                                                                 func(r *sbatch.Request) { r.Extra = []string{"--nodelist=nosuch"} },
		"Invalid license specification":                                                               func(r *sbatch.Request) { r.Extra = []string{"--licenses=nosuch"} },
		"Invalid --nice value":                                                                        func(r *sbatch.Request) { r.Extra = []string{"--nice=-1"} },
		"Batch script contains DOS line breaks (\\r\\n); instead of expected UNIX line breaks (\\n).": func(r *sbatch.Request) { r.Script = "#!/bin/sh\r\n" },
	} {
		r := request(name, "true")
		change(&r)
		id, err := c.Submit(t.Context(), r)
		var e *sbatch.Error
		if !errors.As(err, &e) || !e.Refused || e.Retry || e.Transient() || e.Message != words {
			t.Errorf("want %q, refused for good; got job %d, %+v", words, id, err)
		}
	}
	// Two of them, too much memory and a GPU where there is none, left the
	// record of a job that never was.
	ghosts := observe(t, c).ByName()[name]
	if len(ghosts) != 2 {
		t.Errorf("%d records, want 2: %+v", len(ghosts), ghosts)
	}
	for _, g := range ghosts {
		if g.State != sbatch.StateFailed || g.Nodes != "" {
			t.Errorf("record of a refused submission: %+v", g)
		}
	}
}

func TestLimitOnTheNumberOfJobsIsARefusalForNow(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	var err error
	for range 3 { // two are allowed, to all tests together
		r := held(name)
		r.QOS = "limited"
		var id sbatch.JobID
		if id, err = c.Submit(t.Context(), r); err != nil {
			break
		}
		cancelLater(t, c, id)
	}
	var e *sbatch.Error
	if !errors.As(err, &e) || !e.Refused || !e.Retry || !strings.Contains(e.Message, "QOSMaxSubmitJobPerUserLimit") {
		t.Errorf("third job: %+v", err)
	}
}

func TestCancelEndsAJobInAnyStateOrNone(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	running := submit(t, c, request(name+"-running", "exec sleep 600"))
	pending := submit(t, c, held(name+"-pending"))
	await(t, queue(t, c, name+"-running"), in(sbatch.StateRunning))
	for _, id := range []sbatch.JobID{running, pending} {
		if err := c.Cancel(t.Context(), id); err != nil {
			t.Errorf("cancel %d: %v", id, err)
		}
	}
	if j := await(t, queue(t, c, name+"-running"), in(sbatch.StateCancelled)); j.Nodes == "" {
		t.Errorf("it ran: %+v", j)
	}
	if j := await(t, queue(t, c, name+"-pending"), in(sbatch.StateCancelled)); j.Nodes != "" {
		t.Errorf("it never ran: %+v", j)
	}
	for _, id := range []sbatch.JobID{running, pending, 4_000_000_000} {
		if err := c.Cancel(t.Context(), id); err != nil {
			t.Errorf("cancel %d, which has ended or never was: %v", id, err)
		}
	}
}

func TestJobThatFitsNowhereWaitsWithItsReason(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	r := request(name, "true")
	r.CPUs = 500
	submit(t, c, r)
	j := await(t, queue(t, c, name), func(j sbatch.Job) bool { return j.Reason == "PartitionConfig" })
	if j.State != sbatch.StatePending || !j.Start.IsZero() {
		t.Errorf("%+v", j)
	}
}

func TestStrangeNamesOfOtherJobsHideNoJob(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	names := []string{name, name + "|PENDING", name + "\n1|RUNNING|n1", "\n" + name, name + "\t\a é"}
	for _, n := range names {
		submit(t, c, held(n))
	}
	s := observe(t, c)
	for _, n := range names {
		if found := s.ByName()[n]; len(found) != 1 || found[0].Reason != "JobHeldUser" {
			t.Errorf("%q: %+v", n, found)
		}
	}
}

func TestTasksOfAnArrayAreListedOneByOne(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	r := held(name)
	r.Extra = append(r.Extra, "--array=1-1000")
	id := submit(t, c, r)
	tasks := observe(t, c).ByName()[name]
	if len(tasks) != 1000 || tasks[0].ID != id || tasks[999].State != sbatch.StatePending {
		t.Errorf("%d tasks, want 1000", len(tasks))
	}
}

func TestJobInAHiddenPartitionIsObserved(t *testing.T) {
	t.Parallel()
	cluster := testenv.Slurm(t)
	hidden := fmt.Sprintf("cltest-hidden-%d", os.Getppid()) // made by the process that began this one
	if os.Geteuid() == 0 {
		hidden = fmt.Sprintf("cltest-hidden-%d", os.Getpid())
		scontrol := func(args ...string) {
			cmd := exec.Command(filepath.Join(cluster.Bin, "scontrol"), args...)
			cmd.Env = []string{"SLURM_CONF=" + cluster.Conf}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("scontrol %v: %v: %s", args, err, out)
			}
		}
		scontrol("create", "PartitionName="+hidden, "Nodes=n1", "Hidden=YES", "State=UP")
		t.Cleanup(func() { scontrol("delete", "PartitionName="+hidden) })
	}
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	r := held(name)
	r.Partition = hidden
	submit(t, c, r)
	if found := observe(t, c).ByName()[name]; len(found) != 1 {
		t.Errorf("%+v", found)
	}
}

func TestSubmissionWhoseAnswerWasLostIsFoundByItsName(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	for _, lost := range []string{"exit 1", "kill -9 $$", "exec sleep 60", "echo Submitted."} {
		deaf := *c
		deaf.Bin = t.TempDir()
		script := "#!/bin/sh\n" + filepath.Join(c.Bin, "sbatch") + ` "$@" >/dev/null; ` + lost + "\n"
		syscall.ForkLock.RLock() // no child may hold it open when it is run
		err := os.WriteFile(filepath.Join(deaf.Bin, "sbatch"), []byte(script), 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		if lost == "exec sleep 60" {
			deaf.SubmitTimeout = 3 * time.Second
		}
		r := held(name + "-" + lost)
		_, err = deaf.Submit(t.Context(), r)
		var e *sbatch.Error
		if !errors.As(err, &e) || e.Refused || !e.Transient() {
			t.Errorf("%s: %+v: want not known", lost, err)
		}
		found := observe(t, c).ByName()[r.Name]
		if len(found) != 1 {
			t.Errorf("%s: %d jobs of the name", lost, len(found))
			continue
		}
		cancelLater(t, c, found[0].ID)
	}
}

func TestControllerThatIsAwayLeavesASubmissionUnknown(t *testing.T) {
	t.Parallel()
	if !testenv.AsResearcher(t) {
		return
	}
	c, name := site(t)
	conf, err := os.ReadFile(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	away := *c
	away.Conf = filepath.Join(os.Getenv("TMPDIR"), "slurm.conf")
	elsewhere := strings.Replace(string(conf), "SlurmctldPort=16817", "SlurmctldPort=1", 1)
	if err := os.WriteFile(away.Conf, []byte(elsewhere+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	away.SubmitTimeout, away.QueryTimeout = 30*time.Second, 500*time.Millisecond // the one waits for Slurm's word, the other does not
	_, err = away.Submit(t.Context(), request(name, "true"))
	var e *sbatch.Error
	if !errors.As(err, &e) || e.Refused || e.Message != "Unable to contact slurm controller (connect failure)" {
		t.Errorf("submit: %+v", err)
	}
	if _, err := away.Observe(t.Context(), time.Now()); !errors.As(err, &e) || !e.Transient() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("observe: %+v", err)
	}
	if err := away.Cancel(t.Context(), 1); !errors.As(err, &e) || !e.Transient() {
		t.Errorf("cancel: %+v", err)
	}
}
