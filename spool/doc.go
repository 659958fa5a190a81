// Package spool is what a bridge and the workers in its jobs tell each other.
// They share nothing but a disk, so each thing said is a small file:
//
//	<shared>/spool/<uuid>/<attempt>/
//	    spec.json     bridge → worker   what to run; written before sbatch
//	    started       whoever is first  the attempt is taken (see Attempt.Begin)
//	    status.json   worker → bridge   stage and usage, replaced as it goes on
//	    exit.json     worker → bridge   how the attempt ended; written once
//	    slurm.out     Slurm → people    what the batch script printed
//	<shared>/spool/marks/<mark>.json    the members of a submission
//	<shared>/spool/bell/                the doorbell (see Bell)
//	<shared>/runs/<uuid>/<attempt>/     the run directory: the bundle's working directory, or a copy of it (see WorkDir)
//	<shared>/kept/<uuid>/               results that stay here (see Results)
//	<shared>/links/<uuid>.json          what a bundle that is a link was seen to be
//	<shared>/images/                    records of images (see package staging)
//
// Worker and bridge meet in Attempt and Layout; Disk is all of it that a
// bridge does.
//
// # What is promised
//
// A record is seen whole or not at all: it is written to a temporary in its
// own directory, flushed, and renamed (or linked). A record carries the token
// of the attempt's start, so that one left by a process that lost the start
// counts for nothing.
//
// Of an attempt at most one start stands, for ever: that of the one worker
// that may run it, or that of a bridge, after which none may. Package linkonce
// has the protocol.
//
// # What is assumed of the disk
//
// rename(2) and link(2) within one directory happen on the file server at
// once or not at all, and who opens a file sees what its writer flushed and
// closed before (NFS: close-to-open). Not assumed: that a call that failed had
// no effect, that a listing is fresh, or that a missing file is not there. The
// directories of Layout.Directories are made once; where <shared>/spool is
// missing the disk is not mounted.
package spool

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// Layout is the shared directory of a bridge. Its value is the directory's
// absolute path, which is the same on the login node and on compute nodes.
type Layout string

// Attempt is the place of one attempt's records.
func (l Layout) Attempt(bundle string, attempt int) Attempt {
	return Attempt{Dir: filepath.Join(l.BundleDir(bundle), strconv.Itoa(attempt))}
}

// BundleDir holds the attempts of a bundle.
func (l Layout) BundleDir(bundle string) string {
	return filepath.Join(l.spool(), bundle)
}

// RunDir holds what one attempt of a bundle leaves: its working directory, or
// a copy of that (see WorkDir).
func (l Layout) RunDir(bundle string, attempt int) string {
	return filepath.Join(l.RunsDir(bundle), strconv.Itoa(attempt))
}

// RunsDir holds the run directories of a bundle.
func (l Layout) RunsDir(bundle string) string { return filepath.Join(l.Runs(), bundle) }

// Runs holds the run directories of all bundles. Where it is missing the
// shared disk is not mounted.
func (l Layout) Runs() string { return filepath.Join(string(l), "runs") }

// Members is the record of a submission's members.
func (l Layout) Members(mark string) string {
	return filepath.Join(l.spool(), "marks", mark+".json")
}

// Bell is the layout's doorbell.
func (l Layout) Bell() Bell {
	return Bell{dir: filepath.Join(l.spool(), "bell")}
}

// Cache is where dependencies and images are kept.
func (l Layout) Cache() string { return filepath.Join(string(l), "cache") }

// Link is the record of what a bundle that is a link was seen to be. Its
// directory is made with the first one.
func (l Layout) Link(bundle string) string {
	return filepath.Join(string(l), "links", bundle+".json")
}

// KeptImages has the records of images that are kept, ImageNames the names that
// images were asked for by, ImageFiles the digests of SIFs that are used where
// they lie. Each is made with its first record.
func (l Layout) KeptImages() string { return filepath.Join(l.images(), "kept") }

// ImageNames is described with KeptImages.
func (l Layout) ImageNames() string { return filepath.Join(l.images(), "names") }

// ImageFiles is described with KeptImages.
func (l Layout) ImageFiles() string { return filepath.Join(l.images(), "files") }

func (l Layout) images() string { return filepath.Join(string(l), "images") }

// Bin is the directory of the worker program whose content has this digest
// (lower-case hexadecimal SHA-256).
func (l Layout) Bin(digest string) string {
	return filepath.Join(l.bin(), digest[:min(12, len(digest))])
}

// binName is the form of the names that Layout.Bin gives to SHA-256 digests.
var binName = regexp.MustCompile(`^[0-9a-f]{12}$`)

// The names of programs in Layout.Bin.
const (
	WorkerName = "cl-worker"
	BridgeName = "cl-bridge" // whose jobs convert images
)

func (l Layout) bin() string { return filepath.Join(string(l), "bin") }

func (l Layout) spool() string { return filepath.Join(string(l), "spool") }

// Directories lists the directories that have to exist before the layout is
// used.
func (l Layout) Directories() []string {
	dirs := make([]string, 0, 7)
	for _, d := range []string{"bin", "cache", "kept", "runs", "spool", "spool/marks", "spool/bell"} {
		dirs = append(dirs, filepath.Join(string(l), d))
	}
	return dirs
}

// Attempt is the directory of one attempt's records. Its methods are safe for
// use by several processes on several hosts.
type Attempt struct {
	// Dir is the absolute path of <shared>/spool/<uuid>/<attempt>.
	Dir string
}

// AttemptOf is the attempt whose specification this is.
func AttemptOf(specPath string) Attempt { return Attempt{Dir: filepath.Dir(specPath)} }

// Layout is the layout in which the attempt stands.
func (a Attempt) Layout() Layout { return Layout(filepath.Join(a.Dir, "..", "..", "..")) }

func (a Attempt) path(name string) string { return filepath.Join(a.Dir, name) }

// SpecPath is the path of the specification.
func (a Attempt) SpecPath() string { return a.path(specName) }

// OutputPath is where Slurm puts what the batch script prints.
func (a Attempt) OutputPath() string { return a.path(outputName) }

// DependenciesDir is the directory, inside the container, under which the
// dependencies of a bundle are seen.
func DependenciesDir(bundle string) string { return fmt.Sprintf("/%s_dependencies", bundle) }
