package results

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestMain(m *testing.M) {
	if code, ran := subids.Main(os.Args); ran {
		os.Exit(code)
	}
	if len(os.Args) == 3 && os.Args[1] == collectHere {
		if err := collectAsOrdered(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// moved is a run directory and the location for its results.
type moved struct {
	*testing.T
	store    Store
	runDir   string
	location string
	run      codalab.RunBundle
}

func newMoved(t *testing.T, store string) *moved {
	t.Helper()
	m := &moved{
		T: t, store: Store{Dir: store}, runDir: filepath.Join(t.TempDir(), "runs", run1, "1"),
	}
	m.location = m.newLocation("r1")
	m.run = codalab.RunBundle{
		UUID: run1, Location: &m.location, Metadata: codalab.Metadata{"exclude_patterns": []any{"*.tmp", "checkpoints"}},
		Dependencies: []codalab.RunDependency{{Dependency: codalab.Dependency{ChildPath: "data"}}, {Dependency: codalab.Dependency{ChildPath: "a/b"}}},
	}
	plant(m.T, m.runDir, map[string]string{
		"stdout": "out", "model/w": "1", "model/w.tmp": "2", "checkpoints/1": "3", "own": "->stdout", "a/kept": "4",
		"data": "->/" + run1 + "_dependencies/data", "a/b": "->/" + run1 + "_dependencies/a/b",
		spool.CopyPrefix(spool.NewToken()) + "-1": "half", // of a worker that was killed
	})
	return m
}

func (m *moved) move() error { return m.store.Move(m.Context(), m.run, m.runDir) }

// newLocation makes another location for the results, as the server would.
func (m *moved) newLocation(name string) string {
	m.Helper()
	at := filepath.Join(m.store.Dir, "bundles", run1+"-"+name, "contents")
	must(m.T, os.MkdirAll(at, 0o750))
	return at
}

// nothingBeside checks that no incomplete copy is next to the location.
func (m *moved) nothingBeside() {
	m.Helper()
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(m.location), ".*")); err != nil || len(left) > 0 {
		m.Errorf("next to the location lies %v, %v", left, err)
	}
}

// is checks that the results are at their location, and nowhere else.
func (m *moved) is(err error) {
	m.Helper()
	must(m.T, err)
	results := map[string]string{"stdout": "out", "model/w": "1", "own": "->stdout", "a/kept": "4"}
	if diff := cmp.Diff(results, planted(m.T, m.location)); diff != "" {
		m.Errorf("results (-want +got):\n%s", diff)
	}
	m.nothingBeside()
	if _, err := os.Lstat(m.runDir); !errors.Is(err, fs.ErrNotExist) {
		m.Errorf("the run's directory: %v", err)
	}
}

// otherDisk returns a store that is on another disk than the runs.
func otherDisk(t *testing.T) string {
	t.Helper()
	other := t.TempDir()
	testenv.SmallDisk(t, other, "size=4m")
	return other
}

// onEachDisk calls test with a store on the disk of the runs, and with one on another disk.
func onEachDisk(t *testing.T, test func(m *moved, sameDisk bool)) {
	t.Helper()
	t.Run("same disk", func(t *testing.T) { t.Parallel(); test(newMoved(t, t.TempDir()), true) })
	t.Run("another disk", func(t *testing.T) { t.Parallel(); test(newMoved(t, otherDisk(t)), false) })
}

func TestResultsAreMovedIntoTheServersStore(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, _ bool) {
		must(m.T, os.Chmod(m.runDir, 0o500))
		_, err := (&Collector{Store: &m.store}).Collect(m.Context(), m.run, m.runDir, spool.ResultsKeep, func(string) {}) // even from a queue that keeps them
		m.is(err)
		m.is(m.move()) // again
		if info, err := os.Stat(m.location); err != nil || info.Mode().Perm() != 0o750 {
			m.Errorf("%v, %v: not as the server made it", info, err)
		}
		m.location = m.newLocation("r2") // for another assignment
		m.is(m.move())
		m.is(m.move())
		m.location = m.newLocation("r3")
		must(m.T, os.RemoveAll(filepath.Join(m.store.Dir, "bundles", run1+"-r2")))
		wantError(m.T, m.move(), "they were moved to ", false)
	})
}

