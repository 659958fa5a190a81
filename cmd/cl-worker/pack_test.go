package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// pack is a `cl-worker exec --side-by-side` of researcher's.
type pack struct {
	*execution // of the worker; its records are those of no member

	members []*execution
}

// preparePack writes the specifications and the list of members with these commands. change may change them.
func preparePack(t *testing.T, places int, change func(i int, s *spool.Spec), commands ...string) *pack {
	t.Helper()
	p := &pack{execution: prepare(t, "true", nil)}
	list := spool.Members{Submission: "b1.7"}
	for i, command := range commands {
		m := &execution{t: t, layout: p.layout, spec: p.spec}
		m.spec.Bundle, m.spec.Command, m.spec.Submission, m.spec.Pack = fmt.Sprintf("0x%032x", i), command, list.Submission, true
		m.spec.RunDir = p.layout.RunDir(m.spec.Bundle, "1-b1")
		if change != nil {
			change(i, &m.spec)
		}
		m.attempt = p.layout.Attempt(m.spec.Bundle, "1-b1")
		must(t, m.attempt.WriteSpec(m.spec))
		p.members = append(p.members, m)
		list.Attempts = append(list.Attempts, spool.Member{Bundle: m.spec.Bundle, Name: "1-b1"})
	}
	must(t, spool.Disk{Layout: p.layout, Bridge: "b1"}.WriteMembers(list))
	u := testenv.Researcher(t)
	must(t, filepath.WalkDir(string(p.layout), func(name string, _ os.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(name, u.UID, u.GID)
	}))
	p.cmd.Args = []string{"cl-worker", "exec", "--submission=b1.7", "--members=" + p.layout.MembersPath(list.Name()), "--side-by-side=" + strconv.Itoa(places)}
	return p
}

// end waits for the end of the pack, and checks its exit code and that it leaves nothing behind.
func (p *pack) end(want int) {
	p.t.Helper()
	if code := p.execution.end(); code != want {
		p.t.Errorf("exit code %d, want %d; the worker said: %s", code, want, p.log.String())
	}
	if left, err := os.ReadDir(p.spec.Scratch); err != nil || len(left) > 0 {
		p.t.Errorf("left in the scratch directory: %v, %v", left, err)
	}
}

// exit returns the record of the end of a member.
func (p *pack) exit(i int) spool.Exit {
	p.t.Helper()
	e, err := p.members[i].attempt.ReadExit()
	if err != nil {
		said, _ := os.ReadFile(p.members[i].attempt.OutputPath())
		p.t.Fatalf("member %d: %v; the worker said: %s, %s", i, err, said, p.log.String())
	}
	return e
}

// awaitMembers waits until the commands of members have begun.
func (p *pack) awaitMembers(members ...int) {
	p.t.Helper()
	for _, i := range members {
		p.await(fmt.Sprintf("member %d has begun", i), func() bool { return strings.Contains(p.members[i].file("began"), "ready") })
	}
}

// wantStart checks whether a member has begun, and whether its end is recorded.
func (p *pack) wantStart(i int, begun, ended bool) {
	p.t.Helper()
	started, err := p.members[i].attempt.ReadStarted()
	if begun != (err == nil) || !begun && !errors.Is(err, spool.ErrNone) || begun && (started.Job != "1" || started.Fenced) {
		p.t.Errorf("the start of member %d: %+v, %v", i, started, err)
	}
	if _, err := p.members[i].attempt.ReadExit(); ended != (err == nil) {
		p.t.Errorf("the end of member %d: %v", i, err)
	}
}

const waits = "echo ready > began; while test ! -e go; do sleep 0.05; done"

