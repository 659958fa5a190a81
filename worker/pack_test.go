package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/affinity"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// members makes a site with as many members, whose bundles are 0x0, 0x1 and so on.
func members(t *testing.T, n int, change func(i int, s *spool.Spec)) (spool.Layout, []spool.Attempt) {
	t.Helper()
	s := newSite(t, t.TempDir(), nil)
	var all []spool.Attempt
	for i := range n {
		bundle := fmt.Sprintf("0x%x", i)
		spec := s.spec
		spec.Bundle, spec.RunDir, spec.Pack = bundle, s.layout.RunDir(bundle, "1-b1"), true
		if change != nil {
			change(i, &spec)
		}
		a := s.layout.Attempt(bundle, "1-b1")
		must(t, a.WriteSpec(spec))
		all = append(all, a)
	}
	return s.layout, all
}

// packOf returns a pack of this many places.
func packOf(w Worker, places int) Pack {
	return Pack{Worker: w, Places: places, LogTo: func(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }}
}

// bundleOf returns the bundle of a member's container.
func bundleOf(c container.Container) string { return strings.TrimPrefix(c.Dir, "/") }

func exitOf(t *testing.T, a spool.Attempt) spool.Exit {
	t.Helper()
	e, err := a.ReadExit()
	must(t, err)
	return e
}

func TestMembersRunInOrderAndSoManySideBySide(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for _, places := range []int{1, 3, 9} {
		_, all := members(t, 7, nil)
		var mu sync.Mutex
		var order []string
		running, most := 0, 0
		w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
			mu.Lock()
			running++
			most = max(most, running)
			order = append(order, bundleOf(c))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return container.Exit{Code: 3}, nil
		})
		synctest.Test(t, func(t *testing.T) { must(t, packOf(w, places).Run(t.Context(), all)) })
		for i := 0; i+places <= len(order); i += places { // those of one round are in any order
			slices.Sort(order[i : i+places])
		}
		if diff := cmp.Diff([]string{"0x0", "0x1", "0x2", "0x3", "0x4", "0x5", "0x6"}, order[:7]); diff != "" && places < 9 || len(order) != 7 {
			t.Errorf("%d places: began %v", places, order)
		}
		if most != min(places, 7) {
			t.Errorf("%d places: %d ran side by side", places, most)
		}
		for _, a := range all {
			if e := exitOf(t, a); *e.ExitCode != 3 || e.Cause != spool.CauseUser {
				t.Errorf("recorded %+v", e)
			}
			if said, err := os.ReadFile(a.OutputPath()); err != nil || strings.Count(string(said), "msg=begun") != 1 {
				t.Errorf("said %q, %v", said, err)
			}
		}
	}
}

// The records of a member that soon succeeds say all, and a file costs a disk more than it is worth.
func TestMemberThatSoonSucceedsHasNoFileOfOutput(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for _, c := range []struct {
		what  string
		takes time.Duration
		code  int
		warns bool
		lines int
	}{
		{what: "soon succeeds"},
		{what: "succeeds later", takes: 2 * time.Second, lines: 1},
		{what: "fails", code: 3, lines: 1},
		{what: "succeeds with a warning", warns: true, lines: 1},
	} {
		layout, all := members(t, 1, nil)
		if c.warns { // the worker cannot ring
			must(t, os.Remove(filepath.Join(string(layout), "spool", "bell")))
		}
		w := newWorker(t, func(context.Context, container.Container) (container.Exit, error) {
			time.Sleep(c.takes)
			return container.Exit{Code: c.code}, nil
		})
		synctest.Test(t, func(t *testing.T) { must(t, packOf(w, 1).Run(t.Context(), all)) })
		said, _ := os.ReadFile(all[0].OutputPath())
		if begun, ended := strings.Count(string(said), "msg=begun"), strings.Count(string(said), "msg=ended"); begun != c.lines || ended != c.lines {
			t.Errorf("of a member that %s: %q", c.what, said)
		}
	}
}

// The comment of a pack names no bundle, so the bridge knows the pack that began a member by its submission.
func TestMemberOfAPackTellsItsSubmission(t *testing.T) {
	t.Parallel()
	_, all := members(t, 1, func(_ int, s *spool.Spec) { s.Submission = "b1.7" })
	w := newWorker(t, succeeds)
	w.Job, w.Submission = "12", "b1.7"
	must(t, packOf(w, 1).Run(t.Context(), all))
	started, err := all[0].ReadStarted()
	must(t, err)
	if started.Job != "12" || started.Submission != "b1.7" {
		t.Errorf("job %s of submission %q", started.Job, started.Submission)
	}
}