func TestTooLongAPathEndsOnlyAMoveToAnotherDisk(t *testing.T) {
	t.Parallel()
	path := strings.Repeat(strings.Repeat("d", 200)+"/", 21) + "file"
	onEachDisk(t, func(m *moved, sameDisk bool) {
		root, err := os.OpenRoot(m.runDir)
		must(m.T, err)
		must(m.T, errors.Join(root.MkdirAll(filepath.Dir(path), 0o700), root.WriteFile(path, nil, 0o600), root.Close()))
		err = m.move()
		at := m.location
		if sameDisk {
			must(m.T, err)
		} else {
			at = m.runDir // they stay
			wantError(m.T, err, path[:100], false)
			m.nothingBeside()
		}
		root, err = os.OpenRoot(at)
		must(m.T, err)
		_, err = root.Lstat(path)
		must(m.T, errors.Join(err, root.Close()))
	})
}

// The results are safe at their first location.
func TestResultsThatCannotBeMovedOnYetAreNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spoil, mend func(m *moved) error }{
		"the location is not empty": {
			func(m *moved) error { return os.WriteFile(filepath.Join(m.location, "foreign"), nil, 0o600) },
			func(m *moved) error { return os.Remove(filepath.Join(m.location, "foreign")) },
		},
		"the location is on another disk": {
			func(m *moved) error {
				other := otherDisk(m.T)
				return errors.Join(os.Remove(m.location), os.Remove(filepath.Dir(m.location)),
					os.MkdirAll(filepath.Join(other, filepath.Base(filepath.Dir(m.location)), "contents"), 0o750),
					os.Rename(filepath.Join(m.store.Dir, "two"), filepath.Join(m.store.Dir, "one")),
					os.Symlink(other, filepath.Join(m.store.Dir, "two")))
			},
			func(m *moved) error {
				return errors.Join(os.Remove(filepath.Join(m.store.Dir, "two")),
					os.Rename(filepath.Join(m.store.Dir, "one"), filepath.Join(m.store.Dir, "two")), os.MkdirAll(m.location, 0o750))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoved(t, t.TempDir())
			m.is(m.move())
			m.location = filepath.Join(m.store.Dir, "two", run1+"-r2", "contents")
			must(t, os.MkdirAll(m.location, 0o750))
			must(t, c.spoil(m))
			wantError(t, m.move(), "cannot be moved on", true)
			must(t, c.mend(m))
			m.is(m.move())
		})
	}
}

// Move continues after a crash.
func TestMoveGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, sameDisk bool) {
		must(m.T, moveRecord{Location: m.location}.write(m.runDir)) // nothing is done yet
		half := filepath.Join(filepath.Dir(m.location), ".contents.moving")
		plant(m.T, half, map[string]string{"stdout": "ou"})
		err := m.move()
		must(m.T, os.RemoveAll(half)) // it stays if the disk is the same
		m.is(err)
		if sameDisk {
			return
		}
		plant(m.T, m.runDir, map[string]string{"stdout": "out"}) // the copy is complete, and the directory is only partly removed
		m.is(m.move())
		plant(m.T, m.runDir, map[string]string{"stdout": "out"}) // and the server gives the bundle another location
		m.location = m.newLocation("r2")
		m.is(m.move())
	})
}

func TestResultsThatTheServerRemovedAreReportedLost(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, _ bool) {
		m.is(m.move())
		must(m.T, errors.Join(os.RemoveAll(m.location), os.Mkdir(m.location, 0o750)))
		wantError(m.T, m.move(), "neither there nor at", false)
	})
}

func TestNoResultsAtAllAreMovedAndOpened(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, _ bool) {
		m.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"*"}}
		layout := spool.Layout(m.TempDir())
		plant(m.T, layout.KeptDir(run1), map[string]string{"stdout": "of an earlier life"})
		for range 2 {
			must(m.T, m.move())
		}
		root, err := (&Collector{Store: &m.store, Layout: layout}).Open(m.run, m.runDir)
		must(m.T, err)
		entries, err := fs.ReadDir(root.FS(), ".")
		if must(m.T, errors.Join(err, root.Close())); len(entries) > 0 {
			m.Errorf("it holds %v", entries)
		}
	})
}

func TestForeignFilesAreNotTakenForAnEarlierTrysCopy(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, _ bool) {
		plant(m.T, m.location, map[string]string{"foreign": "x"})
		for range 3 {
			wantError(m.T, m.move(), "not empty", true)
		}
		if planted(m.T, m.runDir)["model/w"] != "1" {
			m.Errorf("the results are gone")
		}
	})
}

func TestCancelledMoveIsContinued(t *testing.T) {
	t.Parallel()
	onEachDisk(t, func(m *moved, _ bool) {
		ctx, cancel := context.WithCancel(m.Context())
		cancel()
		if err := m.store.Move(ctx, m.run, m.runDir); err == nil {
			m.Fatal("a cancelled move succeeded")
		}
		m.is(m.move())
	})
}

