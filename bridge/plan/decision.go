package plan

import "time"

// Decision is one call of Next with its result. A trace is made of them: the same Policy makes
// each decision again.
type Decision struct {
	Now  time.Time `json:"now"`
	Row  Row       `json:"row"`
	News News      `json:"news"`
	// Next and Effects are what Next returned; an effect's row is Next.
	Next    Row      `json:"next"`
	Effects []Effect `json:"effects,omitempty"`
}
