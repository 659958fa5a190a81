package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

func TestJobsOutliveAKilledSchedulerAndAreTakenOver(t *testing.T) {
	t.Parallel()
	all, err := affinity.Own()
	must(t, err)
	dir, files := filepath.Join(t.TempDir(), "jobs"), t.TempDir()
	s := &site{t: t, dir: dir, files: files}
	door := s.door("door")
	killed := testenv.Again(t, "CLTEST_LOCAL_DIR="+dir)
	for _, name := range []string{"running", "waiting"} {
		r := s.request(name, `echo main $$ $(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status); read line <door`)
		r.CPUs = int64(len(all))
		text, err := json.Marshal(r)
		must(t, err)
		_, err = fmt.Fprintln(killed.Input, string(text))
		must(t, err)
		var id int
		var result string
		if _, err := fmt.Fscanln(killed, &id, &result); err != nil || result != "<nil>" {
			t.Fatalf("submit: %d %s %v", id, result, err)
		}
	}
	first := s.printed("running", "main")
	killed.Kill()
	must(t, killed.Wait())

	again := openSite(t, dir, config(all))
	s.Scheduler = again.Scheduler
	if j := s.job(1); j.State != sbatch.StateRunning || j.Name != "running" || j.Nodes != "n1" {
		t.Errorf("first job: %+v", j)
	}
	if j := s.job(2); j.State != sbatch.StatePending {
		t.Errorf("second job: %+v", j)
	}
	door.open(t)
	// Only its former parent could read its exit status.
	if j := s.await(1, sbatch.StateFailed); j.Exit != "" {
		t.Errorf("first job: %+v", j)
	}
	s.printed("waiting", "main")
	door.open(t)
	if j := s.await(2, sbatch.StateCompleted); j.Exit != sbatch.ExitedWell {
		t.Errorf("second job: %+v", j)
	}
	text, err := os.ReadFile(filepath.Join(files, "running.out"))
	must(t, err)
	if string(text) != "main "+first+"\n" {
		t.Errorf("the first job was started again: %q, at first %q", text, first)
	}
}

// A start is interrupted between two of its steps (doc.go). The held process belongs to a scheduler
// that has ended.
func TestCrashDuringAStartStartsAJobOnceAtMost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		recorded bool
		want     sbatch.State
	}{
		"before the record": {recorded: false, want: sbatch.StateCompleted},
		"after the record":  {recorded: true, want: sbatch.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "jobs")
			output := filepath.Join(t.TempDir(), "out")
			r, held := foreign(t, dir, 1, "echo executed >>"+output)
			r.Request.Script = "#!/bin/sh\necho executed >>" + output + "\n"
			if !test.recorded {
				r = record{ID: 1, Request: r.Request, Submitted: r.Submitted, State: sbatch.StatePending}
			}
			keep(t, dir, r)
			must(t, held.Abandon()) // as at the end of its scheduler
			s := openSite(t, dir, config(cpus(t, 1)))
			j := s.await(1, test.want)
			if j.Nodes != "n1" {
				t.Errorf("%+v", j)
			}
			text, err := os.ReadFile(output)
			if executed := strings.Count(string(text), "executed"); executed > 1 || (executed == 1) != (test.want == sbatch.StateCompleted) {
				t.Errorf("executed %d times, %v", executed, err)
			}
		})
	}
}

// Schedulers are killed while they submit, start and end jobs.
func TestNoKillStartsAJobTwiceOrLosesOne(t *testing.T) {
	t.Parallel()
	dir, files := filepath.Join(t.TempDir(), "jobs"), t.TempDir()
	s := &site{t: t, dir: dir, files: files}
	r := s.request("job", "echo ran $SLURM_JOB_ID")
	text, err := json.Marshal(r)
	must(t, err)
	last := 0 // id
	for round := range 9 {
		killed := testenv.Again(t, "CLTEST_LOCAL_DIR="+dir)
		_, err = fmt.Fprint(killed.Input, strings.Repeat(string(text)+"\n", 4))
		must(t, err)
		for range round % 5 {
			var id int
			var result string
			if _, err := fmt.Fscanln(killed, &id, &result); err != nil || result != "<nil>" || id <= last {
				t.Fatalf("submit: %d %s %v, after %d", id, result, err, last)
			}
			last = id
		}
		killed.Kill()
		must(t, killed.Wait())
	}
	c := config(cpus(t, 1))
	s.Scheduler = openSite(t, dir, c).Scheduler
	for id := sbatch.JobID(1); int(id) <= last; id++ {
		var j sbatch.Job
		testenv.Await(t, fmt.Sprintf("job %s has ended", id), func() bool { j = s.job(id); return j.State.Ended() }, &j)
	}
	text, err = os.ReadFile(r.Output)
	must(t, err)
	ran := map[string]int{}
	for line := range strings.Lines(string(text)) {
		ran[strings.TrimSpace(line)]++
		if ran[strings.TrimSpace(line)] > 1 {
			t.Errorf("twice: %s", line)
		}
	}
	for id := sbatch.JobID(1); int(id) <= last; id++ {
		if j := s.job(id); j.State == sbatch.StateCompleted && ran["ran "+id.String()] == 0 || j.State != sbatch.StateCompleted && j.State != sbatch.StateFailed {
			t.Errorf("%+v", j)
		}
	}
}