func TestMembersOfAPackHaveTheirOwnPlacesAndEnds(t *testing.T) {
	t.Parallel()
	const one = `nproc; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo mine > file; exit `
	p := preparePack(t, 2, nil, one+"0", one+"3", "no-such-program", one+"0", "sleep 0; kill -9 $$")
	p.start()
	p.end(0)
	out, err := exec.Command("nproc").Output()
	must(t, err)
	cpus, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must(t, err)
	for i, want := range []int{0, 3, 127, 0, 137} {
		e := p.exit(i)
		if e.ExitCode == nil || *e.ExitCode != want || e.Terminated || e.CommandStarted.IsZero() {
			t.Errorf("member %d: %+v", i, e)
		}
		if want > 3 {
			continue
		}
		got, err := strconv.Atoi(strings.TrimSpace(p.members[i].file("stdout")))
		if err != nil || got > max(1, (cpus+1)/2) {
			t.Errorf("member %d has %q CPUs of %d", i, p.members[i].file("stdout"), cpus)
		}
		if e.Usage.UserSeconds <= 0 || e.Usage.MemoryPeak < 1<<20 || p.members[i].file("file") != "mine\n" {
			t.Errorf("member %d used %+v", i, e.Usage)
		}
	}
	for i, m := range p.members {
		said, err := os.ReadFile(m.attempt.OutputPath())
		if *p.exit(i).ExitCode == 0 && errors.Is(err, fs.ErrNotExist) { // it has succeeded within a second
			continue
		}
		if err != nil || strings.Count(string(said), "msg=begun") != 1 || strings.Count(string(said), "msg=ended") != 1 {
			t.Errorf("of member %d the worker said %q, %v", i, said, err)
		}
	}
	if rang, err := p.layout.Bell().TakeRings("b1"); err != nil || len(rang) != len(p.members) {
		t.Errorf("bell: %v, %v", rang, err)
	}
}

// The members that had begun have a start and no end, and the others have none: another job may begin those.
func TestKilledWorkerOfAPackShowsWhichMembersHadBegun(t *testing.T) {
	t.Parallel()
	const marker = "1000048151625"
	p := preparePack(t, 2, nil, "true", waits+"; sleep "+marker, waits+"; sleep "+marker, "true", "true")
	p.start()
	p.awaitMembers(1, 2)
	p.exit(0)
	must(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // it was killed
	p.await("no process is left", func() bool { return len(p.processes(marker)) == 0 })
	for i, want := range []struct{ begun, ended bool }{{true, true}, {true, false}, {true, false}, {}, {}} {
		p.wantStart(i, want.begun, want.ended)
	}
	// A repeated job runs the others.
	again := preparePack(t, 2, nil)
	again.cmd.Args = p.cmd.Args
	again.start()
	if code := again.execution.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, again.log.String())
	}
	for i, ended := range []bool{true, false, false, true, true} {
		p.wantStart(i, true, ended)
	}
}

func TestTermOfAPackReachesAllMembersAndBeginsNone(t *testing.T) {
	t.Parallel()
	const saves = `trap 'echo saved > partial; exit 9' TERM; ` + waits
	p := preparePack(t, 2, nil, saves, saves, "true")
	p.start()
	p.awaitMembers(0, 1)
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.end(0)
	for i := range 2 {
		if e := p.exit(i); !e.Terminated || *e.ExitCode != 9 || p.members[i].file("partial") != "saved\n" {
			t.Errorf("member %d: %+v", i, e)
		}
	}
	p.wantStart(2, false, false)
}

func TestBridgeStopsOneMemberOfAPack(t *testing.T) {
	t.Parallel()
	p := preparePack(t, 2, nil, `trap 'exit 9' TERM; `+waits, waits, "true", "true")
	stop := func(i int) {
		t.Helper()
		must(t, spool.Disk{Layout: p.layout, Bridge: "b1"}.StopAttempt(p.members[i].spec.Bundle, "1-b1"))
		must(t, os.Chown(filepath.Join(p.members[i].attempt.Dir, "stop"), testenv.Researcher(t).UID, -1)) // the bridge's user, as the worker's
	}
	stop(3)
	p.start()
	p.awaitMembers(0, 1)
	stop(0)
	p.await("the third member has ended", func() bool { _, err := p.members[2].attempt.ReadExit(); return err == nil })
	if e := p.exit(0); !e.Terminated || *e.ExitCode != 9 {
		t.Errorf("the stopped member: %+v", e)
	}
	p.wantStart(1, true, false)
	must(t, os.WriteFile(filepath.Join(p.members[1].spec.RunDir, "go"), nil, 0o644))
	p.end(0)
	if e := p.exit(1); e.Cause != spool.CauseSucceeded || e.Terminated {
		t.Errorf("its neighbour: %+v", e)
	}
	p.wantStart(3, false, false)
}

