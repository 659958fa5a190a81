package spool

import "regexp"

// WorkDir says on which disk a bundle's working directory lies while its
// command runs.
type WorkDir string

// The choices for WorkDir; none is the first.
const (
	// WorkDirShared is the run directory itself.
	WorkDirShared WorkDir = "shared"
	// WorkDirLocal is a directory on the node's own disk. The worker copies it
	// to the run directory before it writes the exit record; of what the
	// command prints the run directory has the files from the start.
	WorkDirLocal WorkDir = "local"
)

// CopyPrefix begins the names of what the worker with this token is copying to
// the top of a run directory and what is not whole yet; a dash and a number follow. A
// worker that is killed leaves such files there, which are no results.
func CopyPrefix(token string) string { return copyPrefix + token }

const copyPrefix = ".copying-"

// copyName is the form of those names. Nobody's file meets the token by
// accident.
var copyName = regexp.MustCompile(`^` + regexp.QuoteMeta(copyPrefix) + `[0-9a-f]{32}-[0-9]+$`)

// IsCopyName says whether a path below a run directory is a name that begins
// with a CopyPrefix.
func IsCopyName(below string) bool { return copyName.MatchString(below) }

// Results says what becomes of what a bundle leaves.
type Results string

// The choices for Results; none is the first.
const (
	// ResultsUpload sends them to the server.
	ResultsUpload Results = "upload"
	// ResultsKeep leaves them on the shared disk and sends a listing.
	ResultsKeep Results = "keep"
)