func TestJobWhoseStartCannotBeRecordedDoesNotRun(t *testing.T) {
	t.Parallel()
	c := config(cpus(t, 1))
	var log testenv.Output
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := newSite(t, c)
	door := s.door("door")
	s.submit(s.request("first", "read line <door"))
	id := s.submit(s.request("second", "echo ran"))
	record := s.records.path(id) + recordSuffix
	must(t, os.Rename(record, record+".away"))
	must(t, os.MkdirAll(filepath.Join(record, "in the way"), 0o700))
	door.open(t)
	testenv.Await(t, "the failure is logged", func() bool {
		return strings.Contains(log.String(), fmt.Sprintf("cannot start a job\" job=%s error=\"record job", id))
	}, &log)
	if j := s.job(id); j.State != sbatch.StatePending {
		t.Errorf("%+v", j)
	}
	if output, err := os.ReadFile(filepath.Join(s.files, "second.out")); err != nil || len(output) > 0 {
		t.Errorf("it ran without a record: %q %v", output, err)
	}
	must(t, os.RemoveAll(record))
	s.await(id, sbatch.StateCompleted)
}

func TestJobThatIsTakenOverKeepsWhatItHasOfTheMachine(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	c := config(cpus(t, 2))
	r, held := foreign(t, dir, 5, "read line")
	r.CPUs, r.Request.MemoryMiB = c.Machine.CPUs[:1], 4<<10 // the machine had more memory
	keep(t, dir, r)
	s := openSite(t, dir, c)
	door := s.door("door")
	s.submit(s.request("next", `echo cpus $(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status); read line <door`))
	if got := s.printed("next", "cpus"); got != affinity.Format(c.Machine.CPUs[1:]) {
		t.Errorf("the next job runs on %s", got)
	}
	door.open(t)
	must(t, held.Release()) // its standard input is empty
	s.await(5, sbatch.StateFailed)
}

func TestJobThatIsTakenOverIsStillEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*record)
		want   sbatch.State
	}{
		"cancelled before": {func(r *record) { r.EndState = sbatch.StateCancelled }, sbatch.StateCancelled},
		"time is up":       {func(r *record) { r.Request.Time = time.Minute; r.Started = time.Now().Add(-time.Hour) }, sbatch.StateTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "jobs")
			files := &site{t: t, files: t.TempDir()}
			files.door("door")
			r, held := foreign(t, dir, 3, "cd "+files.files+`; trap '' TERM
setsid sh -c 'echo daemon $$ >a.out; read line <door' &
read line <door`)
			must(t, held.Release())
			daemon := files.process("daemon")
			test.change(&r)
			keep(t, dir, r)
			c := config(cpus(t, 1))
			c.KillWait = 20 * time.Millisecond
			openSite(t, dir, c).await(3, test.want)
			if r.Process.alive() || daemon.alive() {
				t.Errorf("main process alive: %v, other: %v", r.Process.alive(), daemon.alive())
			}
		})
	}
}

func TestRestartedMachineFailsItsJobs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	r, _ := foreign(t, dir, 1, "true")
	r.Boot = "another " + r.Boot
	waiting := record{ID: 2, Request: request{Name: "waiting", Script: "#!/bin/sh\n", CPUs: 1}, State: sbatch.StatePending, Submitted: time.Now()}
	keep(t, dir, r, waiting)
	s := openSite(t, dir, config(cpus(t, 1)))
	if j := s.job(1); j.State != sbatch.StateNodeFail || j.Nodes != "n1" {
		t.Errorf("%+v", j)
	}
	s.await(2, sbatch.StateCompleted)
	if !r.Process.alive() {
		t.Error("a process with the same id was ended")
	}
}