func TestMemberLeavesNoProcessToTheNextOne(t *testing.T) {
	t.Parallel()
	const marker = "1000048151626"
	p := preparePack(t, 1, nil, "(sleep "+marker+" &) ; sleep "+marker+" & kill -9 1; exec 1>&- 2>&-; exit 4", waits)
	p.start()
	p.awaitMembers(1)
	for _, line := range p.processes(marker) {
		if strings.Contains(line, marker) {
			t.Errorf("left: %s", line)
		}
	}
	must(t, os.WriteFile(filepath.Join(p.members[1].spec.RunDir, "go"), nil, 0o644))
	p.end(0)
	if e := p.exit(0); e.ExitCode == nil || *e.ExitCode != 4 {
		t.Errorf("recorded %+v", e)
	}
	if e := p.exit(1); e.Cause != spool.CauseSucceeded {
		t.Errorf("the next one: %+v", e)
	}
}

// A place keeps the directory for TMPDIR, if a member has not changed the directory itself.
func TestMemberFindsNothingInTheTMPDIROfTheLastOne(t *testing.T) {
	t.Parallel()
	const look = `stat -c %i "$TMPDIR" >inode; { stat -c '%a %u %g' "$TMPDIR"; ls -A "$TMPDIR"; test "$TMPDIR" -nt old && echo new; } >found; `
	const old = `touch -d @1000 old; `
	p := preparePack(t, 1, nil,
		old+look+`mkdir "$TMPDIR/d"; echo secret >"$TMPDIR/d/x"; chown 1:1 "$TMPDIR/d"; chmod 0 "$TMPDIR/d"; touch -d @1 "$TMPDIR"`,
		old+look+`chown 1:1 "$TMPDIR"; chmod 700 "$TMPDIR"`,
		old+look)
	p.start()
	p.end(0)
	for i, m := range p.members {
		if e := p.exit(i); e.ExitCode == nil || m.file("found") != "1777 0 0\nnew\n" {
			t.Errorf("member %d found %q: %+v", i, m.file("found"), e)
		}
	}
	if p.members[0].file("inode") != p.members[1].file("inode") {
		t.Error("the second member has another directory")
	}
}

func TestMemberAboveItsMemoryEndsAlone(t *testing.T) {
	t.Parallel()
	limit := func(_ int, s *spool.Spec) { s.MemoryBytes = 64 << 20 }
	p := preparePack(t, 2, limit, "dd if=/dev/zero of=/dev/null bs=300M count=1000000", waits)
	p.start()
	p.awaitMembers(1)
	p.await("the first member has ended", func() bool { _, err := p.members[0].attempt.ReadExit(); return err == nil })
	must(t, os.WriteFile(filepath.Join(p.members[1].spec.RunDir, "go"), nil, 0o644))
	p.end(0)
	if e := p.exit(0); e.Cause != spool.CauseLimit || !strings.HasPrefix(e.Failure, "Memory limit 64m exceeded (used ") || e.Terminated {
		t.Errorf("recorded %+v", e)
	}
	if e := p.exit(1); e.Cause != spool.CauseSucceeded || e.Usage.MemoryPeak > 64<<20 {
		t.Errorf("its neighbour: %+v", e)
	}
}