func TestMemberThatMayNotBeginIsLeft(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	const fenced, taken, stopped, wrong, other, many, fine = 0, 1, 2, 3, 4, 5, 6
	layout, all := members(t, 7, func(i int, s *spool.Spec) {
		s.Submission = "b1.7"
		switch i {
		case wrong:
			s.Command = ""
		case other:
			s.Submission = "b1.8"
		case many:
			s.GPUs = 2
		}
	})
	_, _, err := all[fenced].Fence(t.Context(), time.Now())
	must(t, err)
	_, _, err = all[taken].Begin(t.Context(), spool.Started{Token: "theirs", Job: "6"})
	must(t, err)
	must(t, spool.Disk{Layout: layout, Bridge: "b1"}.StopAttempt("0x2", "1-b1"))
	var ran []string
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		ran = append(ran, bundleOf(c))
		return container.Exit{Code: 1}, nil
	})
	w.Submission, w.JobGPUs = "b1.7", "3"
	must(t, packOf(w, 1).Run(t.Context(), all))
	if !slices.Equal(ran, []string{"0x6"}) {
		t.Errorf("ran %v", ran)
	}
	for i, want := range map[int]string{
		fenced: "", taken: "", stopped: "", fine: "msg=ended", wrong: "no command",
		other: "it is for submission b1.8, and this job is of submission b1.7",
		many:  "it asks for 2 GPUs, and a place of this pack has 1",
	} {
		said, _ := os.ReadFile(all[i].OutputPath())
		if !strings.Contains(string(said), want) || want == "" && len(said) > 0 {
			t.Errorf("of member %d the worker said %q", i, said)
		}
		if _, err := all[i].ReadStarted(); (err == nil) != (i == fenced || i == taken || i == fine) {
			t.Errorf("the start of member %d: %v", i, err)
		}
	}
}

func TestMemberBeginsOnlyIfItFitsBeforeTheEndOfTheJob(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for end, want := range map[time.Duration][]string{
		0: {"0x0", "0x1", "0x2"}, time.Hour: {"0x0", "0x1", "0x2"}, 2 * time.Minute: {"0x1", "0x2"}, time.Second: {"0x2"},
		10*time.Minute + 32*time.Second: {"0x0", "0x1", "0x2"}, 10*time.Minute + 31*time.Second: {"0x1", "0x2"},
	} {
		_, all := members(t, 3, func(i int, s *spool.Spec) { s.Seconds = []float64{600, 60, 0}[i] })
		var ran []string
		w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
			ran = append(ran, bundleOf(c))
			return container.Exit{}, nil
		})
		synctest.Test(t, func(t *testing.T) {
			p := packOf(w, 1)
			if end > 0 {
				p.End = time.Now().Add(end)
			}
			must(t, p.Run(t.Context(), all))
		})
		if !slices.Equal(ran, want) {
			t.Errorf("with %v left %v ran, want %v", end, ran, want)
		}
	}
}

func TestBridgeStopsOneMember(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	layout, all := members(t, 3, nil)
	synctest.Test(t, func(t *testing.T) {
		ctx, term := context.WithCancel(t.Context())
		var group sync.WaitGroup
		w := newWorker(t, obeys)
		group.Go(func() { must(t, packOf(w, 2).Run(ctx, all)) })
		synctest.Wait()
		must(t, spool.Disk{Layout: layout, Bridge: "b1"}.StopAttempt("0x0", "1-b1"))
		time.Sleep(stopPause)
		synctest.Wait()
		if e := exitOf(t, all[0]); !e.Terminated || *e.ExitCode != 143 {
			t.Errorf("the stopped member: %+v", e)
		}
		if _, err := all[1].ReadExit(); !errors.Is(err, spool.ErrNone) {
			t.Errorf("its neighbour has ended, too: %v", err)
		}
		if _, err := os.Stat(filepath.Join(all[1].Dir, "stop")); err != nil {
			t.Errorf("the worker does not expect a stop of the neighbour: %v", err)
		}
		if _, err := all[2].ReadStarted(); err != nil {
			t.Errorf("the next member has not begun: %v", err)
		}
		term()
		group.Wait()
		for _, a := range all[1:] {
			if e := exitOf(t, a); !e.Terminated {
				t.Errorf("after TERM: %+v", e)
			}
		}
	})
}

func TestTermEndsAllMembersAndBeginsNone(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	_, all := members(t, 5, nil)
	synctest.Test(t, func(t *testing.T) {
		ctx, term := context.WithCancel(t.Context())
		w := newWorker(t, obeys)
		time.AfterFunc(time.Minute, term)
		must(t, packOf(w, 2).Run(ctx, all))
		for i, a := range all {
			e, err := a.ReadExit()
			if begun := i < 2; begun != (err == nil) || begun && !e.Terminated {
				t.Errorf("member %d: %+v, %v", i, e, err)
			}
			if _, err := a.ReadStarted(); (err == nil) != (i < 2) {
				t.Errorf("the start of member %d: %v", i, err)
			}
		}
	})
}