// A command may still run in a container that this process cannot see.
func TestJobsOfAnotherPIDNamespaceAreNotJudged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	r, _ := foreign(t, dir, 7, "true")
	machine, _, _ := strings.Cut(r.Boot, " ")
	r.Boot = machine + " pid:[1]"
	lost := r
	lost.ID, lost.Boot = 6, "another "+r.Boot
	keep(t, dir, lost, r)
	for name, err := range map[string]error{
		"open":  func() error { _, err := Open(dir, config(cpus(t, 1))); return err }(),
		"check": CheckNamespace(dir),
	} {
		if !errors.Is(err, ErrNamespace) || !strings.Contains(err.Error(), "job 7 was started in pid:[1]") {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := records{dir: dir}.load()
	must(t, err)
	for _, r := range left {
		if r.State != sbatch.StateRunning {
			t.Errorf("job %s became %s", r.ID, r.State)
		}
	}
	r.State = sbatch.StateCompleted
	keep(t, dir, r)
	openSite(t, dir, config(cpus(t, 1)))
	if err := CheckNamespace(filepath.Join(dir, "absent")); err != nil {
		t.Error(err)
	}
}

func TestProcessThatHasTheIDOfAJobSinceIsSpared(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	r, _ := foreign(t, t.TempDir(), 1, "true") // with the marker of another job
	innocent := r.Process
	r.Process.Start--
	r.EndState = sbatch.StateCancelled
	keep(t, dir, r)
	openSite(t, dir, config(cpus(t, 1))).await(1, sbatch.StateCancelled)
	if !innocent.alive() {
		t.Error("it was ended")
	}
}

// Without the main process, the owner of a session's id is unknown.
func TestProcessesOfAJobThatEndedMeanwhileAreKilledIfTheyAreMarked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	files := &site{t: t, files: t.TempDir()}
	files.door("door")
	r, held := foreign(t, dir, 1, "cd "+files.files+`
exec >a.out
sh -c 'echo left $$; read line <door' &
env -i /usr/bin/env sh -c 'echo bare $$; read line <door' &
read line <go`)
	goOn := files.door("go")
	must(t, held.Release())
	left, bare := files.process("left"), files.process("bare")
	goOn.open(t)
	_, err := held.Wait()
	must(t, err)
	keep(t, dir, r)
	openSite(t, dir, config(cpus(t, 1))).await(1, sbatch.StateFailed)
	if left.alive() || !bare.alive() {
		t.Errorf("alive: marked %v, unmarked %v", left.alive(), bare.alive())
	}
}

func TestSessionOfALaterProcessWithTheSameIDIsSpared(t *testing.T) {
	t.Parallel()
	files := &site{t: t, files: t.TempDir()}
	files.door("door")
	r, held := foreign(t, t.TempDir(), 1, "cd "+files.files+"; exec >a.out; sh -c 'echo child $$; read line <door' & read line <door")
	must(t, held.Release())
	child := files.process("child")
	if others, err := r.Process.others("A=1", true); err != nil || len(others) != 1 || others[0] != child {
		t.Errorf("of the process itself: %v, %v", others, err)
	}
	earlier := r.Process
	earlier.Start--
	if others, err := earlier.others("A=1", true); err != nil || len(others) != 0 {
		t.Errorf("of an earlier one: %v, %v", others, err)
	}
}

func TestJobThatASmallerMachineCannotServeLetsOthersPass(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "jobs")
	wide := record{ID: 1, Request: request{Name: "wide", Script: "#!/bin/sh\n", CPUs: 500}, State: sbatch.StatePending, Submitted: time.Now()}
	keep(t, dir, wide)
	s := openSite(t, dir, config(cpus(t, 1)))
	s.await(s.submit(s.request("next", "true")), sbatch.StateCompleted)
	if j := s.job(1); j.State != sbatch.StatePending || j.Reason != "BadConstraints" {
		t.Errorf("%+v", j)
	}
	must(t, s.Cancel(t.Context(), "", 1))
	s.await(1, sbatch.StateCancelled)
}

func TestSchedulerThatStopsLeavesJobsRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t, config(cpus(t, 1)))
	s.door("door")
	s.submit(s.request("a", "echo main $$; read line <door"))
	main := s.process("main")
	s.stop()
	if !main.alive() {
		t.Error("the job has ended")
	}
	must(t, syscall.Kill(main.PID, syscall.SIGKILL))
}
