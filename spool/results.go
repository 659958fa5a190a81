package spool

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

// Results says what becomes of what a bundle leaves.
type Results string

// The choices for Results; none is the first.
const (
	// ResultsUpload sends them to the server.
	ResultsUpload Results = "upload"
	// ResultsKeep leaves them on the shared disk and sends a listing.
	ResultsKeep Results = "keep"
)
