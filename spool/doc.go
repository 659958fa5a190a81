// Package spool is the records by which a bridge and the workers in its jobs
// communicate. They share only a disk, so each message is a small file:
//
//	<shared>/spool/<uuid>/<attempt>/
//	    spec.json     bridge → worker   what to run; written before sbatch
//	    started       worker or bridge  the attempt is taken (see Attempt.Begin)
//	    status.json   worker → bridge   stage and usage, replaced now and then
//	    exit.json     worker → bridge   how the attempt ended; written once
//	    slurm.out     Slurm → people    the output of the batch script
//	<shared>/spool/bell/                the doorbell (see Bell)
//	<shared>/runs/<uuid>/<attempt>/     the run directory: the bundle's working directory, or a copy of it (see WorkDir)
//	<shared>/kept/<uuid>/               results that stay on this disk (see Results)
//	<shared>/links/<uuid>.json          the fingerprints of a link's data
//	<shared>/images/                    records of images (see package staging/images)
//
// <attempt> is an AttemptName, the attempt's number and its bridge: a bridge whose ledger
// was lost has another id, and must not take what the last one left for its own.
//
// Worker and bridge both use Attempt and Layout; Disk is for the bridge.
//
// # Promises
//
// A reader sees a whole record or none: its writer writes a temporary file in the
// same directory, flushes it, and renames or links it. A record carries the token of
// the attempt's start. Readers ignore records of a process that lost the start.
//
// An attempt has at most one start, which never changes: that of the one worker
// that may run it, or that of a bridge that fenced it, after which no worker may.
// Package linkonce has the protocol.
//
// # Assumptions about the disk
//
// rename(2) and link(2) within one directory are atomic on the file server. A reader
// that opens a file sees what its writer flushed and closed before (NFS:
// close-to-open). The package does not assume that a failed call had no effect, that
// a listing is fresh, or that a file that is not found is missing. The directories of
// Layout.Directories are made once; if <shared>/spool is missing, the disk is not
// mounted.
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

// AttemptName names an attempt among those that all bridges make of a bundle. It is the
// name of the attempt's directories.
type AttemptName string

// NameAttempt names the attempt of a bridge with this number. bridge is the bridge's own
// id, of letters and digits.
func NameAttempt(number int, bridge string) AttemptName {
	return AttemptName(strconv.Itoa(number) + "-" + bridge)
}

// OldAttemptName is the name that earlier versions gave to an attempt of any bridge.
func OldAttemptName(number int) AttemptName { return AttemptName(strconv.Itoa(number)) }

// attemptName is the form of both.
var attemptName = regexp.MustCompile(`^[1-9][0-9]*(?:-([0-9A-Za-z]+))?$`)

// bridge returns the bridge in a name, which is empty in an old one. It is false for what
// is no name.
func (n AttemptName) bridge() (string, bool) {
	parts := attemptName.FindStringSubmatch(string(n))
	if parts == nil {
		return "", false
	}
	return parts[1], true
}

// Attempt is the directory of one attempt's records.
func (l Layout) Attempt(bundle string, name AttemptName) Attempt {
	return Attempt{Dir: filepath.Join(l.BundleDir(bundle), string(name))}
}

// BundleDir holds the attempts of a bundle.
func (l Layout) BundleDir(bundle string) string {
	return filepath.Join(l.spool(), bundle)
}

// RunDir holds the files of one attempt of a bundle: its working directory, or a
// copy of that (see WorkDir).
func (l Layout) RunDir(bundle string, name AttemptName) string {
	return filepath.Join(l.RunsDir(bundle), string(name))
}

// RunsDir holds the run directories of a bundle.
func (l Layout) RunsDir(bundle string) string { return filepath.Join(l.Runs(), bundle) }

// Runs holds the run directories of all bundles. If it is missing, the shared disk
// is not mounted.
func (l Layout) Runs() string { return filepath.Join(string(l), "runs") }

// marks is where earlier versions wrote a record for each submission.
func (l Layout) marks() string { return filepath.Join(l.spool(), "marks") }

// Bell is the layout's doorbell.
func (l Layout) Bell() Bell {
	return Bell{dir: filepath.Join(l.spool(), "bell")}
}

// BridgeDir has the bridge's lease of the layout, and what the bridge says of itself. The bridge
// makes it.
func (l Layout) BridgeDir() string { return filepath.Join(string(l), "bridge") }

// Cache is where dependencies and images are kept.
func (l Layout) Cache() string { return filepath.Join(string(l), "cache") }

// Link is the record of the fingerprints of a link bundle's data. Its directory is
// made with the first record.
func (l Layout) Link(bundle string) string {
	return filepath.Join(string(l), "links", bundle+".json")
}

// KeptImages has the records of kept images, ImageNames the names by which bundles
// asked for images, ImageFiles the digests of SIFs that are used in place. Each
// directory is made with its first record.
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
	BridgeName = "cl-bridge" // for jobs that convert images
)

func (l Layout) bin() string { return filepath.Join(string(l), "bin") }

func (l Layout) spool() string { return filepath.Join(string(l), "spool") }

// Directories lists the directories that have to exist before the layout is used.
func (l Layout) Directories() []string {
	dirs := make([]string, 0, 6)
	for _, d := range []string{"bin", "cache", "kept", "runs", "spool", "spool/bell"} {
		dirs = append(dirs, filepath.Join(string(l), d))
	}
	return dirs
}

// Attempt is the directory of one attempt's records. Several processes on several
// hosts may use it at once.
type Attempt struct {
	// Dir is the absolute path of <shared>/spool/<uuid>/<attempt>.
	Dir string
}

// AttemptOf returns the attempt of the specification at this path.
func AttemptOf(specPath string) Attempt { return Attempt{Dir: filepath.Dir(specPath)} }

// Name is the attempt's name.
func (a Attempt) Name() AttemptName { return AttemptName(filepath.Base(a.Dir)) }

// Layout is the layout that contains the attempt.
func (a Attempt) Layout() Layout { return Layout(filepath.Join(a.Dir, "..", "..", "..")) }

func (a Attempt) path(name string) string { return filepath.Join(a.Dir, name) }

// SpecPath is the path of the specification.
func (a Attempt) SpecPath() string { return a.path(specName) }

// OutputPath is the file to which Slurm writes the batch script's output.
func (a Attempt) OutputPath() string { return a.path(outputName) }

// DependenciesDir is the directory in the container that has the dependencies of a
// bundle.
func DependenciesDir(bundle string) string { return fmt.Sprintf("/%s_dependencies", bundle) }