func TestPlaceThatCannotBeTakenKeepsTheResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(m *moved)
		words string
		again bool
	}{
		"not there":    {func(m *moved) { must(m.T, os.Remove(m.location)) }, "it is not there", true},
		"elsewhere":    {func(m *moved) { m.location = "/etc" }, "which is not in its store", true},
		"of another":   {func(m *moved) { m.location = filepath.Join(m.store.Dir, "bundles") }, "which is not named for it", true},
		"a link":       {func(m *moved) { must(m.T, errors.Join(os.Remove(m.location), os.Symlink("/tmp", m.location))) }, "symbolic link", true},
		"nothing left": {func(m *moved) { must(m.T, os.RemoveAll(m.runDir)) }, "is gone", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoved(t, t.TempDir())
			c.spoil(m)
			wantError(t, m.move(), c.words, c.again)
			if c.again && planted(t, m.runDir)["model/w"] != "1" {
				t.Errorf("the results are gone")
			}
		})
	}
}

func TestMovedResultsAreOpenedWhereTheyAre(t *testing.T) {
	t.Parallel()
	m := newMoved(t, t.TempDir())
	c := &Collector{Store: &m.store, Layout: spool.Layout(t.TempDir())}
	opens := func() error {
		root, err := c.Open(m.run, m.runDir)
		if err != nil {
			return err
		}
		text, err := root.ReadFile("stdout")
		if string(text) != "out" {
			t.Errorf("read %q", text)
		}
		return errors.Join(err, root.Close())
	}
	must(t, opens())
	m.is(m.move())
	must(t, opens())
	must(t, os.MkdirAll(m.runDir, 0o700)) // the rest, while it is removed after a copy
	must(t, opens())
	must(t, os.Remove(m.runDir))
	later := filepath.Join(m.store.Dir, "bundles", run1+"-r2", "contents")
	m.run.Location = &later // and the results are not there yet
	must(t, opens())
	must(t, errors.Join(os.Rename(m.location, m.location+"2"), os.Symlink(m.location+"2", m.location)))
	if err := opens(); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("opened through a link: %v", err)
	}
}

// A bridge kept the results of a bundle. The server's database was then restored, so the server
// runs the bundle again. Now the bridge shares the server's disk and moves results.
func TestMovedResultsSupersedeThoseKeptBefore(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(m *moved) error{
		"at once":                  func(*moved) error { return nil },
		"a crash after the move":   func(m *moved) error { return m.move() },
		"a crash before the other": func(m *moved) error { return moveRecord{Location: m.location}.write(m.runDir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMoved(t, t.TempDir())
			layout := spool.Layout(t.TempDir())
			plant(t, layout.KeptDir(run1), map[string]string{"stdout": "earlier"})
			must(t, crash(m))
			c := &Collector{Store: &m.store, Layout: layout}
			for range 2 { // it may be repeated at any time
				_, err := c.Collect(t.Context(), m.run, m.runDir, spool.ResultsUpload, func(string) {})
				m.is(err)
				if diff := cmp.Diff(map[string]string{run1 + ".1/stdout": "earlier"}, planted(t, layout.KeptDirs())); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
			}
			if _, found, err := FindKeptResults(layout, "in", codalab.Identity{UUID: run1}, codalab.Target{BundleUUID: run1}); found || err != nil {
				t.Errorf("a later run sees what was kept before: %v", err)
			}
			dep, found, err := m.store.Dependency("in", codalab.RunDependency{Dependency: codalab.Dependency{ParentUUID: run1}, Location: &m.location})
			if err != nil || !found || dep.Source != m.location {
				t.Errorf("a later run sees %+v, %v; want %s", dep, err, m.location)
			}
		})
	}
}

// It runs as an ordinary user, because root may read everything.
func TestWhatACommandClosedIsMovedOpen(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	m := newMoved(t, t.TempDir())
	for _, name := range []string{"model/w", "model", "checkpoints", ""} {
		must(t, os.Chmod(filepath.Join(m.runDir, name), 0))
	}
	m.is(m.move())
}

// It runs as an ordinary user.
func TestWhatAKilledContainerLeftToOtherIDsIsMovedAsTheUsers(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	testenv.SubordinateIDs(t)
	m := newMoved(t, t.TempDir())
	const script = `chown -R 5:6 "$0/model" "$0/checkpoints" "$0/stdout" "$0" && chmod 0700 "$0/model" "$0/checkpoints" "$0" && chmod 0600 "$0/model/w"`
	output, err := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", script, m.runDir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	m.is(m.move())
	for _, name := range []string{"model/w", "model", "stdout", ""} {
		info, err := os.Lstat(filepath.Join(m.location, name))
		if must(t, err); subids.IsForeign(info) {
			t.Errorf("%s is another id's", name)
		}
	}
}
