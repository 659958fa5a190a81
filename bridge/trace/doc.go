// Package trace keeps a bridge's decisions in a file, and decides them again.
//
// A decision depends on nothing but the policy, the clock, the row and the
// news (package plan). A Writer notes all of these, and what came of them;
// Replay decides each one again and says which come out differently: after a
// change of package plan these are what the change changed, and with the build
// that wrote the trace there is none. So what went wrong at a site can be
// looked at step by step, and becomes a test.
//
// # The file
//
// Each line is a JSON object with one key:
//
//	{"header": {...}}    who decides from here on: format, build, policy
//	{"decision": {...}}  now, row, news, next, and the kinds of the effects
//	{"lost": 12}         that many decisions could not be noted here
//
// Decisions that only take a running attempt's usage in, and change nothing, are
// not in it.
//
// A bridge that is started again goes on in the same file, with a header of its
// own. When the file has half of the size that it may have, it is renamed to
// FILE.1, in the place of the last one of that name, and begun anew: so the
// two have the newest decisions. A line that a crash has torn is left out.
//
// The commands of bundles, and their metadata, are in it: it is as private as
// they are. Credentials are not, as no decision knows of any.
package trace

import (
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Format is the version of the file. A reader refuses another one.
const Format = 1

// Header says who took the decisions after it.
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
	Header   *Header   `json:"header,omitempty"`
	Decision *decision `json:"decision,omitempty"`
	Lost     int       `json:"lost,omitempty"`
}

// decision is a plan.Decision as it is written: an effect's row is Next.
type decision struct {
	Now     time.Time   `json:"now"`
	Row     plan.Row    `json:"row"`
	News    plan.News   `json:"news"`
	Next    plan.Row    `json:"next"`
	Effects []plan.Kind `json:"effects,omitempty"`
}

func kindsOf(effects []plan.Effect) []plan.Kind {
	var kinds []plan.Kind
	for _, e := range effects {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
