package local

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestCancelledJobGetsTermAndEndsItself(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	s := newSite(t, config(cpus(t, 1)))
	door := s.door("door")
	running := s.submit(s.request("a", `trap 'echo told TERM; exit 5' TERM; echo ready $$; read line <door`))
	waiting := s.submit(s.request("b", "true"))
	s.printed("a", "ready")
	must(t, s.Cancel(t.Context(), "other", running, waiting)) // they have other names
	must(t, s.Cancel(t.Context(), "a", running, waiting, 99))
	if j := s.await(running, sbatch.StateCancelled); j.Nodes != "n1" || j.Exit != "5:0" || s.printed("a", "told") != "TERM" {
		t.Errorf("running: %+v", j)
	}
	s.await(waiting, sbatch.StateCompleted)
	must(t, s.Cancel(t.Context(), "", running, waiting)) // they have ended
	if j := s.job(waiting); j.State != sbatch.StateCompleted {
		t.Errorf("cancelled after its end: %+v", j)
	}
	_ = door
}

func TestCancelledJobThatWaitsNeverBegins(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	door := s.door("door")
	s.submit(s.request("a", "read line <door"))
	waiting := s.submit(s.request("b", "echo began"))
	must(t, s.Cancel(t.Context(), "b", waiting))
	if j := s.job(waiting); j.State != sbatch.StateCancelled || j.Nodes != "" || !j.Start.IsZero() {
		t.Errorf("at once: %+v", j)
	}
	door.open(t)
	s.await(s.submit(s.request("c", "true")), sbatch.StateCompleted)
	if _, err := os.Stat(s.files + "/b.out"); err == nil {
		t.Error("it was started")
	}
}

// This test holds the pipe at which the jobs wait, so no process ends by itself.
func TestJobThatIgnoresTermIsKilledWithAllItsProcesses(t *testing.T) {
	t.Parallel()
	c := config(cpus(t, 1))
	c.KillWait = 50 * time.Millisecond
	s := newSite(t, c)
	s.door("door")
	id := s.submit(s.request("a", `trap '' TERM
(echo child $(exec sh -c 'echo $PPID'); read line <door) &
setsid sh -c 'echo daemon $$; read line <door' &
env -i /usr/bin/env sh -c 'echo bare $$; read line <door' &
echo main $$
read line <door`))
	all := map[string]process{}
	for _, name := range []string{"main", "child", "daemon", "bare"} {
		all[name] = s.process(name)
	}
	next := s.submit(s.request("b", "true"))
	must(t, s.Cancel(t.Context(), "a", id))
	if j := s.job(id); j.State != sbatch.StateCompleting {
		t.Errorf("after the cancel: %+v", j)
	}
	if j := s.await(id, sbatch.StateCancelled); j.Exit != "0:9" {
		t.Errorf("%+v", j)
	}
	for name, p := range all {
		if p.alive() {
			t.Errorf("%s goes on", name)
		}
	}
	s.await(next, sbatch.StateCompleted)
}

func TestProcessesThatAJobLeavesAreKilledAtItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	s.door("door")
	id := s.submit(s.request("a", `setsid sh -c 'trap "" TERM; echo daemon $$; read line <door' &
env -i /usr/bin/env sh -c 'echo bare $$; read line <door' &
read line <go`))
	goOn := s.door("go")
	daemon, bare := s.process("daemon"), s.process("bare")
	goOn.open(t)
	s.await(id, sbatch.StateCompleted)
	if daemon.alive() || bare.alive() {
		t.Errorf("alive after the end: %v %v", daemon.alive(), bare.alive())
	}
}

func TestJobEndsAtItsTimeLimit(t *testing.T) {
	t.Parallel()
	c := config(cpus(t, 1))
	c.KillWait = 20 * time.Millisecond
	s := newSite(t, c)
	s.door("door")
	for name, script := range map[string]string{
		"obeys":   `echo main $$; read line <door`,
		"ignores": `trap '' TERM; echo main $$; read line <door`,
	} {
		r := s.request(name, script)
		r.Time = 100 * time.Millisecond
		id := s.submit(r)
		if j := s.await(id, sbatch.StateTimeout); j.Reason != "TimeLimit" || j.Nodes != "n1" {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

func TestEndThatTheDiskRefusedIsRecordedLater(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	door := s.door("door")
	id := s.submit(s.request("a", "echo main $$; read line <door"))
	s.printed("a", "main")
	must(t, os.Rename(s.dir, s.dir+".away"))
	door.open(t)
	s.await(id, sbatch.StateCompleted)
	must(t, os.Rename(s.dir+".away", s.dir))
	var text []byte
	testenv.Await(t, "the record says that the job has ended", func() bool {
		text, _ = os.ReadFile(s.records.path(id) + recordSuffix) // the record is there
		return strings.Contains(string(text), "COMPLETED")
	}, &text)
}

// Linux before 5.10 has no such descriptors.
func TestEndIsNoticedWithoutADescriptorOfTheProcess(t *testing.T) {
	t.Parallel()
	r, held := foreign(t, t.TempDir(), 1, "true")
	done := make(chan bool)
	go func() {
		r.Process.poll(t.Context())
		close(done)
	}()
	select {
	case <-done:
		t.Error("a process that is held counts as ended")
	case <-time.After(3 * pollEvery):
	}
	must(t, held.Release())
	<-done
	if r.Process.alive() {
		t.Error("it is alive")
	}
}

func TestSignalSparesAProcessThatHasTheIDSince(t *testing.T) {
	t.Parallel()
	r, _ := foreign(t, t.TempDir(), 1, "true")
	earlier := r.Process
	earlier.Start--
	must(t, earlier.signal(unix.SIGKILL))
	if earlier.alive() || !r.Process.alive() {
		t.Errorf("the earlier one is alive: %v; the later one is: %v", earlier.alive(), r.Process.alive())
	}
}
