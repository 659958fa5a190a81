package sbatch_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// The promises of the package, on the real cluster of this machine and on the one within this process.

func TestJobIsFoundByNameFromSubmissionToAccounting(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		dir := filepath.Join(s.dir, "100%j")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		r := s.request("pwd; env; ulimit -c")
		r.Dir, r.Output, r.Comment = dir, filepath.Join(dir, "out %x"), "a|b\nc"
		r.WCKey, r.Account, r.QOS, r.Partition, r.CPUs, r.Time, r.Nice = "proj1", "nlp", "normal", "short", 2, time.Minute, 5
		id := s.submit(t, r)
		first := s.observe(t).ByName()[s.name]
		if len(first) != 1 || first[0].ID != id || first[0].Comment != r.Comment {
			t.Errorf("at once: %+v", first)
		}
		ended := await(t, s.jobs(t, s.name), in(sbatch.StateCompleted))
		if ended.Exit != sbatch.ExitedWell || ended.Nodes == "" || ended.Start.Before(before.Add(-time.Second)) || ended.Start.After(time.Now()) {
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
		recorded := await(t, s.accounting(t, s.name), in(sbatch.StateCompleted))
		if recorded.ID != id || recorded.Nodes != ended.Nodes || !recorded.Start.Equal(ended.Start) || !recorded.Submitted.Equal(ended.Submitted) {
			t.Errorf("sacct %+v, squeue %+v", recorded, ended)
		}
		if taken := ended.Submitted; taken.Before(before.Add(-time.Second)) || taken.After(ended.Start) {
			t.Errorf("submitted at %v, between %v and %v", taken, before, ended.Start)
		}
		byID, err := s.QueryAccounting(t.Context(), before.Add(-time.Hour), sbatch.Which{IDs: []sbatch.JobID{id}})
		if err != nil || len(byID) != 1 || byID[0] != recorded {
			t.Errorf("sacct by the id: %+v, %v", byID, err)
		}
	})
}

// squeue does not show an exit status. sacct does, and also shows COMPLETED for jobs that an administrator has
// closed.
func TestExitStatusIsThatOfTheBatchScript(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		s.submit(t, s.request("exit 3"))
		if ended := await(t, s.jobs(t, s.name), in(sbatch.StateFailed)); ended.Exit != "" {
			t.Errorf("squeue: %+v", ended)
		}
		if recorded := await(t, s.accounting(t, s.name), in(sbatch.StateFailed)); recorded.Exit != "3:0" {
			t.Errorf("sacct: %+v", recorded)
		}
	})
}

func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
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
			r := s.request("true")
			change(&r)
			if r.Extra != nil && s.real == nil {
				continue // package slurmtest models few options
			}
			_, submitted := s.Submit(t.Context(), r)
			for what, err := range map[string]error{"submit": submitted, "try": s.Try(t.Context(), r)} {
				var e *sbatch.Error
				// For too much memory, sbatch --test-only prints the first sentence alone.
				if !errors.As(err, &e) || !e.Refused || e.Retry || e.Transient() || e.Message != words && (what == "submit" || !strings.HasPrefix(words, e.Message+" (Memory")) {
					t.Errorf("%s: want %q, refused for good; got %+v", what, words, err)
				}
			}
		}
		// Two of them, for too much memory and for a GPU, left a record of a job.
		ghosts := s.observe(t).ByName()[s.name]
		if len(ghosts) != 2 {
			t.Errorf("%d records, want 2: %+v", len(ghosts), ghosts)
		}
		for _, g := range ghosts {
			if g.State != sbatch.StateFailed || g.Nodes != "" {
				t.Errorf("record of a refused submission: %+v", g)
			}
		}
	})
}

func TestLimitOnTheNumberOfJobsIsARefusalForNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		var err error
		for range 3 { // the limit is two, for all tests together
			r := s.held()
			r.QOS = "limited"
			var id sbatch.JobID
			if id, err = s.Submit(t.Context(), r); err != nil {
				break
			}
			s.cancelLater(t, id, r.Name)
		}
		var e *sbatch.Error
		if !errors.As(err, &e) || !e.Refused || !e.Retry || !strings.Contains(e.Message, "QOSMaxSubmitJobPerUserLimit") {
			t.Errorf("third job: %+v", err)
		}
	})
}

func TestCancelEndsAJobInAnyStateOrNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		running := s.submit(t, named(s.request("exec sleep 600"), "-running"))
		pending := s.submit(t, named(s.held(), "-pending"))
		await(t, s.jobs(t, s.name+"-running"), in(sbatch.StateRunning))
		cancel := func(id sbatch.JobID, suffix string) {
			if err := s.Cancel(t.Context(), s.name+suffix, id); err != nil {
				t.Errorf("cancel %d: %v", id, err)
			}
		}
		cancel(running, "-running")
		cancel(pending, "-pending")
		if j := await(t, s.jobs(t, s.name+"-running"), in(sbatch.StateCancelled)); j.Nodes == "" {
			t.Errorf("it ran: %+v", j)
		}
		if j := await(t, s.accounting(t, s.name+"-running"), in(sbatch.StateCancelled)); j.CancelledBy == "" || j.CancelledBy == "0" {
			t.Errorf("its user cancelled it: %+v", j)
		}
		if j := await(t, s.jobs(t, s.name+"-pending"), in(sbatch.StateCancelled)); j.Nodes != "" || j.Start.IsZero() {
			t.Errorf("it never ran: %+v", j)
		}
		cancel(running, "-running")
		cancel(pending, "-pending")
		cancel(4_000_000_000, "-running")
	})
}

