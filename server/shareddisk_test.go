package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

func sharedDisk(c *server.Config) { c.SharedDisk = true }

// sharing is a worker that reports that it shares the server's disk.
func (s *site) sharing() *testWorker {
	w := s.worker("alice", "w1", "cpu")
	w.info.SharedFileSystem = true
	return w
}

// leaves puts results into a place as cl-bridge does, by one rename.
func leaves(t *testing.T, place string, files map[string]string) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "run")
	for name, text := range files {
		name = filepath.Join(made, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
	}
	must(t, syscall.Rename(made, place))
}

func ended(uuid string) codalab.RunReport {
	zero, run := 0, reportOf(uuid, codalab.StateFinalizing)
	run.ExitCode, run.DiskUtilization = &zero, 12345
	return run
}

// finalizes reports a run's end until the server acknowledges it.
func (w *testWorker) finalizes(uuid string) {
	w.t.Helper()
	if m := w.told(codalab.MessageMarkFinalized, ended(uuid)); m.UUID != uuid {
		w.t.Fatalf("told %+v", m)
	}
}

func TestWorkerOnTheServersDiskUsesContentsWhereTheyLie(t *testing.T) {
	t.Parallel()
	linked := linkedData(t)
	s := newSite(t, sharedDisk, func(c *server.Config) { c.LinkRoots = []string{filepath.Join(linked, "root")} })
	file, tree := s.upload("a.txt", "hello"), s.dataset("tree")
	s.put(tree, "filename=tree.tar.gz&unpack=1", tarGz(t, map[string]string{"sub/f": "deep"})).ok()
	uuid := s.run("cat", cpuQueue,
		codalab.Dependency{ParentUUID: file, ChildPath: "file"}, codalab.Dependency{ParentUUID: tree, ChildPath: "sub", ParentPath: "sub"},
		codalab.Dependency{ParentUUID: s.link(filepath.Join(linked, "root/set")), ChildPath: "set"},
		codalab.Dependency{ParentUUID: s.link(filepath.Join(linked, "secret")), ChildPath: "secret"},
	)
	w := s.sharing()
	m := w.told(codalab.MessageRun).Bundle
	read := func(i int, below string) string {
		t.Helper()
		if m.Dependencies[i].Location == nil {
			t.Fatalf("%+v has no location", m.Dependencies[i])
		}
		data, err := os.ReadFile(filepath.Join(*m.Dependencies[i].Location, below))
		must(t, err)
		return string(data)
	}
	if got := read(0, "") + read(1, "sub/f") + read(2, "sub/f"); got != "hellodeep1\n2\n3\n" {
		t.Errorf("read %q", got)
	}
	if d := m.Dependencies[3]; d.Location != nil {
		t.Errorf("the server does not read this link, and says that it is at %s", *d.Location)
	}
	if m.Location == nil || !strings.Contains(*m.Location, uuid) {
		t.Fatalf("location %v", m.Location)
	}
	if entries, err := os.ReadDir(*m.Location); err != nil || len(entries) > 0 {
		t.Errorf("the place for results holds %v, %v", entries, err)
	}
	w.startBundle(uuid)
	leaves(t, *m.Location, map[string]string{"stdout": "out", "model/weights": "1234"})
	w.finalizes(uuid)
	b := s.await(uuid, codalab.StateReady)
	if size := b.Metadata.Int("data_size"); size != 2*4096+7 {
		t.Errorf("data_size %d", size)
	}
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/model/weights").ok().body; got != "1234" {
		t.Errorf("contents %q", got)
	}
	removed, err := s.store.Sweep(t.Context())
	if err != nil || removed > 0 {
		t.Errorf("swept %d, %v", removed, err)
	}
}

func TestOnlyWorkersThatShareTheDiskAreToldPaths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ server, worker bool }{"the worker does not": {server: true}, "the server does not": {worker: true}} {
		s := newSite(t, func(c2 *server.Config) { c2.SharedDisk = c.server })
		uuid := s.run("cat", cpuQueue, codalab.Dependency{ParentUUID: s.upload("a", "x"), ChildPath: "a"})
		w := s.worker("alice", "w1", "cpu")
		w.info.SharedFileSystem = c.worker
		if m := w.told(codalab.MessageRun).Bundle; m.Location != nil || m.Dependencies[0].Location != nil {
			t.Errorf("%s: %v, %v", name, m.Location, m.Dependencies[0].Location)
		}
		w.startBundle(uuid)
		s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "sent"})).ok()
		w.finalizes(uuid)
		if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout").ok().body; got != "sent" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What an earlier worker leaves late is not the later one's.
func TestEachAssignmentHasAPlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDisk)
	uuid := s.run("true", cpuQueue)
	w := s.sharing()
	early := w.told(codalab.MessageRun).Bundle
	w.startBundle(uuid)
	again := w.checkIn(reportOf(uuid, codalab.StateStaged)) // gives it back
	if len(again) == 0 {
		again = []codalab.Message{w.told(codalab.MessageRun)}
	}
	late := again[0].Bundle
	if *early.Location == *late.Location {
		t.Fatal("two assignments have one place")
	}
	if removed, err := s.store.Sweep(t.Context()); err != nil || removed != 1 {
		t.Errorf("swept %d, %v, want the first place alone", removed, err)
	}
	w.startBundle(uuid)
	leaves(t, *late.Location, map[string]string{"stdout": "second"})
	w.finalizes(uuid)
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout").ok().body; got != "second" {
		t.Errorf("%q", got)
	}
}

func TestUploadedResultsOutrankThePlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDisk)
	uuid := s.run("true", cpuQueue)
	w := s.sharing()
	place := *w.told(codalab.MessageRun).Bundle.Location
	w.startBundle(uuid)
	leaves(t, place, map[string]string{"stdout": "left"})
	s.put(uuid, "filename=bundle.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"stdout": "sent"})).ok()
	w.finalizes(uuid)
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/stdout").ok().body; got != "sent" {
		t.Errorf("%q", got)
	}
	testenv.Await(t, "the place is gone", func() bool {
		_, err := os.Stat(filepath.Dir(place))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestResultsThatTheDiskShowsLateAreWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			after time.Duration
			comes bool
			ran   bool
		}{{10 * time.Second, true, true}, {time.Minute, false, true}, {0, false, false}} {
			s := newSite(t, sharedDisk)
			uuid := s.run("true", cpuQueue)
			w := s.sharing()
			place := *w.told(codalab.MessageRun).Bundle.Location
			w.startBundle(uuid)
			run := ended(uuid)
			if !c.ran {
				run.ExitCode = nil
			}
			begun := time.Now()
			for w.checkIn(run) == nil {
				if since := time.Since(begun); c.comes && since >= c.after {
					made := filepath.Join(dir, "made")
					must(t, errors.Join(os.Mkdir(made, 0o755), os.WriteFile(filepath.Join(made, "stdout"), []byte("late"), 0o644), syscall.Rename(made, place)))
					c.comes = false
				}
			}
			if took := time.Since(begun); took < c.after || took > c.after+15*time.Second {
				t.Errorf("%+v: acknowledged after %v", c, took)
			}
			if size := s.bundle("alice", uuid).Metadata.Int("data_size"); (size > 0) != (c.after == 10*time.Second) {
				t.Errorf("%+v: data_size %d", c, size)
			}
		}
	})
}
