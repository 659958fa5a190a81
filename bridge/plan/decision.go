package plan

import "time"

// Decision is one call of Next with what came of it. Recorded ones are a trace:
// the same Policy decides each of them the same way again.
type Decision struct {
	Now  time.Time `json:"now"`
	Row  Row       `json:"row"`
	News News      `json:"news"`
	// Next and Effects are what Next returned; an effect's row is Next.
	Next    Row      `json:"next"`
	Effects []Effect `json:"effects,omitempty"`
}