func TestOneCancelEndsManyJobs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		ids := []sbatch.JobID{s.submitAsRoot(t), 4_000_000_000} // another user's, and none
		for range 5 {
			ids = append(ids, s.submit(t, named(s.held(), "-wanted")))
		}
		ended := s.submit(t, named(s.request("true"), "-ended"))
		await(t, s.jobs(t, s.name+"-ended"), in(sbatch.StateCompleted))
		ids = append(ids, ended, s.submit(t, named(s.request("exec sleep 600"), "-running")))
		await(t, s.jobs(t, s.name+"-running"), in(sbatch.StateRunning))
		spared := s.submit(t, named(s.held(), "-spared"))
		if err := s.Cancel(t.Context(), "", ids...); err == nil || !strings.Contains(err.Error(), "Access/permission denied") {
			t.Errorf("another user's job is among them: %v", err)
		}
		all := s.observe(t).ByName()
		for _, j := range all[s.name+"-wanted"] {
			if j.State != sbatch.StateCancelled {
				t.Errorf("%+v", j)
			}
		}
		if j := all[s.name+"-spared"]; len(j) != 1 || j[0].ID != spared || j[0].State != sbatch.StatePending {
			t.Errorf("%+v", j)
		}
		await(t, s.jobs(t, s.name+"-running"), in(sbatch.StateCancelled))
		if err := s.Cancel(t.Context(), "", ids[1:]...); err != nil {
			t.Errorf("all have ended: %v", err)
		}
		if err := s.Cancel(t.Context(), ""); err != nil {
			t.Errorf("none: %v", err)
		}
	})
}

func TestCancelSparesAJobOfAnotherName(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		running := s.submit(t, named(s.request("exec sleep 600"), "-running"))
		pending := s.submit(t, named(s.held(), ",a b"))
		await(t, s.jobs(t, s.name+"-running"), in(sbatch.StateRunning))
		for _, id := range []sbatch.JobID{running, pending} {
			if err := s.Cancel(t.Context(), s.name, id); err != nil {
				t.Errorf("cancel %d by another name: %v", id, err)
			}
		}
		all := s.observe(t).ByName()
		if r, p := all[s.name+"-running"], all[s.name+",a b"]; r[0].State != sbatch.StateRunning || p[0].State != sbatch.StatePending {
			t.Errorf("%+v, %+v: want them to be as before", r, p)
		}
		if err := s.Cancel(t.Context(), s.name+",a b", pending); err != nil {
			t.Error(err)
		}
		if p := s.observe(t).ByName()[s.name+",a b"]; p[0].State != sbatch.StateCancelled {
			t.Errorf("%+v", p)
		}
	})
}

func TestJobThatFitsNowhereWaitsWithItsReasonOrIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		r := s.request("true")
		r.CPUs = 500
		if s.version == slurmtest.Slurm2411 {
			_, err := s.Submit(t.Context(), r)
			var e *sbatch.Error
			if !errors.As(err, &e) || !e.Refused || e.Retry || e.OfSite ||
				e.Message != "Requested node configuration is not available (CPU count per node can not be satisfied)" {
				t.Errorf("%+v", err)
			}
			return
		}
		s.submit(t, r)
		j := await(t, s.jobs(t, s.name), func(j sbatch.Job) bool { return j.Reason == "PartitionConfig" })
		if j.State != sbatch.StatePending || !j.Start.IsZero() {
			t.Errorf("%+v", j)
		}
	})
}

func TestStrangeNamesOfOtherJobsHideNoJob(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		names := []string{s.name, s.name + "|PENDING", s.name + "\n1|RUNNING|n1", "\n" + s.name, s.name + "\t\a é"}
		for _, n := range names {
			r := s.held()
			r.Name = n
			s.submit(t, r)
		}
		all := s.observe(t).ByName()
		for _, n := range names {
			if found := all[n]; len(found) != 1 || found[0].Reason != "JobHeldUser" {
				t.Errorf("%q: %+v", n, found)
			}
		}
	})
}

// A controller that has lost its state gives the id of a bundle's job to any other job, and administrators rename jobs.
// One strange name must not hide the other jobs of the same question. (The database has "`" for a double quote.)
func TestStrangeNamesAreReadFromAccounting(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		want := map[sbatch.JobID]string{}
		for _, n := range []string{s.name, s.name + "|PENDING|n1", s.name + "\n1|RUNNING|n1", "\n" + s.name, s.name + "\t' ` é", s.name + strings.Repeat("long", 50)} {
			r := s.request("true")
			r.Name = n
			want[s.submit(t, r)] = n
		}
		ids := slices.Sorted(maps.Keys(want))
		found := awaitAccounting(t, s, ids)
		for id, name := range want {
			if found[id].Name != name {
				t.Errorf("job %s is %q, want %q", id, found[id].Name, name)
			}
		}
	})
}

