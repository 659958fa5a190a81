// Package trace keeps a bridge's decisions in a file, and makes them again.
//
// A decision depends only on the policy, the clock, the row and the news (package plan). A Writer
// records all of these and the result. Replay makes each decision again and reports those with
// another result. With the build that wrote the trace there is none; after a change of package
// plan these are the effects of the change. So a failure at a site can be followed step by step,
// and becomes a test.
//
// # The file
//
// Each line is a JSON object with one key:
//
//	{"header": {...}}    the bridge that decides from here on: format, build, policy
//	{"decision": {...}}  now, row, news, next, and the kinds of the effects
//	{"lost": 12}         that many decisions could not be recorded here
//
// Decisions that only apply the usage of a running attempt, and change nothing, are not recorded.
//
// A restarted bridge continues the file with a header of its own, and one whose policy follows Slurm's
// settings with another header. When the file has half of the
// permitted size, it is renamed to FILE.1, replacing an older one, and a new file begins: so the
// two have the newest decisions. A reader skips a line that a crash has torn.
//
// The file has the bundles' commands and metadata, and is as private as they are. It has no
// credentials, since no decision knows of any.
package trace

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Format is the version of the file. A reader refuses another one.
const Format = 2

// Header describes the bridge that made the decisions after it.
type Header struct {
	Format int `json:"format"`
	// Build is the version of the bridge.
	Build string `json:"build"`
	// Began is when the bridge was started.
	Began  time.Time   `json:"began"`
	Policy plan.Policy `json:"policy"`
}

// record is a line; one of its fields is set.
type record struct {
	Header   *Header        `json:"header,omitempty"`
	Decision *plan.Decision `json:"decision,omitempty"`
	Lost     int            `json:"lost,omitempty"`
}
