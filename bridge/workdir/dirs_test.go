package workdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// host is a host with one work directory.
type host struct {
	t             *testing.T
	home, workDir string
	name          string
}

func newHost(t *testing.T) *host {
	t.Helper()
	name, err := os.Hostname()
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return &host{t: t, home: filepath.Join(dir, "home"), workDir: filepath.Join(dir, "scratch"), name: name}
}

func (s *host) search() Search {
	return Search{
		Host: s.name, Now: time.Now, CheckJobs: func(string) error { return nil },
		Getenv: func(name string) string { return map[string]string{"HOME": s.home}[name] },
	}
}

func (s *host) owner(server string) Owner {
	return Owner{Server: "http://" + server, User: "ann", WorkDir: s.workDir}
}

// find is Search.Find for a user of a server.
func (s *host) find(server, id string) (Dirs, error) {
	at, err := s.search().Find(s.t.Context(), s.owner(server), id)
	if err == nil {
		s.t.Cleanup(at.Release)
	}
	return at, err
}

// leave makes the directories of a worker for the server a that has left a run, and has ended.
func (s *host) leave(id string) {
	s.t.Helper()
	at, err := s.find("a", id)
	must(s.t, err)
	book, err := ledger.Open(s.t.Context(), at.Ledger())
	must(s.t, err)
	must(s.t, book.Save(s.t.Context(), []plan.Row{{Bundle: "0x0123456789abcdef0123456789abcdef", Queue: "worker", Phase: plan.Running}}))
	must(s.t, book.Close())
	at.Release()
}

func TestLeftRunsAreTakenUpOnlyForTheirServerAndUser(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	left := s.name + "(1)"
	s.leave(left)
	if at, err := s.find("b", ""); err != nil || at.ID == left {
		t.Errorf("a worker for another server is %q, %v", at.ID, err)
	}
	ben := s.owner("a")
	ben.User = "ben"
	if at, err := s.search().Find(t.Context(), ben, ""); err == nil && at.ID == left {
		t.Errorf("a worker of another user is %q", at.ID)
	}
	if at, err := s.find("a", ""); err != nil || at.ID != left {
		t.Errorf("a worker for the same server is %q, %v; want %q", at.ID, err, left)
	}
}

func TestIDWithRunsOfAnotherServerIsRefused(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	s.leave("w")
	_, err := s.find("b", "w")
	var foreign *LeftRunsError
	if !errors.As(err, &foreign) || !strings.Contains(err.Error(), `"w" left 1 runs of the user ann of http://a`) {
		t.Errorf("%v", err)
	}
	at, err := s.find("a", "w")
	must(t, err)
	book, err := ledger.Open(t.Context(), at.Ledger())
	must(t, err)
	rows, err := book.Rows(t.Context())
	must(t, err)
	must(t, book.Delete(t.Context(), rows[0]))
	must(t, book.Close())
	at.Release()
	if _, err := s.find("b", "w"); err != nil {
		t.Errorf("without runs: %v", err)
	}
}

// Both see the same place that is left, and only one gets it.
func TestWorkerWhosePlaceIsTakenMeanwhileGetsANewOne(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	left := s.name + "(1)"
	s.leave(left)
	found := make(chan Dirs)
	for range 2 {
		go func() {
			at, err := s.find("a", "")
			if err != nil {
				t.Error(err)
			}
			found <- at
		}()
	}
	got := map[string]bool{(<-found).ID: true, (<-found).ID: true}
	if !got[left] || !got[fmt.Sprintf("%s(%d)", s.name, os.Getpid())] {
		t.Errorf("the workers are %v", got)
	}
	if _, err := s.find("a", left); !errors.Is(err, ledger.ErrLocked) {
		t.Errorf("a third one by the id: %v", err)
	}
}

func TestPlaceOfAWorkerThatWasNotStartedLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	at, err := s.find("a", "")
	must(t, err)
	at.RemoveEmpty()
	if _, err := os.Lstat(s.workDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the work directory: %v", err)
	}
	s.leave("w")
	at, err = s.find("a", "w")
	must(t, err)
	at.RemoveEmpty()
	if n, err := at.runs(t.Context()); n != 1 || err != nil {
		t.Errorf("%d runs are left, %v", n, err)
	}
}

func TestWorkDirOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	dir, err := makeWorkDir(s.workDir)
	must(t, err)
	for _, d := range []string{dir, Workers(dir)} {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, %v", d, info, err)
		}
	}
	testenv.Root(t)
	must(t, os.Chown(dir, 4711, 4711))
	if err := checkOwner(dir, 4711); err != nil {
		t.Errorf("its owner: %v", err)
	}
	if err := checkOwner(dir, 4712); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("another user: %v", err)
	}
}

func TestCachesAreRemovedOnlyWithoutOtherWorkers(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	one, err := s.find("a", "one")
	must(t, err)
	two, err := s.find("a", "two")
	must(t, err)
	data := filepath.Join(one.Cache(), "data")
	must(t, errors.Join(os.MkdirAll(one.Cache(), 0o700), os.WriteFile(data, nil, 0o600)))
	_, err = one.Remove(t.Context())
	must(t, err)
	if err := one.RemoveWorkDir(); err == nil {
		t.Error("the work directory was removed beside another worker")
	}
	if _, err := os.Lstat(data); err != nil {
		t.Errorf("the cache beside another worker: %v", err)
	}
	_, err = two.Remove(t.Context())
	must(t, err)
	must(t, two.RemoveWorkDir())
	if _, err := os.Lstat(s.workDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the work directory: %v", err)
	}
}

// The newcomer has begun after removeWorkDir found no other worker.
func TestCachesStayForAWorkerThatBeginsMeanwhile(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	at, err := s.find("a", "newcomer")
	must(t, err)
	for _, dir := range []string{at.Cache(), at.Images(), at.aside(at.Images())} {
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	}
	if err := at.removeCaches(); err == nil {
		t.Error("the caches were removed")
	}
	for _, dir := range []string{at.Cache(), at.Images()} {
		if _, err := os.Lstat(filepath.Join(dir, "data")); err != nil {
			t.Error(err)
		}
	}
}

func TestLedgersOfWorkersThatAreGoneAreRemoved(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	unmounted := s.workDir + "-away"
	states := filepath.Join(s.home, ".local", "state", "cl-worker")
	for name, test := range map[string]struct {
		workDir string
		days    int
		there   bool // the worker's directory
		stays   bool
	}{
		"gone":     {workDir: s.workDir, days: 8},
		"new":      {workDir: s.workDir, days: 6, stays: true},
		"there":    {workDir: s.workDir, days: 400, there: true, stays: true},
		"away":     {workDir: unmounted, days: 29, stays: true},
		"away-old": {workDir: unmounted, days: 31},
		"locked":   {workDir: s.workDir, days: 8, stays: true},
	} {
		dir := filepath.Join(states, s.name+"-"+name)
		must(t, os.MkdirAll(dir, 0o700))
		of := s.owner("a")
		of.WorkDir = test.workDir
		must(t, of.write(dir))
		if test.there {
			must(t, os.MkdirAll(filepath.Join(Workers(s.workDir), name), 0o700))
		}
		then := time.Now().AddDate(0, 0, -test.days)
		must(t, os.Chtimes(filepath.Join(dir, ownerName), then, then))
		if name == "locked" {
			unlock, err := ledger.Lock(t.Context(), filepath.Join(dir, "ledger.db"))
			must(t, err)
			t.Cleanup(unlock)
		}
		t.Cleanup(func() {
			if _, err := os.Lstat(dir); (err == nil) != test.stays {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	foreign := filepath.Join(states, "another-host-x")
	must(t, os.MkdirAll(foreign, 0o700))
	_, err := s.find("a", "w")
	must(t, err)
	if _, err := os.Lstat(foreign); err != nil {
		t.Errorf("that of another host: %v", err)
	}
}

// A place is only looked at on each start, so nothing may be made for it.
func TestLookingForLeftRunsMakesNothing(t *testing.T) {
	t.Parallel()
	s := newHost(t)
	must(t, os.MkdirAll(filepath.Join(Workers(s.workDir), FileName(s.name+"(1)")), 0o700))
	left := s.search().left(t.Context(), s.owner("a"))
	entries, err := os.ReadDir(filepath.Join(Workers(s.workDir), FileName(s.name+"(1)")))
	if len(left)+len(entries) > 0 || err != nil {
		t.Errorf("found %v, made %v, %v", left, entries, err)
	}
	if _, err := os.Lstat(s.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory for states: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
