package spool

import (
	"regexp"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// WorkingDirDisk decides on which disk a bundle's working directory lies while its command runs.
type WorkingDirDisk string

// The choices for WorkingDirDisk; empty means the first.
const (
	// WorkingDirShared is the run directory itself.
	WorkingDirShared WorkingDirDisk = "shared"
	// WorkingDirLocal is a directory on the node's own disk. The worker copies it to the run directory before
	// it writes the exit record. The output files are in the run directory from the start.
	WorkingDirLocal WorkingDirDisk = "local"
)

// CopyPrefix returns the beginning of the names of incomplete copies that the worker with this token makes
// at the top of a run directory; a dash and a number follow. A killed worker leaves such files, which are
// no results.
func CopyPrefix(token string) string { return copyPrefix + token }

const copyPrefix = ".copying-"

// copyName matches those names. The token makes an accidental match unlikely.
var copyName = lazyregexp.New(`^` + regexp.QuoteMeta(copyPrefix) + `[0-9a-f]{32}-[0-9]+$`)

// IsCopyName reports whether a path below a run directory is such a name.
func IsCopyName(below string) bool { return copyName().MatchString(below) }

// ResultsMode decides the place of a bundle's results.
type ResultsMode string

// The choices for ResultsMode; empty means the first.
const (
	// ResultsUpload sends them to the server.
	ResultsUpload ResultsMode = "upload"
	// ResultsKeep leaves them on the shared disk and sends a listing.
	ResultsKeep ResultsMode = "keep"
)

// MeasuredResults are what one listing of results showed.
type MeasuredResults struct {
	// Small means that they take seconds to collect.
	Small bool
	// Tiny means that one request may have them and those of other runs. They are small, too.
	Tiny bool
	// Details describe tiny ones: their size, and what is left out.
	Details string
}

// HeldResults are results that are larger than what is left of their owner's disk quota. They stay in their directory.
type HeldResults struct {
	// Size is their amount in words, such as "12g in 40 entries".
	Size string `json:"size"`
	// Left is what is left of the quota, in words; empty if the server does not tell.
	Left string `json:"left,omitempty"`
	// Dir is their directory.
	Dir string `json:"dir"`
	// Output is set if the server has the end of stdout and stderr.
	Output bool `json:"output,omitempty"`
}
