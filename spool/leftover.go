package spool

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LeftoverKind says what a Leftover is.
type LeftoverKind string

// The kinds of leftovers. Leftovers lists them in the order of removal: records that
// name the owner of a directory go after it.
const (
	LeftRun       LeftoverKind = "run"       // runs/<uuid>
	LeftRecords   LeftoverKind = "records"   // spool/<uuid>
	LeftMembers   LeftoverKind = "members"   // spool/marks/<submission name>.json
	LeftWorker    LeftoverKind = "worker"    // bin/<digest>
	LeftRing      LeftoverKind = "ring"      // an entry of the doorbell
	LeftTemporary LeftoverKind = "temporary" // the rest of a writer that was killed
	LeftTrash     LeftoverKind = "trash"     // what a sweep has put aside
)

// Leftover is a file or directory on the shared disk that may no longer be needed.
type Leftover struct {
	Kind LeftoverKind
	Path string
	// Bundle is the bundle that it belongs to; empty if to none, or if unknown.
	Bundle string
	// SubmissionNames are the known submissions of the bundle, or the one of these
	// members. Their names tell which bridge made them.
	SubmissionNames []string
	// Touched is when it was last changed, by the disk's clock, without a look at all
	// of its contents. For trash it is when it was put aside.
	Touched time.Time
}

// trashPrefix begins the names of trash.
const trashPrefix = ".trash-"

// temporaryName is the form of package atomicfile's names for unpublished files.
var temporaryName = regexp.MustCompile(`^\.(.+)\.tmp-[0-9]+$`)

// Now reads the disk's own clock, which Leftover.Touched refers to. It needs no room on
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

// touch makes the file server set a directory's time to now, and returns that.
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

// Leftovers lists what bridges have left on the disk, except for needed bundles, in
// the order in which it may be removed. It removes nothing. Without an error the disk
// was mounted; entries that change meanwhile, or cannot be read, may be missing.
func (d Disk) Leftovers(needed func(bundle string) bool) ([]Leftover, error) {
	c := census{layout: d.Layout, needed: needed, submissions: map[string]map[string]bool{}}
	for _, part := range []func() error{c.members, c.records, c.runs, c.workers, c.rings} {
		if err := part(); err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
	}
	for i := range c.found {
		if l := &c.found[i]; l.Kind != LeftMembers {
			l.SubmissionNames = slices.Sorted(maps.Keys(c.submissions[l.Bundle]))
		}
	}
	order := []LeftoverKind{LeftTrash, LeftRun, LeftRecords, LeftMembers, LeftWorker, LeftRing, LeftTemporary}
	slices.SortStableFunc(c.found, func(a, b Leftover) int {
		return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
	})
	return c.found, nil
}

// census collects leftovers.
type census struct {
	layout Layout
	needed func(bundle string) bool
	found  []Leftover
	// submissions are the known submission names of each bundle.
	submissions map[string]map[string]bool
}

func (c *census) add(kind LeftoverKind, path, bundle string, touched time.Time) {
	c.found = append(c.found, Leftover{Kind: kind, Path: path, Bundle: bundle, Touched: touched})
}

func (c *census) addSubmission(bundle, name string) {
	if c.submissions[bundle] == nil {
		c.submissions[bundle] = map[string]bool{}
	}
	c.submissions[bundle][name] = true
}

// each calls fn for the entries of a directory, except trash and temporary files,
// which it collects.
func (c *census) each(dir string, fn func(path string, info fs.FileInfo)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil { // removed, or unreadable
			continue
		}
		switch at, name, ok := trashed(e.Name()); {
		case ok:
			c.add(LeftTrash, path, c.bundleOf(dir, path, name), at)
		case temporaryName.MatchString(e.Name()) && info.Mode().IsRegular():
			c.add(LeftTemporary, path, "", changed(info))
		case !strings.HasPrefix(e.Name(), "."):
			fn(path, info)
		}
	}
	return nil
}

func (c *census) bundleOf(dir, path, name string) string {
	if filepath.Base(dir) == "marks" {
		return memberOf(path)
	}
	return name
}