// awaitAccounting asks for jobs until the database knows that all of them have completed.
func awaitAccounting(t *testing.T, s *slurm, ids []sbatch.JobID) map[sbatch.JobID]sbatch.Job {
	t.Helper()
	found := map[sbatch.JobID]sbatch.Job{}
	testenv.Await(t, "all jobs are in accounting", func() bool {
		jobs, err := s.QueryAccounting(t.Context(), time.Now().Add(-time.Hour), sbatch.Which{IDs: ids})
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, j := range jobs {
			found[j.ID] = j
			if j.State == sbatch.StateCompleted && j.Name != "allocation" { // the name comes a moment later
				done++
			}
		}
		return done == len(ids)
	})
	return found
}

func TestJobInAHiddenPartitionIsObserved(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		hidden := strings.Replace(s.name, "cltest", "cltest-hidden", 1)
		s.addPartition(t, slurmtest.Partition{Name: hidden, Nodes: []string{"n1"}}, "Hidden=YES")
		r := s.held()
		r.Partition = hidden
		id := s.submit(t, r)
		if found := s.observe(t).ByName()[s.name]; len(found) != 1 {
			t.Errorf("%+v", found)
		}
		own := s.command(t, "squeue", "--me", "--noheader", "--format=%A")
		if slices.Contains(strings.Fields(own.Out), id.String()) {
			t.Errorf("squeue --me without --all shows it too: %q", own.Out)
		}
	})
}

func TestSubmissionWhoseAnswerWasLostIsFoundByItsName(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, s *slurm) {
		for _, lost := range []string{"exit 1", "kill -9 $$", "exec sleep 60", "echo Submitted."} {
			deaf := *s.real
			deaf.Bin = t.TempDir()
			script := "#!/bin/sh\n" + filepath.Join(s.real.Bin, "sbatch") + ` "$@" >/dev/null; ` + lost + "\n"
			testenv.WriteProgram(t, filepath.Join(deaf.Bin, "sbatch"), []byte(script))
			if lost == "exec sleep 60" {
				deaf.SubmitTimeout = 10 * time.Second // sbatch's own answer takes less
			}
			r := named(s.held(), "-"+lost)
			_, err := deaf.Submit(t.Context(), r)
			var e *sbatch.Error
			if !errors.As(err, &e) || e.Refused || !e.Transient() {
				t.Errorf("%s: %+v: want not known", lost, err)
			}
			found := s.observe(t).ByName()[r.Name]
			if len(found) != 1 {
				t.Errorf("%s: %d jobs of the name", lost, len(found))
				continue
			}
			s.cancelLater(t, found[0].ID, r.Name)
		}
	})
}

func TestUnreachableControllerLeavesASubmissionUnknown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		silent := s.unreachable(t)
		_, err := silent.Submit(t.Context(), s.request("true"))
		var e *sbatch.Error
		if !errors.As(err, &e) || e.Refused || e.Message != "Unable to contact slurm controller (connect failure)" {
			t.Errorf("submit: %+v", err)
		}
		_, observed := silent.Observe(t.Context(), time.Now())
		_, listed := silent.Partitions(t.Context())
		for what, err := range map[string]error{"observe": observed, "partitions": listed, "cancel": silent.Cancel(t.Context(), s.name, 1)} {
			if !errors.As(err, &e) || !e.Transient() || !inTime(err) {
				t.Errorf("%s: %+v", what, err)
			}
		}
		if err := silent.Try(t.Context(), s.request("true")); !errors.As(err, &e) || e.Refused || !inTime(err) {
			t.Errorf("try: %+v", err)
		}
	})
}

// inTime reports whether a command ended by the time-out, or by Slurm's answer.
func inTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "Unable to contact slurm controller")
}

// unreachable returns a client whose controller does not answer. sbatch has time for Slurm's answer, the other
// commands do not.
func (s *slurm) unreachable(t *testing.T) commands {
	t.Helper()
	if s.inprocess != nil {
		s.inprocess.Do(func(now time.Time, c *slurmtest.Controller) { c.Stop(now) })
		return s.inprocess
	}
	conf, err := os.ReadFile(s.real.Conf)
	if err != nil {
		t.Fatal(err)
	}
	silent := *s.real
	silent.SubmitTimeout, silent.QueryTimeout = 30*time.Second, 500*time.Millisecond
	silent.Conf = filepath.Join(s.dir, "slurm.conf")
	elsewhere := regexp.MustCompile(`(?m)^SlurmctldPort=.*$`).ReplaceAll(conf, []byte("SlurmctldPort=1"))
	elsewhere = regexp.MustCompile(`(?m)^MessageTimeout=.*$`).ReplaceAll(elsewhere, []byte("MessageTimeout=10")) // Slurm's own
	if err := os.WriteFile(silent.Conf, elsewhere, 0o600); err != nil {
		t.Fatal(err)
	}
	return &silent
}