func TestDiskThatTakesNoStartEndsThePack(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	_, all := members(t, 4, nil)
	must(t, os.MkdirAll(filepath.Join(all[1].Dir, "started", "x"), 0o700))
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, succeeds)
		if err := packOf(w, 1).Run(t.Context(), all); !errors.Is(err, ErrNotBegun) {
			t.Errorf("%v, want ErrNotBegun", err)
		}
	})
	exitOf(t, all[0])
	for _, a := range all[2:] {
		if _, err := a.ReadStarted(); !errors.Is(err, spool.ErrNone) {
			t.Errorf("a further member has begun: %v", err)
		}
	}
}

func TestSickNodeTakesTwoMembersOfAPackAtMost(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	sick := map[string]bool{"0x0": true, "0x2": true, "0x3": true, "0x5": true, "0x6": true}
	for n, want := range map[int]error{
		7: ErrSickNode, // 0x0 alone passes, and 0x2 and 0x3 are two in a row
		4: nil,         // nobody is left to go elsewhere
	} {
		_, all := members(t, n, nil)
		var ran []string
		w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
			ran = append(ran, bundleOf(c))
			if sick[bundleOf(c)] {
				return container.Exit{}, &container.HostError{Err: errors.New("no user namespaces")}
			}
			return container.Exit{}, nil
		})
		synctest.Test(t, func(t *testing.T) {
			if err := packOf(w, 1).Run(t.Context(), all); !errors.Is(err, want) {
				t.Errorf("of %d: %v, want %v", n, err, want)
			}
		})
		if !slices.Equal(ran, []string{"0x0", "0x1", "0x2", "0x3"}) {
			t.Errorf("of %d: ran %v", n, ran)
		}
		for _, a := range all[4:] {
			if _, err := a.ReadStarted(); !errors.Is(err, spool.ErrNone) {
				t.Errorf("a further member has begun: %v", err)
			}
		}
	}
}

// The cgroup of the job counts all members together.
func TestKillForMemoryIsTheVerdictOfTheMemberThatItHit(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	_, all := members(t, 6, func(i int, s *spool.Spec) {
		if s.MemoryBytes = 1 << 30; i == 5 {
			s.MemoryBytes = 0
		}
	})
	var counter string
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		if !c.KilledFirst {
			t.Error("the kernel may kill the worker")
		}
		time.Sleep(time.Second)
		must(t, os.WriteFile(counter, []byte("oom_kill 1\n"), 0o600))
		time.Sleep(time.Second)
		return map[string]container.Exit{
			"0x0": {Code: 137, Signal: 9, Usage: container.Usage{User: time.Second, MemoryPeak: 1 << 30}},
			"0x4": {Code: 137, Signal: 9, Usage: container.Usage{MemoryPeak: 1<<30 - 4096}},
			"0x5": {Code: 137, Signal: 9, Usage: container.Usage{MemoryPeak: 800 << 20}},
			"0x1": {Code: 1}, "0x2": {}, "0x3": {Code: 143, Signal: 15},
		}[bundleOf(c)], nil
	})
	jobCgroup(t, w, "4294967296", "4000000000")
	mounts := readText(filepath.Join(w.proc, "self/mountinfo"))
	counter = filepath.Join(strings.Fields(mounts)[4], "slurm/uid_1001/job_"+w.Job, "memory.oom_control")
	must(t, os.WriteFile(counter, []byte("oom_kill 0\n"), 0o600))
	synctest.Test(t, func(t *testing.T) { must(t, packOf(w, 6).Run(t.Context(), all)) })
	const perhaps = "The kernel killed a process for memory while the command ran, of this run or of another one in the same job."
	want := []spool.Exit{
		{Cause: spool.CauseLimit, Failure: "Memory limit 1g exceeded (used 1g). Ask for more with --request-memory.", Usage: spool.Usage{UserSeconds: 1, MemoryPeak: 1 << 30}},
		{Cause: spool.CauseUser, Note: perhaps},
		{Cause: spool.CauseSucceeded},
		{Cause: spool.CauseUser, Failure: "Exit code 143: terminated (signal 15).", Note: perhaps},
		{Cause: spool.CausePlatform, Failure: struckSentence(1<<30, 1<<30-4096), Usage: spool.Usage{MemoryPeak: 1<<30 - 4096}},
		// Its part of the job's 4g is less than it has used.
		{Cause: spool.CauseLimit, Failure: "Memory limit of the job exceeded. Ask for more with --request-memory.", Usage: spool.Usage{MemoryPeak: 800 << 20}},
	}
	for i, a := range all {
		e := exitOf(t, a)
		e.Usage.DiskBytes = 0
		got := spool.Exit{Cause: e.Cause, Failure: e.Failure, Note: e.Note, Usage: e.Usage}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("member %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestAllocationIsDividedEqually(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	all, err := affinity.Own()
	must(t, err)
	for _, n := range []int{1, 2, len(all), 2*len(all) + 1} {
		p := packOf(Worker{JobGPUs: "0-3,6,7", proc: t.TempDir()}, n)
		places, err := p.divide()
		must(t, err)
		used := map[int]int{}
		var gpus []int
		for _, at := range places {
			if len(at.cpus) < max(1, len(all)/n) {
				t.Errorf("%d places of %d CPUs: one has %v", n, len(all), at.cpus)
			}
			for _, cpu := range at.cpus {
				used[cpu]++
			}
			gpus = append(gpus, at.indexes...)
			if at.gpus != len(at.indexes) {
				t.Errorf("%d GPUs of %v", at.gpus, at.indexes)
			}
		}
		if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, all) && n <= len(all) {
			t.Errorf("%d places have %v of %v", n, got, all)
		}
		if most := slices.Max(slices.Collect(maps.Values(used))); most > (n+len(all)-1)/len(all) {
			t.Errorf("%d places: %d of them have one CPU", n, most)
		}
		if !slices.Equal(gpus, []int{0, 1, 2, 3, 6, 7}) {
			t.Errorf("%d places have GPUs %v", n, gpus)
		}
	}
	places, err := packOf(Worker{JobGPUs: "0", VisibleDevices: "MIG-a,MIG-b,MIG-c", proc: t.TempDir()}, 2).divide()
	must(t, err)
	if places[0].visible != "MIG-a" || places[1].visible != "MIG-b,MIG-c" || places[1].gpus != 2 {
		t.Errorf("MIG devices: %+v", places)
	}
}

