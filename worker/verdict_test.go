package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestVerdictNamesTheCauseOfTheEnd(t *testing.T) {
	t.Parallel()
	limit := &limitError{sentence: "Time limit exceeded."}
	exited := func(code int) container.Exit {
		e := container.Exit{Code: code}
		if code > 128 {
			e.Signal = code - 128
		}
		return e
	}
	const processes = "It had as many processes and threads as a run may have here (4096), and the system refused more."
	const outOfMemory = "Memory limit 100m exceeded (used 100m). Ask for more with --request-memory."
	for name, test := range map[string]struct {
		ending     ending
		limit      int64 // of the disk
		cause      spool.Cause
		failure    string
		terminated bool
		notStarted bool
		sure       bool // that the node is at fault
		shared     bool
	}{
		"success":                     {ending: ending{}, cause: spool.CauseSucceeded},
		"exit status":                 {ending: ending{exit: exited(3)}, cause: spool.CauseUser},
		"signal":                      {ending: ending{exit: exited(139)}, cause: spool.CauseUser, failure: "Exit code 139: segmentation fault (signal 11)."},
		"processes refused":           {ending: ending{exit: exited(2), refused: 7}, cause: spool.CauseUser, failure: "Exit code 2. " + processes},
		"processes refused, aborted":  {ending: ending{exit: exited(134), refused: 1}, cause: spool.CauseUser, failure: "Exit code 134: aborted (signal 6). " + processes},
		"processes refused, no need":  {ending: ending{refused: 1}, cause: spool.CauseSucceeded},
		"limit":                       {ending: ending{exit: exited(143), overLimit: limit}, cause: spool.CauseLimit, failure: limit.sentence},
		"limit, then exit 0":          {ending: ending{overLimit: limit}, cause: spool.CauseLimit, failure: limit.sentence},
		"limit, then TERM":            {ending: ending{exit: exited(143), overLimit: limit, terminated: true}, cause: spool.CauseLimit, failure: limit.sentence, terminated: true},
		"out of memory":               {ending: ending{exit: exited(137), oomKills: 1}, cause: spool.CauseLimit, failure: outOfMemory},
		"out of memory in a child":    {ending: ending{exit: exited(1), oomKills: 2}, cause: spool.CauseLimit, failure: outOfMemory},
		"out of memory, measured":     {ending: ending{exit: exited(137), oomKills: 1, memoryPeak: 110 << 20}, cause: spool.CauseLimit, failure: "Memory limit 100m exceeded (used 110m). Ask for more with --request-memory."},
		"out of memory, survived":     {ending: ending{oomKills: 1}, cause: spool.CauseSucceeded},
		"out of memory in our own":    {ending: ending{err: errors.New("squashfuse has ended"), oomKills: 1}, cause: spool.CauseLimit, failure: outOfMemory},
		"killed, not for its memory":  {ending: ending{exit: exited(137)}, cause: spool.CauseUser, failure: "Exit code 137: killed (signal 9)."},
		"no room left":                {ending: ending{exit: exited(1), diskFull: true, freeBefore: 4 << 20, diskUsed: 3 << 20}, cause: spool.CauseUser, failure: "Exit code 1, and the disk of the working directory is full."},
		"others left no room":         {ending: ending{exit: exited(1), diskFull: true, freeBefore: 4 << 20, diskUsed: 2 << 20}, cause: spool.CausePlatform, failure: "Exit code 1, and the disk of the working directory is full: the run used 2m of it."},
		"there was no room":           {ending: ending{exit: exited(1), diskFull: true, freeBefore: 8, diskUsed: 6}, cause: spool.CausePlatform, failure: "Exit code 1, and the disk of the working directory is full: the run used 6 of it."},
		"no room for a request":       {ending: ending{exit: exited(1), diskFull: true, freeBefore: 6 << 20, diskUsed: 4 << 20}, limit: 5 << 20, cause: spool.CausePlatform, failure: "Exit code 1, and the disk of the working directory is full: the run used 4m of it."},
		"no room, beyond its request": {ending: ending{exit: exited(1), diskFull: true, freeBefore: 64 << 20, diskUsed: 6 << 20}, limit: 5 << 20, cause: spool.CauseUser, failure: "Exit code 1, and the disk of the working directory is full."},
		"no room left, not needed":    {ending: ending{diskFull: true}, cause: spool.CauseSucceeded},
		"output lost":                 {ending: ending{exit: container.Exit{OutputError: syscall.EIO}}, cause: spool.CausePlatform, failure: "A part of the command's output could not be written: input/output error."},
		"output lost for a quota":     {ending: ending{exit: container.Exit{OutputError: syscall.EDQUOT}, diskUsed: 2 << 20}, cause: spool.CauseUser, failure: "A part of the command's output could not be written: disk quota exceeded."},
		"output lost on a full disk":  {ending: ending{exit: container.Exit{OutputError: syscall.ENOSPC}, freeBefore: 8}, cause: spool.CausePlatform, failure: "A part of the command's output could not be written: no space left on device."},
		"failed, and output lost":     {ending: ending{exit: container.Exit{Code: 1, OutputError: syscall.ENOSPC}, freeBefore: 8, diskUsed: 6}, cause: spool.CausePlatform, failure: "Exit code 1, and the disk of the working directory is full: the run used 6 of it."},
		"terminated":                  {ending: ending{exit: exited(143), terminated: true}, cause: spool.CausePlatform, failure: "The job was terminated before the command had ended.", terminated: true},
		"terminated, ended well":      {ending: ending{terminated: true}, cause: spool.CauseSucceeded, terminated: true},
		"terminated before it began":  {ending: ending{err: errors.New("x"), terminated: true}, cause: spool.CausePlatform, failure: "The job was terminated before the command began.", terminated: true},
		"no shell":                    {ending: ending{err: fmt.Errorf("run: %w", container.ErrNoShell)}, cause: spool.CauseUser, failure: "The image has no shell: neither /bin/bash nor /bin/sh.", notStarted: true},
		"the bundle's own dependency": {ending: ending{err: &userError{"Two dependencies."}}, cause: spool.CauseUser, failure: "Two dependencies."},
		"the container cannot be set up": {
			ending: ending{err: fmt.Errorf("run: %w", container.HostErrorf("no user namespaces"))}, cause: spool.CausePlatform,
			failure: "Node n1: run: no user namespaces.", notStarted: true, sure: true,
		},
		"the container cannot be prepared": {
			ending: ending{err: errors.New("the node has no disk"), unprepared: true}, cause: spool.CausePlatform,
			failure: "Node n1: the node has no disk.", notStarted: true,
		},
		"a step before the command": {
			ending: ending{err: container.NotBegun(errors.New("bind: no such file"))}, cause: spool.CausePlatform,
			failure: "Node n1: bind: no such file.", notStarted: true,
		},
		"the request of a container": {
			ending: ending{err: fmt.Errorf("run: %w", container.RequestErrorf("the image is damaged"))}, cause: spool.CauseUser,
			failure: "The image is damaged.", notStarted: true,
		},
		"the shared disk": {
			ending: ending{err: onShared(&fs.PathError{Op: "open", Path: "stdout", Err: syscall.EDQUOT}), unprepared: true}, cause: spool.CausePlatform,
			failure: "Node n1: open stdout: disk quota exceeded.", notStarted: true, shared: true,
		},
		"the node's view of the shared disk": {
			ending: ending{err: onShared(&fs.PathError{Op: "open", Path: "stdout", Err: syscall.EROFS}), unprepared: true}, cause: spool.CausePlatform,
			failure: "Node n1: open stdout: read-only file system.", notStarted: true,
		},
		"not executable, where nothing is": {
			ending: ending{exit: exited(126), noexec: true}, cause: spool.CauseUser,
			failure: "Exit code 126: on node n1 no program in $TMPDIR can be executed, because the queue's scratch directory is mounted noexec there.",
		},
		"not executable": {ending: ending{exit: exited(126)}, cause: spool.CauseUser},
		"the node": {
			ending: ending{err: errors.New("this node\nlacks squashfuse")}, cause: spool.CausePlatform,
			failure: "This node lacks squashfuse.",
		},
	} {
		test.ending.node = "n1"
		got := test.ending.verdict(spool.Spec{MaxProcesses: 4096, MemoryBytes: 100 << 20, DiskBytes: test.limit})
		want := spool.Exit{Cause: test.cause, Failure: test.failure, Terminated: test.terminated, NotStarted: test.notStarted, NodeAtFault: test.sure, SharedDiskFull: test.shared}
		if test.ending.err == nil {
			want.ExitCode = &test.ending.exit.Code
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A command may have failed because it had no network. Its researcher cannot know that otherwise.
func TestCommandThatFailedWithoutTheNetworkThatItRequestedSaysSo(t *testing.T) {
	t.Parallel()
	const lack = "this node has no /dev/net/tun"
	for name, test := range map[string]struct {
		exit          container.Exit
		spec          spool.Spec
		failure, note string
	}{
		"failed":                   {exit: container.Exit{Code: 6, NoNetwork: lack}, failure: "Exit code 6. The command had no network: " + lack + ".", note: "The command had no network: " + lack + "."},
		"succeeded":                {exit: container.Exit{NoNetwork: lack, Note: "the image was unpacked"}, note: "The image was unpacked. The command had no network: " + lack + "."},
		"killed":                   {exit: container.Exit{Code: 139, Signal: 11, NoNetwork: lack}, failure: "Exit code 139: segmentation fault (signal 11).", note: "The command had no network: " + lack + "."},
		"the queue gives none":     {exit: container.Exit{Code: 6}, spec: spool.Spec{NetworkDenied: true}, failure: "Exit code 6. The command had no network: this worker gives none.", note: "The command had no network: this worker gives none."},
		"the bundle requests none": {exit: container.Exit{Code: 6}},
	} {
		got := ending{exit: test.exit}.verdict(test.spec)
		if got.Failure != test.failure || got.Note != test.note {
			t.Errorf("%s: failure %q, note %q", name, got.Failure, got.Note)
		}
	}
}

func TestWhatWasUnusualIsNoted(t *testing.T) {
	t.Parallel()
	got := ending{exit: container.Exit{Note: "the image was unpacked"}}.verdict(spool.Spec{})
	if got.Note != "The image was unpacked." || got.Cause != spool.CauseSucceeded || got.Failure != "" {
		t.Errorf("%+v", got)
	}
}

// A test of cmd/cl-worker makes Slurm suspend a job (TestTimeInWhichSlurmSuspendsAJobDoesNotCount).
func TestTimeInWhichTheWorkerWasStoppedIsNotCounted(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	ran := runTime{counted: start}
	for _, at := range []time.Duration{time.Second, 2500 * time.Millisecond, time.Hour, time.Hour + time.Second} {
		ran.count(start.Add(at))
	}
	if want := 4500 * time.Millisecond; ran.total != want {
		t.Errorf("counted %s, want %s: an hour's stop is a second", ran.total, want)
	}
	if next := ran.next(5 * time.Second); next != 500*time.Millisecond {
		t.Errorf("the next part is %s, want what is left of the limit", next)
	}
}

func TestSizesAndTimesReadAsCodaLabsDo(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		1023:        "Disk limit 1023 exceeded (used 1k). Ask for more with --request-disk.",
		1536:        "Disk limit 1.5k exceeded (used 1.5k). Ask for more with --request-disk.",
		10 << 20:    "Disk limit 10m exceeded (used 10.0m). Ask for more with --request-disk.",
		100<<20 + 1: "Disk limit 100m exceeded (used 100m). Ask for more with --request-disk.",
		5 << 50:     "Disk limit 5120t exceeded (used 5120t). Ask for more with --request-disk.",
	} {
		if got := diskSentence(n, n+1); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Second:             "Time limit exceeded. (Container uptime 1.1s > time limit 1.0s) Ask for more with --request-time.",
		90 * time.Second:        "Time limit exceeded. (Container uptime 1m31s > time limit 1m30s) Ask for more with --request-time.",
		2 * time.Hour:           "Time limit exceeded. (Container uptime 2h1m > time limit 2h0m) Ask for more with --request-time.",
		(24*2 + 12) * time.Hour: "Time limit exceeded. (Container uptime 2d13h > time limit 2d12h) Ask for more with --request-time.",
		400 * 24 * time.Hour:    "Time limit exceeded. (Container uptime 1y36d > time limit 1y35d) Ask for more with --request-time.",
	} {
		if got := (commandLimit{asked: d, now: d}).sentence(d + time.Millisecond); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
