// Package trace records a bridge's decisions in a file, and replays them.
//
// A decision depends only on the policy, the clock, the row and the news (package plan). A Writer records
// all of these and the result. Replay makes each decision again and reports those with another result. The
// build that wrote the trace reproduces every result; a changed package plan shows the effects of the
// change. So a developer can follow a failure at a site step by step, and turn it into a test.
//
// # The file
//
// Each line is a JSON object with one key:
//
//	{"header": {...}}    the bridge that decides from here on: format, build, policy
//	{"decision": {...}}  now, row, news, next, and the kinds of the effects
//	{"lost": 12}         the number of decisions that could not be recorded here
//
// Decisions that only apply the usage of a running attempt, and change nothing, are not recorded.
//
// A restarted bridge continues the file with its own header. A bridge whose policy follows Slurm's settings
// adds a header with each change. When the file has half of the permitted size, the Writer renames it to
// FILE.1, replaces an older one, and begins a new file: so the two have the newest decisions. A reader skips
// a line that a crash cut short.
//
// The file has the bundles' commands and metadata, and must be as private as they are. It has no
// credentials, because no decision uses any.
package trace

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Format is the version of the file. A reader refuses other versions.
const Format = 3

// Header describes the bridge that made the decisions after it.
type Header struct {
	Format int `json:"format"`
	// Build is the version of the bridge.
	Build string `json:"build"`
	// Began is the start time of the bridge.
	Began  time.Time   `json:"began"`
	Policy plan.Policy `json:"policy"`
}

// record is a line; one of its fields is set.
type record struct {
	Header   *Header        `json:"header,omitempty"`
	Decision *plan.Decision `json:"decision,omitempty"`
	Lost     int            `json:"lost,omitempty"`
}
