package server_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
)

func TestRunFromCreatedToReady(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<30, 1<<40)
	data := s.upload("data", "hello\n")
	w := s.worker("alice", "w(1)", "cpu")
	uuid := s.run("cat in", map[string]any{"request_queue": "tag=cpu", "request_disk": "10m", "request_time": "1h"}, codalab.Dependency{ParentUUID: data, ChildPath: "in"})
	m := w.told(codalab.MessageRun)
	if m.Bundle.UUID != uuid || m.Bundle.State != codalab.StateStarting || m.Bundle.Command != "cat in" {
		t.Fatalf("run message %+v", m.Bundle)
	}
	want := codalab.Resources{CPUs: 1, ImageReference: "codalab/default-cpu:latest", Time: 3600, Memory: 2 << 30, Disk: 10 << 20, Network: true, Tag: "tag=cpu"}
	if diff := cmp.Diff(want, *m.Resources); diff != "" {
		t.Error(diff)
	}
	dependency := codalab.Dependency{ChildUUID: uuid, ChildPath: "in", ParentUUID: data, ParentName: "data"}
	if diff := cmp.Diff([]codalab.RunDependency{{Dependency: dependency}}, m.Bundle.Dependencies); diff != "" {
		t.Error(diff)
	}
	if other := s.worker("alice", "w2", "cpu"); other.startBundle(uuid) {
		t.Error("another worker may start the bundle")
	}
	w.id = "w(1)"
	for range 2 { // its answer may be lost
		if !w.startBundle(uuid) {
			t.Fatal("the bundle is not the worker's")
		}
	}
	b := s.await(uuid, codalab.StatePreparing)
	if b.Metadata.String("remote") != "node1" || b.Metadata.Int("started") != 1700000000 || len(b.Metadata.Strings("remote_history")) != 1 {
		t.Errorf("preparing: %v", b.Metadata)
	}

	running, pinned := reportOf(uuid, codalab.StateRunning), "image@sha256:1"
	running.PinnedReference, running.ContainerTimeTotal, running.DiskUtilization = &pinned, 2.5, 77
	running.CPUUsage, running.MemoryUsage, running.MemoryMax = 0.5, 0.25, 1<<29
	s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0&store=", tarGz(t, map[string]string{"stdout": "hello\n", "stderr": ""})).ok()
	done := make(chan []codalab.Message)
	go func() { done <- w.checkIn(running) }()
	b = s.await(uuid, codalab.StateRunning)
	if b.Metadata.String("docker_image") != pinned || b.Metadata.Float("time") != 2.5 || b.StateDetails != "at it" {
		t.Errorf("running: %v", b.Metadata)
	}

	ended := running
	zero := 0
	ended.State, ended.ExitCode = codalab.StateFinalizing, &zero
	next := *w
	for range 2 { // the answer may be lost
		if got := next.checkIn(ended); len(got) != 1 || got[0].Type != codalab.MessageMarkFinalized || got[0].UUID != uuid {
			t.Fatalf("told %+v", got)
		}
	}
	if got := <-done; got != nil {
		t.Errorf("the older check-in was told %+v", got)
	}
	b = s.bundle("alice", uuid)
	if m := b.Metadata; m.Float("cpu_usage") != 0.5 || m.Float("memory_usage") != 0.25 || m.Int("memory_max") != 1<<29 {
		t.Errorf("what it used: %v", m)
	}
	if b.State != codalab.StateReady || b.Metadata.String("run_status") != "Finished" || b.Metadata.Int("exitcode") != 0 || b.Metadata.Int("data_size") != 4096+6 {
		t.Errorf("ready: %s %v", b.State, b.Metadata)
	}
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/in").ok().body; got != "hello\n" {
		t.Errorf("read through the dependency: %q", got)
	}
}

