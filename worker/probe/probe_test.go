package probe_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

func TestMeetingProvesThatBothSeeOneDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	login, err := probe.Call(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, there, err := login.Hear(t.Context()); there || err != nil {
		t.Errorf("before anybody came: %v, %v", there, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	var job errgroup.Group
	job.Go(func() error { return probe.Meeting{Dir: login.Dir}.Attend(ctx, probe.Report{Node: "n1"}, time.Now) })
	var heard probe.Heard
	for there := false; !there; {
		if heard, there, err = login.Hear(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if heard.Node != "n1" || heard.Disk != "" || !heard.Owner {
		t.Errorf("%+v", heard)
	}
	if l := heard.Locks; l == nil || *l != (probe.Locks{}) || heard.Lost != "" {
		t.Errorf("two programs have the locks: %+v; lost: %q", l, heard.Lost)
	}
	trip, err := login.RoundTrip(ctx, time.Now)
	if err := errors.Join(err, job.Wait()); err != nil || trip.Took <= 0 || !trip.Known || trip.Clock.Magnitude() != 0 {
		t.Errorf("%+v, %v", trip, err)
	}
	if err := login.End(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// Bundles need a disk that keeps links and shows written files.
func TestMeetingSaysWhatTheDiskDoesWrong(t *testing.T) {
	t.Parallel()
	for want, harm := range map[string]string{
		"did not last": "started",
		"it read":      "asked",
	} {
		m, err := probe.Call(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel() // nothing measures the round trip
		if err := m.Attend(gone, probe.Report{}, time.Now); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(m.Dir, harm)); err != nil {
			t.Fatal(err)
		}
		if harm == "asked" {
			if err := os.WriteFile(filepath.Join(m.Dir, harm), []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		heard, there, err := m.Hear(t.Context())
		if err != nil || !there || !strings.Contains(heard.Disk, want) {
			t.Errorf("%s: %+v, %v", harm, heard, err)
		}
	}
}

// attend lets a job and a login node meet, and returns what the login node hears.
func attend(t *testing.T, m probe.Meeting) (heard probe.Heard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	var job errgroup.Group
	job.Go(func() error { return m.Attend(ctx, probe.Report{}, time.Now) })
	var err error
	for there := false; !there && err == nil; {
		heard, there, err = m.Hear(ctx)
	}
	if err == nil {
		_, err = m.RoundTrip(ctx, time.Now)
	}
	if err := errors.Join(err, job.Wait()); err != nil {
		t.Fatal(err)
	}
	return heard
}

// The test is a login node that holds no lock, and whose disk shows a file in part.
func TestMeetingFindsLocksThatExcludeNobodyAndFilesInPart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"replaced": "the node saw a part of a file that the login node replaced by rename", "another": ""} {
		m := probe.Meeting{Dir: t.TempDir()}
		for _, file := range []string{"asked", "flock", "ranges", name} {
			if err := os.WriteFile(filepath.Join(m.Dir, file), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		heard := attend(t, m)
		if locks := (probe.Locks{Flock: "shared", RangeLock: "shared"}); heard.Lost != want || heard.Locks == nil || *heard.Locks != locks {
			t.Errorf("%s: lost %q, locks %+v", name, heard.Lost, heard.Locks)
		}
	}
	older := probe.Meeting{Dir: t.TempDir()} // a bridge of an older release
	if err := os.WriteFile(filepath.Join(older.Dir, "asked"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if heard := attend(t, older); heard.Locks != nil || heard.Lost != "" {
		t.Errorf("lost %q, locks %+v", heard.Lost, heard.Locks)
	}
}

// hangs makes files whose reads do not return before the test ends, as on a disk whose server is away.
func hangs(t *testing.T, m probe.Meeting, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(m.Dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // lets the reader go
			if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = f.Close()
			}
		})
	}
}

func TestMeetingOnADiskThatHangsEnds(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(ctx context.Context, m probe.Meeting) error{
		"report.json": func(ctx context.Context, m probe.Meeting) error {
			_, _, err := m.Hear(ctx)
			return err
		},
		"pong": func(ctx context.Context, m probe.Meeting) error {
			_, err := m.RoundTrip(ctx, time.Now)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := probe.Meeting{Dir: filepath.Join(t.TempDir(), "meeting")}
			if err := os.Mkdir(m.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			hangs(t, m, name)
			var silent *diskspace.SilentError
			if err := ask(t.Context(), m); !errors.As(err, &silent) || silent.Path != filepath.Dir(m.Dir) {
				t.Errorf("%v", err)
			}
		})
	}
}