// A member gets the GPUs of its place, also if the job may open all of the node's.
func TestMemberHasGPUsOfItsPlaceAlone(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	_, all := members(t, 2, func(_ int, s *spool.Spec) { s.GPUs = 1 })
	var mu sync.Mutex
	var got []string
	w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
		mu.Lock()
		got = append(got, filepath.Base(c.Devices[0]))
		mu.Unlock()
		time.Sleep(time.Second)
		return container.Exit{}, nil
	})
	for i := range 4 {
		must(t, os.WriteFile(filepath.Join(w.dev, fmt.Sprintf("nvidia%d", i)), nil, 0o600))
	}
	w.JobGPUs = "1,3"
	synctest.Test(t, func(t *testing.T) { must(t, packOf(w, 2).Run(t.Context(), all)) })
	if slices.Sort(got); !slices.Equal(got, []string{"nvidia1", "nvidia3"}) {
		t.Errorf("the members got %v", got)
	}
}

// A site's prolog may unset SLURM_JOB_GPUS. The places share what the job may open, if that is what it asked for.
func TestPlacesShareTheGPUsOfAJobThatDoesNotNameThem(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for present, want := range map[int][]string{4: {"nvidia0 nvidia1", "nvidia2 nvidia3"}, 5: nil} {
		_, all := members(t, 2, func(_ int, s *spool.Spec) { s.GPUs = 2 })
		var mu sync.Mutex
		var got []string
		w := newWorker(t, func(_ context.Context, c container.Container) (container.Exit, error) {
			mu.Lock()
			got = append(got, filepath.Base(c.Devices[0])+" "+filepath.Base(c.Devices[1]))
			mu.Unlock()
			time.Sleep(time.Second)
			return container.Exit{}, nil
		})
		for i := range present {
			must(t, os.WriteFile(filepath.Join(w.dev, fmt.Sprintf("nvidia%d", i)), nil, 0o600))
		}
		w.JobGPUs = ""
		synctest.Test(t, func(t *testing.T) { must(t, packOf(w, 2).Run(t.Context(), all)) })
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("of %d GPUs the members got %q, want %q", present, got, want)
		}
		const why = "the job of the pack may open 5 GPUs where it asked for 4, and its own ones are unknown: SLURM_JOB_GPUS is not set."
		if e := exitOf(t, all[0]); present == 5 && (!e.NotStarted || !strings.HasSuffix(e.Failure, why)) {
			t.Errorf("the end of a member: %+v", e)
		}
	}
}

// Many members that run long look at the shared disk for their stops.
func TestLongMembersLookLessOftenForTheirStops(t *testing.T) {
	t.Parallel()
	looks := 0
	for age := time.Duration(0); age < time.Hour; age += nextStop(age) {
		if next := nextStop(age); next < stopPause || next > 10*time.Second {
			t.Fatalf("after %s the next look is %s later", age, next)
		}
		looks++
	}
	if looks > 400 {
		t.Errorf("%d looks in an hour", looks)
	}
}
