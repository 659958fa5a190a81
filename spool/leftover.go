package spool

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// LeftoverKind is the kind of a Leftover.
type LeftoverKind string

// The kinds of leftovers. Leftovers lists them in the order of removal: records that name the owner of a
// directory go after it.
const (
	LeftRun       LeftoverKind = "run"       // runs/<uuid>
	LeftRecords   LeftoverKind = "records"   // spool/<uuid>
	LeftWorker    LeftoverKind = "worker"    // bin/<digest>
	LeftRing      LeftoverKind = "ring"      // an entry of the doorbell
	LeftTemporary LeftoverKind = "temporary" // a file of a writer that was killed
	LeftTrash     LeftoverKind = "trash"     // a sweep has put it aside
)

// Leftover is a file or directory on the shared disk that may no longer be needed.
type Leftover struct {
	Kind LeftoverKind
	Path string
	// Bundle is the bundle that it belongs to; empty for none.
	Bundle string
	// Bridges are the ids of the bridges that made it, as far as they are known.
	Bridges []string
	// Touched is the time of its last change, by the disk's clock, as far as it shows without a walk
	// through all of its contents. For trash it is the time at which it was put aside.
	Touched time.Time
}

// trashPrefix begins the names of trash.
const trashPrefix = ".trash-"

// temporaryName matches package atomicfile's names for unpublished files.
var temporaryName = lazyregexp.New(`^\.(.+)\.tmp-[0-9]+$`)

// Now returns the time of the disk's own clock, by which Leftover.Touched counts. It needs no free space on
// the disk.
func (d Disk) Now() (time.Time, error) {
	now, err := touch(d.Layout.spool())
	if err != nil {
		return time.Time{}, fmt.Errorf("read the shared disk's clock: %w", err)
	}
	return now, nil
}

// Touch notes that a worker program is in use now.
func (d Disk) Touch(worker string) error {
	if _, err := touch(filepath.Dir(worker)); err != nil {
		return fmt.Errorf("note the use of %s: %w", worker, err)
	}
	return nil
}

// touch makes the file server set a directory's time to the present, and returns that time.
func touch(dir string) (time.Time, error) {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dir, now, 0); err != nil {
		return time.Time{}, &fs.PathError{Op: "utimensat", Path: dir, Err: err}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Leftovers lists the files that bridges have left on the disk, except for needed bundles, in the order in
// which they may be removed. It removes nothing. If the error is nil the disk was mounted; entries that
// change during the call, or cannot be read, may be missing.
//
// It lists runs/ and spool/, which have a directory for each bundle, and asks the disk nothing else about
// needed bundles, because there may be a hundred thousand.
func (d Disk) Leftovers(needed func(bundle string) bool) ([]Leftover, error) {
	return d.leftovers(os.DirFS(string(d.Layout)), needed)
}

// leftovers reads the layout's directory through shared.
func (d Disk) leftovers(shared fs.FS, needed func(bundle string) bool) ([]Leftover, error) {
	c := census{layout: d.Layout, shared: shared, needed: needed, bridges: map[string]map[string]bool{}}
	for _, part := range []func() error{c.records, c.runs, c.workers, c.rings} {
		if err := part(); err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
	}
	for i := range c.found {
		if l := &c.found[i]; l.Bundle != "" {
			l.Bridges = slices.Sorted(maps.Keys(c.bridges[l.Bundle]))
		}
	}
	order := []LeftoverKind{LeftTrash, LeftRun, LeftRecords, LeftWorker, LeftRing, LeftTemporary}
	slices.SortStableFunc(c.found, func(a, b Leftover) int {
		return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
	})
	return c.found, nil
}

// census collects leftovers.
type census struct {
	layout Layout
	shared fs.FS
	needed func(bundle string) bool
	found  []Leftover
	// bridges are the known bridges of each bundle.
	bridges map[string]map[string]bool
}

// add adds a leftover. e is its directory entry, and below are entries in that directory; Touched is the last
// change of all these. add adds none if e was removed or cannot be read.
func (c *census) add(l Leftover, e fs.DirEntry, below ...fs.DirEntry) {
	at, ok := entryChangeTime(e)
	if !ok {
		return
	}
	for _, b := range below {
		if changed, ok := entryChangeTime(b); ok {
			at = later(at, changed)
		}
	}
	l.Touched = at
	c.found = append(c.found, l)
}

// addTrash adds a leftover that a sweep has put aside at a time.
func (c *census) addTrash(path, bundle string, at time.Time) {
	c.found = append(c.found, Leftover{Kind: LeftTrash, Path: path, Bundle: bundle, Touched: at})
}

// list lists a directory of the layout.
func (c *census) list(dir string) ([]fs.DirEntry, error) {
	below, err := filepath.Rel(string(c.layout), dir)
	if err != nil {
		return nil, err
	}
	return fs.ReadDir(c.shared, below)
}

// each calls fn for the entries of a directory, except trash and temporary files, which it collects.
func (c *census) each(dir string, fn func(path string, e fs.DirEntry)) error {
	entries, err := c.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch at, name, ok := parseTrashName(e.Name()); {
		case ok:
			c.addTrash(path, name, at)
		case temporaryName().MatchString(e.Name()) && e.Type().IsRegular():
			c.add(Leftover{Kind: LeftTemporary, Path: path}, e)
		case !strings.HasPrefix(e.Name(), "."):
			fn(path, e)
		}
	}
	return nil
}