// A pack of a thousand members must not need more and more files and threads.
func TestMembersOfALongPackLeaveNothingInTheirWorker(t *testing.T) {
	t.Parallel()
	commands := make([]string, 50)
	for i := range commands {
		commands[i] = "true"
	}
	const first, last = 1, 49
	commands[first], commands[last] = waits, waits
	p := preparePack(t, 2, nil, commands...)
	p.start()
	count := func(what string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, what))
		must(t, err)
		return len(entries)
	}
	p.awaitMembers(first)
	p.await("it has begun a few", func() bool { return len(p.ended()) >= 5 })
	files, threads := count("fd"), count("task")
	must(t, os.WriteFile(filepath.Join(p.members[first].spec.RunDir, "go"), nil, 0o644))
	p.awaitMembers(last)
	p.await("the others have ended", func() bool { return len(p.ended()) == len(commands)-1 })
	if now := count("fd"); now > files+10 {
		t.Errorf("%d files were open, and are %d", files, now)
	}
	if now := count("task"); now > threads+10 {
		t.Errorf("there were %d threads, and are %d", threads, now)
	}
	must(t, os.WriteFile(filepath.Join(p.members[last].spec.RunDir, "go"), nil, 0o644))
	p.end(0)
	for i := range commands {
		if e := p.exit(i); e.Cause != spool.CauseSucceeded {
			t.Errorf("member %d: %+v", i, e)
		}
	}
}

// ended lists the members that have ended.
func (p *pack) ended() (ended []int) {
	for i, m := range p.members {
		if _, err := m.attempt.ReadExit(); err == nil {
			ended = append(ended, i)
		}
	}
	return ended
}

func TestPackIsRefusedBeforeItBegins(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(p *pack){
		"a pack is no task of an array":  func(p *pack) { p.cmd.Env = append(p.cmd.Env, "SLURM_ARRAY_TASK_ID=0") },
		"this job is of submission b1.8": func(p *pack) { p.cmd.Args[2] = "--submission=b1.8" },
		"no such record":                 func(p *pack) { p.cmd.Args[3] += "x" },
	} {
		p := preparePack(t, 1, nil, "true")
		change(p)
		p.start()
		p.end(onnode.ExitSpec)
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("it said %q, want %q", p.log.String(), want)
		}
		p.wantStart(0, false, false)
	}
}

func TestMemberJoinsAPackThatRuns(t *testing.T) {
	t.Parallel()
	p := preparePack(t, 2, nil, waits, "echo joined", "true")
	disk, u := spool.Disk{Layout: p.layout, Bridge: "b1"}, testenv.Researcher(t)
	list := spool.Members{Submission: "b1.7", Attempts: []spool.Member{{Bundle: p.members[0].spec.Bundle, Name: "1-b1"}}}
	must(t, disk.WriteMembers(list))
	path := p.layout.MembersPath(list.Name())
	must(t, os.Chown(path, u.UID, u.GID))
	p.cmd.Args[3] = "--members=" + path
	p.start()
	p.awaitMembers(0)
	slot := spool.Slot{Submission: "b1.7", Attempts: []spool.Member{{Bundle: p.members[1].spec.Bundle, Name: "1-b1"}}}
	joined, err := disk.Join(t.Context(), list.Name(), 1, slot)
	must(t, err)
	if !joined {
		t.Fatal("the list is closed")
	}
	for _, name := range []string{".1.json", ".slots"} { // until then the worker cannot read them
		must(t, os.Chown(strings.TrimSuffix(path, ".json")+name, u.UID, u.GID))
	}
	p.await("the member that has joined has ended", func() bool { _, err := p.members[1].attempt.ReadExit(); return err == nil })
	p.wantStart(0, true, false)
	must(t, os.WriteFile(filepath.Join(p.members[0].spec.RunDir, "go"), nil, 0o644))
	p.end(0)
	for i, want := range []string{"", "joined\n"} {
		if e := p.exit(i); e.Cause != spool.CauseSucceeded || p.members[i].file("stdout") != want {
			t.Errorf("member %d: %+v, it wrote %q", i, e, p.members[i].file("stdout"))
		}
	}
	slot.Attempts[0].Bundle = p.members[2].spec.Bundle
	if joined, err := disk.Join(t.Context(), list.Name(), 2, slot); joined || err != nil {
		t.Errorf("a member has joined a pack that has ended: %v, %v", joined, err)
	}
	p.wantStart(2, false, false)
}
