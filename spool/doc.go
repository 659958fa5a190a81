// Package spool defines the records through which a bridge and the workers in its jobs communicate. They
// share only a disk, so each message is a small file:
//
//	<shared>/spool/<uuid>/<attempt>/
//	    spec.json     bridge → worker   the attempt's specification; written before sbatch
//	    started       worker or bridge  the attempt is taken (see Attempt.Begin)
//	    status.json   worker → bridge   stage and usage, replaced at intervals
//	    limit.json    bridge → worker   the job's time limit has changed; replaced with each change
//	    stop          bridge → worker   the member of a pack has to end; empty or absent until then (see Attempt.WriteStop)
//	    exit.json     worker → bridge   the attempt's end; written once
//	    slurm.out     Slurm → people    the output of the batch script
//	<shared>/spool/arrays/              the members of arrays and packs (see Members and Slot), and the output of their batch scripts
//	<shared>/spool/bell/                the doorbell (see Bell)
//	<shared>/spool/secrets/             values of secrets, from just before sbatch to the start of the attempt (see GiveSecrets)
//	<shared>/runs/<uuid>/<attempt>/     the run directory: the bundle's working directory, or a copy of it (see WorkingDirDisk)
//	<shared>/kept/<uuid>/               results that stay on this disk (see ResultsMode)
//	<shared>/links/<uuid>.json          the fingerprints of a link's data
//	<shared>/images/                    records of images (see package staging/images)
//
// <attempt> is an AttemptName, the attempt's number and its bridge. The bridge is part of it because a
// bridge whose ledger was lost has a new id, and must not take the old bridge's files for its own.
//
// Worker and bridge both use Attempt and Layout. Only the bridge uses Disk.
//
// # Promises
//
// A reader sees a whole record or none: the writer writes a temporary file in the same directory, flushes
// it, and renames or links it. A record carries the token of the attempt's start. Readers ignore records of
// a process that lost the start.
//
// An attempt has at most one start, which never changes: that of the only worker that may run it, or that
// of a bridge that fenced it, after which no worker may run it. Package linkonce has the protocol.
//
// # Assumptions about the disk
//
// rename(2) and link(2) within one directory are atomic on the file server. A reader that opens a file
// sees the content that its writer flushed and closed before (NFS: close-to-open). The package does not
// assume that a failed call had no effect, that a listing is fresh, or that a file that is not found does
// not exist. The directories of Layout.Directories are made once; if <shared>/spool is missing, the disk
// is not mounted.
package spool

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// Layout is the shared directory of a bridge. Its value is the directory's absolute path, which is the
// same on the login node and on compute nodes.
type Layout string

// AttemptName names an attempt among those that all bridges make of a bundle. The attempt's directories
// have this name.
type AttemptName string

// NameAttempt returns the name of a bridge's attempt with this number. bridge is the bridge's id, of
// letters and digits.
func NameAttempt(number int, bridge string) AttemptName {
	return AttemptName(strconv.Itoa(number) + "-" + bridge)
}

// attemptName matches the names of attempts.
var attemptName = lazyregexp.New(`^[1-9][0-9]*-([0-9A-Za-z]+)$`)

// bridge returns the bridge in a name. It returns false if n is not a name of an attempt.
func (n AttemptName) bridge() (string, bool) {
	parts := attemptName().FindStringSubmatch(string(n))
	if parts == nil {
		return "", false
	}
	return parts[1], true
}

// Number returns the number in a name; 0 if n is not a name of an attempt.
func (n AttemptName) Number() int {
	number, _, _ := strings.Cut(string(n), "-")
	i, err := strconv.Atoi(number)
	if err != nil || !attemptName().MatchString(string(n)) {
		return 0
	}
	return i
}

// Attempt returns the directory of one attempt's records.
func (l Layout) Attempt(bundle string, name AttemptName) Attempt {
	return Attempt{Dir: filepath.Join(l.BundleDir(bundle), string(name))}
}

// BundleDir returns the directory of a bundle's attempts.
func (l Layout) BundleDir(bundle string) string {
	return filepath.Join(l.spool(), bundle)
}

// RunDir returns the directory of the files of one attempt of a bundle: its working directory, or a copy of
// that (see WorkingDirDisk).
func (l Layout) RunDir(bundle string, name AttemptName) string {
	return filepath.Join(l.RunsDir(bundle), string(name))
}

// RunsDir returns the directory of a bundle's run directories.
func (l Layout) RunsDir(bundle string) string { return filepath.Join(l.Runs(), bundle) }

// Runs returns the directory of the run directories of all bundles. If it is missing, the shared disk is
// not mounted.
func (l Layout) Runs() string { return filepath.Join(string(l), "runs") }

// Bell returns the layout's doorbell.
func (l Layout) Bell() Bell {
	return Bell{dir: filepath.Join(l.spool(), "bell")}
}

// BridgeDir returns the directory of the bridge's lease and of the bridge's heartbeat. The bridge makes it.
func (l Layout) BridgeDir() string { return filepath.Join(string(l), "bridge") }

// DrainDir returns the directory of the operators' orders to take no new bundles (package drain). The first order
// makes it.
func (l Layout) DrainDir() string { return filepath.Join(string(l), "drain") }

// Cache returns the directory of dependencies and images.
func (l Layout) Cache() string { return filepath.Join(string(l), "cache") }

// Link returns the path of the record of the fingerprints of a link bundle's data. The first record makes
// its directory.
func (l Layout) Link(bundle string) string {
	return filepath.Join(string(l), "links", bundle+".json")
}

// KeptImages returns the directory with the records of kept images, ImageReferences that with the references
// by which bundles requested images, SIFDigests that with the digests of SIFs that are used in place. The first
// record makes each directory.
func (l Layout) KeptImages() string { return filepath.Join(l.images(), "kept") }

// ImageReferences is described with KeptImages.
func (l Layout) ImageReferences() string { return filepath.Join(l.images(), "names") }

// SIFDigests is described with KeptImages.
func (l Layout) SIFDigests() string { return filepath.Join(l.images(), "files") }

func (l Layout) images() string { return filepath.Join(string(l), "images") }

// Bin returns the directory of the worker program whose content has this digest (lower-case hexadecimal
// SHA-256).
func (l Layout) Bin(digest string) string {
	return filepath.Join(l.bin(), digest[:min(12, len(digest))])
}

// binName matches the names that Layout.Bin gives to SHA-256 digests.
var binName = lazyregexp.New(`^[0-9a-f]{12}$`)

// The names of programs in Layout.Bin.
const (
	WorkerName = "cl-worker" // cl-worker-node, or cl-worker itself
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

// Name returns the attempt's name.
func (a Attempt) Name() AttemptName { return AttemptName(filepath.Base(a.Dir)) }

// Layout returns the layout that contains the attempt.
func (a Attempt) Layout() Layout { return Layout(filepath.Join(a.Dir, "..", "..", "..")) }

func (a Attempt) path(name string) string { return filepath.Join(a.Dir, name) }

// SpecPath returns the path of the specification.
func (a Attempt) SpecPath() string { return a.path(specName) }

// OutputPath returns the path of the file to which Slurm writes the batch script's output. The workers of arrays and packs write there
// themselves, because their members share the job's output.
func (a Attempt) OutputPath() string { return a.path(outputName) }

// DependenciesDir returns the directory in the container that has the dependencies of a bundle.
func DependenciesDir(bundle string) string { return fmt.Sprintf("/%s_dependencies", bundle) }