// noteBridge notes the bridge that made an attempt of a bundle, if it is known. name is the attempt's, or
// the name of a file next to its run directory.
func (c *census) noteBridge(bundle, name string) {
	attempt, _, _ := strings.Cut(name, ".")
	bridge, ok := AttemptName(attempt).bridge()
	if !ok {
		return
	}
	if c.bridges[bundle] == nil {
		c.bridges[bundle] = map[string]bool{}
	}
	c.bridges[bundle][bridge] = true
}

func (c *census) records() error {
	return c.each(c.layout.spool(), func(path string, e fs.DirEntry) {
		bundle := e.Name()
		if !e.IsDir() || bundle == "bell" || bundle == secretsName || bundle == arraysName || c.needed(bundle) {
			return
		}
		var below []fs.DirEntry
		note := func(_ string, e fs.DirEntry) { below = append(below, e) }
		_ = c.each(path, func(attempt string, e fs.DirEntry) { // an unreadable attempt adds nothing
			note(attempt, e)
			c.noteBridge(bundle, e.Name())
			_ = c.each(attempt, note)
		})
		c.add(Leftover{Kind: LeftRecords, Path: path, Bundle: bundle}, e, below...)
	})
}

func (c *census) runs() error {
	return c.each(c.layout.Runs(), func(path string, e fs.DirEntry) {
		bundle := e.Name()
		if !e.IsDir() || c.needed(bundle) {
			return
		}
		attempts, err := c.list(path)
		if err != nil {
			return
		}
		for _, a := range attempts {
			c.noteBridge(bundle, a.Name())
		}
		c.add(Leftover{Kind: LeftRun, Path: path, Bundle: bundle}, e, attempts...)
	})
}

// workers collects only directories that a bridge made, because a site may keep other programs next to them.
func (c *census) workers() error {
	dir := c.layout.bin()
	entries, err := c.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		at, name, aside := parseTrashName(e.Name())
		if !aside {
			name = e.Name()
		}
		if !e.IsDir() || !binName().MatchString(name) || !c.holdsWorker(path) {
			continue
		}
		if aside {
			c.addTrash(path, "", at)
			continue
		}
		var below []fs.DirEntry
		_ = c.each(path, func(_ string, e fs.DirEntry) { below = append(below, e) })
		c.add(Leftover{Kind: LeftWorker, Path: path}, e, below...)
	}
	return nil
}

// holdsWorker reports whether a directory holds only programs of jobs, complete or not.
func (c *census) holdsWorker(dir string) bool {
	entries, err := c.list(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		if of := temporaryName().FindStringSubmatch(name); of != nil {
			name = of[1]
		}
		return name != WorkerName && name != BridgeName || !e.Type().IsRegular()
	})
}

func (c *census) rings() error {
	entries, err := c.list(c.layout.Bell().dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if bundle, _, _ := strings.Cut(e.Name(), "."); !c.needed(bundle) {
			c.add(Leftover{Kind: LeftRing, Path: filepath.Join(c.layout.Bell().dir, e.Name()), Bundle: bundle}, e)
		}
	}
	return nil
}

// entryChangeTime returns the time of an entry's last change; false if it was removed, or cannot be read.
func entryChangeTime(e fs.DirEntry) (time.Time, bool) {
	info, err := e.Info()
	if err != nil {
		return time.Time{}, false
	}
	return changeTime(info), true
}

// changeTime returns the time at which a file was last changed in any way. Its owner can set the time of its
// content, but not this one.
func changeTime(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// parseTrashName returns the time and the former name from a name of trash.
func parseTrashName(name string) (at time.Time, was string, ok bool) {
	rest, ok := strings.CutPrefix(name, trashPrefix)
	if !ok {
		return time.Time{}, "", false
	}
	stamp, was, ok := strings.Cut(rest, "-")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	return time.Unix(seconds, 0), was, ok && err == nil
}