func TestEndsOfRuns(t *testing.T) {
	t.Parallel()
	one, memory := 1, "Memory limit 2m exceeded."
	for name, test := range map[string]struct {
		end     func(*codalab.RunReport)
		state   codalab.State
		message string
	}{
		"success":   {func(*codalab.RunReport) {}, codalab.StateReady, ""},
		"exit code": {func(r *codalab.RunReport) { r.ExitCode = &one }, codalab.StateFailed, "Exit code 1"},
		"limit":     {func(r *codalab.RunReport) { r.FailureMessage, r.ExitCode = &memory, &one }, codalab.StateFailed, memory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w, uuid := claimedRun(t)
			end := reportOf(uuid, codalab.StateFinalizing)
			test.end(&end)
			w.told(codalab.MessageMarkFinalized, end)
			b := s.bundle("alice", uuid)
			if b.State != test.state || b.Metadata.String("failure_message") != test.message {
				t.Errorf("%s %v", b.State, b.Metadata)
			}
			// What has ended changes no more.
			w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
			if again := s.bundle("alice", uuid); !cmp.Equal(b, again) {
				t.Error(cmp.Diff(b, again))
			}
		})
	}
}

// Any user may run workers, whose reports others read.
func TestReportsSteerNoTerminal(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	hostile, failure, image := "a\x1b[2J\nb\u202e", "no\x1b[2J\nmemory\u202e", "x@sha256:\x1b"
	run := reportOf(uuid, codalab.StateRunning)
	run.RunStatus, run.Remote, run.PinnedReference, run.JobHandle = hostile, hostile, &image, hostile
	w.checkIn(run)
	m := s.bundle("alice", uuid).Metadata
	run.State, run.FailureMessage = codalab.StateFinalizing, &failure
	w.told(codalab.MessageMarkFinalized, run)
	got := []string{m.String("run_status"), m.String("remote"), m.String("job_handle"), m.String("docker_image"), s.bundle("alice", uuid).Metadata.String("failure_message")}
	want := []string{`a\u001b[2J b\u202e`, `a\u001b[2J b\u202e`, `a\u001b[2J b\u202e`, `x@sha256:\u001b`, `no\u001b[2J` + "\nmemory" + `\u202e`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSlurmJobOfARunIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, uuid := claimedRun(t)
		handle := func() any { return s.bundle("alice", uuid).Metadata["job_handle"] }
		run := reportOf(uuid, codalab.StatePreparing)
		for _, step := range []struct {
			said string
			want any
		}{{"", nil}, {"4711", "4711"}, {"", "4711"}, {"4712", "4712"}} {
			run.JobHandle = step.said
			if w.checkIn(run); handle() != step.want {
				t.Errorf("after %q: job_handle %v", step.said, handle())
			}
		}
		w.checkIn(reportOf(uuid, codalab.StateStaged)) // the worker gives it back
		if handle() != nil {
			t.Errorf("staged again: job_handle %v", handle())
		}
		w.takes()
		run.JobHandle = "4713"
		w.checkIn(run)
		w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
		if handle() != "4713" {
			t.Errorf("after the end: job_handle %v", handle())
		}
	})
}

func TestRunWithoutStoredResultsCountsNoDisk(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	used := func() any { return s.get("alice", "/user").ok().value("data", "attributes", "disk_used") }
	run, failure := reportOf(uuid, codalab.StateRunning), "The results could not be stored."
	run.DiskUtilization = 3 << 40
	w.checkIn(run)
	if got := used(); got != float64(3<<40) {
		t.Fatalf("while it runs: %v", got)
	}
	run.State, run.FailureMessage = codalab.StateFinalizing, &failure
	w.told(codalab.MessageMarkFinalized, run)
	if size := s.bundle("alice", uuid).Metadata.Int("data_size"); size != 0 || used() != 0.0 {
		t.Errorf("data_size %d, disk_used %v", size, used())
	}
	s.run("true", cpuQueue)
}

func TestKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kill := func(s *site, uuid string) answer {
			return s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid}))
		}
		s := newSite(t)
		staged := s.run("x", map[string]any{"request_queue": "nosuch"})
		s.await(staged, codalab.StateStaged)
		a := kill(s, staged).ok()
		if a.value("data", 0, "id") != nil || a.text("data", 0, "attributes", "type") != "kill" {
			t.Errorf("answer %s", a.body)
		}
		if b := s.bundle("alice", staged); b.State != codalab.StateKilled || !cmp.Equal(b.Metadata.Strings("actions"), []string{"kill"}) {
			t.Errorf("%s %v", b.State, b.Metadata)
		}
		kill(s, staged).says(400, "ready, failed, killed")

		w := s.worker("alice", "w", "cpu")
		starting := s.run("x", cpuQueue)
		w.told(codalab.MessageRun)
		kill(s, starting).ok()
		if w.startBundle(starting) {
			t.Error("a killed bundle was handed out")
		}

		s.run("x", cpuQueue)
		uuid := w.takes()
		running := reportOf(uuid, codalab.StateRunning)
		kill(s, uuid).ok()
		for range 2 { // until it has ended
			if m := w.told(codalab.MessageKill, running); m.UUID != uuid || m.KillMessage != codalab.KillRequested {
				t.Errorf("told %+v", m)
			}
		}
		message, code := codalab.KillRequested, 137
		running.State, running.FailureMessage, running.ExitCode = codalab.StateFinalizing, &message, &code
		w.told(codalab.MessageMarkFinalized, running)
		if b := s.bundle("alice", uuid); b.State != codalab.StateKilled || b.Metadata.String("failure_message") != message {
			t.Errorf("%s %v", b.State, b.Metadata)
		}
	})
}

func TestRunsWaitForTheirParents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.worker("alice", "w", "cpu")
	on := func(parent string) codalab.Dependency { return codalab.Dependency{ParentUUID: parent, ChildPath: "in"} }
	parent := s.dataset("data")
	child := s.run("x", cpuQueue, on(parent))
	grandchild := s.run("y", cpuQueue, on(child))
	tolerant := s.run("z", map[string]any{"request_queue": "none", "allow_failed_dependencies": true}, on(child))
	lost := s.dataset("lost")
	orphan := s.run("x", cpuQueue, on(lost))
	s.call("alice", "DELETE", "/bundles?force=1", deletion("bundles", lost)).ok()
	s.run("y", map[string]any{"request_queue": "none"}, on(parent)) // wakes Run
	if b := s.await(orphan, codalab.StateFailed); !strings.HasPrefix(b.Metadata.String("failure_message"), "Missing parent bundles: 0x") {
		t.Errorf("orphan: %v", b.Metadata)
	}
	if b := s.bundle("alice", child); b.State != codalab.StateCreated || b.StateDetails == "" {
		t.Errorf("child: %s", b.State)
	}
	s.put(parent, "filename=data&unpack=0", "x").ok()
	if got := w.takes(); got != child {
		t.Fatalf("took %s", got)
	}
	one, end := 1, reportOf(child, codalab.StateFinalizing)
	end.ExitCode = &one
	w.told(codalab.MessageMarkFinalized, end)
	b := s.await(grandchild, codalab.StateFailed)
	if want := "Parent bundles failed: " + child + " (Please use the --allow-failed-dependencies"; !strings.HasPrefix(b.Metadata.String("failure_message"), want) {
		t.Errorf("grandchild: %v", b.Metadata)
	}
	s.await(tolerant, codalab.StateStaged)
}

func TestRestartLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.worker("alice", "w", "cpu")
	held := s.run("x", cpuQueue)
	w.takes()
	handed := s.run("y", cpuQueue)
	w.told(codalab.MessageRun)
	stop := s.start() // a second one, as after a crash
	if got := w.told(codalab.MessageRun, reportOf(held, codalab.StateRunning)).Bundle.UUID; got != handed {
		t.Errorf("told to run %s", got)
	}
	w.told(codalab.MessageMarkFinalized, reportOf(held, codalab.StateFinalizing))
	if !w.startBundle(handed) {
		t.Error("what was handed out before the restart is lost")
	}
	stop()
}

func TestReportsOfOthersAreIgnored(t *testing.T) {
	t.Parallel()
	s, _, uuid := claimedRun(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	for _, other := range []*testWorker{s.worker("alice", "v", "other"), s.worker("bob", "w", "other")} {
		if got := other.checkIn(reportOf(uuid, codalab.StateFinalizing)); got != nil {
			t.Errorf("told %+v", got)
		}
	}
	if b := s.bundle("alice", uuid); b.State != codalab.StatePreparing {
		t.Errorf("state %s", b.State)
	}
}