func (c *census) members() error {
	return c.each(filepath.Dir(c.layout.Members("")), func(path string, info fs.FileInfo) {
		name, ok := strings.CutSuffix(filepath.Base(path), ".json")
		if !ok || !info.Mode().IsRegular() {
			return
		}
		bundle := memberOf(path)
		if c.needed(bundle) {
			return
		}
		if bundle != "" {
			c.addSubmission(bundle, name)
		}
		c.found = append(c.found, Leftover{Kind: LeftMembers, Path: path, Bundle: bundle, SubmissionNames: []string{name}, Touched: changed(info)})
	})
}

// memberOf is the bundle of a submission; empty if the record is damaged or names
// several.
func memberOf(path string) string {
	data, err := os.ReadFile(path)
	var members []Member
	if err != nil || json.Unmarshal(data, &members) != nil || len(members) != 1 {
		return ""
	}
	return members[0].Bundle
}

func (c *census) records() error {
	return c.each(c.layout.spool(), func(path string, info fs.FileInfo) {
		bundle := filepath.Base(path)
		if !info.IsDir() || bundle == "marks" || bundle == "bell" || c.needed(bundle) {
			return
		}
		touched := changed(info)
		_ = c.each(path, func(attempt string, info fs.FileInfo) { // an unreadable attempt adds nothing
			touched = later(touched, changed(info))
			if name := submissionNameOf(Attempt{Dir: attempt}); name != "" {
				c.addSubmission(bundle, name)
			}
			_ = c.each(attempt, func(_ string, info fs.FileInfo) { touched = later(touched, changed(info)) })
		})
		c.add(LeftRecords, path, bundle, touched)
	})
}

// submissionNameOf is the submission in an attempt's specification, of any Format; empty if
// that cannot be read.
func submissionNameOf(a Attempt) string {
	var spec Spec
	data, err := os.ReadFile(a.SpecPath())
	if err != nil || json.Unmarshal(data, &spec) != nil {
		return ""
	}
	return spec.SubmissionName
}

func (c *census) runs() error {
	return c.each(filepath.Dir(c.layout.RunsDir("x")), func(path string, info fs.FileInfo) {
		if !info.IsDir() || c.needed(filepath.Base(path)) {
			return
		}
		touched := changed(info)
		attempts, err := os.ReadDir(path)
		if err != nil {
			return
		}
		for _, a := range attempts {
			if info, err := a.Info(); err == nil {
				touched = later(touched, changed(info))
			}
		}
		c.add(LeftRun, path, filepath.Base(path), touched)
	})
}

// workers collects only what a bridge made: a site may keep other programs in the same
// directory.
func (c *census) workers() error {
	dir := c.layout.bin()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		at, name, aside := trashed(e.Name())
		if !aside {
			name = e.Name()
		}
		info, err := e.Info()
		if err != nil || !info.IsDir() || !binName.MatchString(name) || !holdsWorker(path) {
			continue
		}
		if aside {
			c.add(LeftTrash, path, "", at)
			continue
		}
		touched := changed(info)
		_ = c.each(path, func(_ string, info fs.FileInfo) { touched = later(touched, changed(info)) })
		c.add(LeftWorker, path, "", touched)
	}
	return nil
}

// holdsWorker reports whether a directory holds only programs of jobs, complete or
// not.
func holdsWorker(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		if of := temporaryName.FindStringSubmatch(name); of != nil {
			name = of[1]
		}
		return name != WorkerName && name != BridgeName || !e.Type().IsRegular()
	})
}

func (c *census) rings() error {
	entries, err := os.ReadDir(c.layout.Bell().dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bundle, _, _ := strings.Cut(e.Name(), ".")
			if c.needed(bundle) {
				continue
			}
			c.add(LeftRing, filepath.Join(c.layout.Bell().dir, e.Name()), bundle, changed(info))
		}
	}
	return nil
}

// changed is when a file was last changed in any way. Unlike the time of its content,
// its owner cannot set it.
func changed(info fs.FileInfo) time.Time {
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

// trashed reads from a name of trash when it was put aside, and its earlier name.
func trashed(name string) (at time.Time, was string, ok bool) {
	rest, ok := strings.CutPrefix(name, trashPrefix)
	if !ok {
		return time.Time{}, "", false
	}
	stamp, was, ok := strings.Cut(rest, "-")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	return time.Unix(seconds, 0), was, ok && err == nil
}
