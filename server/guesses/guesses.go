package guesses

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// Attempt is one try of a password, or a request for a mail.
type Attempt struct {
	// Name is the user's name, which need not exist.
	Name string
	// Network is that of the client's address (see Network).
	Network string
	// Device identifies the device or session that has proven itself; empty for none.
	Device string
	// Familiar is set if the user has signed in from the network before.
	Familiar bool
	// Mail is set for a request that sends a mail: Name is its recipient. It is never given back.
	Mail bool
}

// Known reports whether the client is no stranger.
func (a Attempt) Known() bool { return a.Device != "" || a.Familiar }

// rule is that of a kind of gate: it lets burst attempts pass, and another one after each interval every.
type rule struct {
	burst int
	every time.Duration
}

// span is the time after which a gate that was used up is fresh again.
func (r rule) span() time.Duration { return time.Duration(r.burst) * r.every }

const (
	// horizon is the longest time for which appointments are made.
	horizon = time.Hour
	// patience is the time after an appointment for which it is kept.
	patience = 5 * time.Minute
	// maxGates bounds the gates in memory.
	maxGates = 100_000
)

// gate counts the attempts that have passed it. A new one is fresh.
type gate struct {
	// fresh is the time at which all attempts of the burst are there again.
	fresh time.Time
	// appointments are those of parties that were not let in. tidied is the time at which those that were not kept
	// were dropped last.
	appointments map[string]time.Time
	tidied       time.Time
}

// passage is one gate on the way of an attempt.
type passage struct {
	key   string
	rule  rule
	party string
}

// way returns the gates that an attempt has to pass. A name's gates have the same rule for familiar clients and for
// strangers, so that a single guesser does not learn whether somebody has signed in from its network.
func (a Attempt) way() []passage {
	const minute = time.Minute
	switch {
	case a.Mail:
		return []passage{{"mails from " + a.Network, rule{20, minute}, a.Name}, {"mails to " + a.Name, rule{3, 20 * minute}, a.Network}}
	case a.Device != "":
		return []passage{{"device " + a.Name + " " + a.Device, rule{10, minute}, ""}}
	case a.Familiar:
		return []passage{{"familiar " + a.Name + " " + a.Network, rule{10, minute}, ""}}
	}
	return []passage{
		{"network " + a.Network, rule{50, 3 * time.Second}, a.Name},
		{"name " + a.Name, rule{10, minute}, a.Network},
	}
}

// Guesses has the gates. Its methods are safe for concurrent use.
type Guesses struct {
	mu    sync.Mutex
	gates map[string]*gate
	// swept is the time at which fresh gates were dropped last.
	swept time.Time
}

// New returns Guesses of which none has been made.
func New() *Guesses { return &Guesses{gates: map[string]*gate{}} }

// Try returns 0 if the attempt may be made now: then it counts as a wrong one, until Right says otherwise. Else it
// returns the time to wait. An attempt that comes back after that is let in.
func (g *Guesses) Try(a Attempt, now time.Time) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	way := a.way()
	if !g.hasRoom(way, now) {
		return horizon
	}
	at := now
	for _, p := range way {
		if at = latest(at, g.gate(p).turn(p, now)); at.Sub(now) > horizon {
			return horizon
		}
	}
	for _, p := range way {
		g.gate(p).enter(p, at, now)
	}
	return at.Sub(now)
}

// Right gives an attempt back, whose password was right.
func (g *Guesses) Right(a Attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range a.way() {
		if one := g.gates[p.key]; one != nil {
			one.fresh = one.fresh.Add(-p.rule.every)
		}
	}
}

func (g *Guesses) gate(p passage) *gate {
	one := g.gates[p.key]
	if one == nil {
		one = &gate{appointments: map[string]time.Time{}}
		g.gates[p.key] = one
	}
	return one
}

// turn returns the time of the party's appointment, or else the first time for which it can have one.
func (one *gate) turn(p passage, now time.Time) time.Time {
	one.tidy(p, now)
	if at, ok := one.appointments[p.party]; ok {
		return at
	}
	return latest(now, latest(one.fresh, now).Add(p.rule.every-p.rule.span()))
}

// enter lets the party in at a time; if that is later than now, it makes an appointment. An appointment that the
// party has already is used or moved.
func (one *gate) enter(p passage, at, now time.Time) {
	if _, ok := one.appointments[p.party]; !ok {
		one.fresh = latest(one.fresh, now).Add(p.rule.every)
	}
	delete(one.appointments, p.party)
	if at.After(now) {
		one.appointments[strings.Clone(p.party)] = at // the party may be a part of a large request
	}
}

// tidy drops the party's appointment if it was not kept, and at times those of all parties. A clock that was set
// back would keep the gate closed for as long, so tidy moves times that are too far ahead.
func (one *gate) tidy(p passage, now time.Time) {
	if most := now.Add(p.rule.span() + horizon); one.fresh.After(most) {
		one.fresh = now.Add(p.rule.span())
	}
	if at, ok := one.appointments[p.party]; ok && lost(at, now) {
		delete(one.appointments, p.party)
	}
	if since := now.Sub(one.tidied); since > patience || since < 0 {
		one.tidied = now
		one.dropLost(now)
	}
}

// lost reports whether an appointment was not kept, or is too far ahead.
func lost(at, now time.Time) bool { return now.Sub(at) > patience || at.Sub(now) > horizon }

// dropLost drops the appointments that are lost.
func (one *gate) dropLost(now time.Time) {
	maps.DeleteFunc(one.appointments, func(_ string, at time.Time) bool { return lost(at, now) })
}

// hasRoom reports whether there is memory for the gates of a way. When there is little, it drops the fresh gates. If
// that does not help, devices and familiar clients pass all the same: they have few gates.
func (g *Guesses) hasRoom(way []passage, now time.Time) bool {
	if len(g.gates) < maxGates {
		return true
	}
	if since := now.Sub(g.swept); since > time.Second || since < 0 {
		g.sweep(now)
	}
	if len(g.gates) < maxGates || len(way) == 1 {
		return true
	}
	for _, p := range way {
		if g.gates[p.key] == nil {
			return false
		}
	}
	return true
}

// sweep drops the gates that are fresh and have no appointments. Nobody tidies the gates of names that are never tried
// again, so it does that, too: else a guesser with a hundred thousand names would fill the memory for ever.
func (g *Guesses) sweep(now time.Time) {
	g.swept = now
	for key, one := range g.gates {
		one.dropLost(now)
		if !one.fresh.After(now) && len(one.appointments) == 0 {
			delete(g.gates, key)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
