package tickets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// Kind is a kind of ticket.
type Kind string

// The kinds.
const (
	Kerberos Kind = "kerberos"
	AFS      Kind = "afs"
)

// Ticket lets its holder in until it expires.
type Ticket struct {
	Kind Kind `json:"kind"`
	// Of is the principal of a ticket of Kerberos, or the cell of a token of AFS.
	Of string `json:"of"`
	// Cache is the place of the ticket, such as FILE:/tmp/krb5cc_1001. It is empty for a token of AFS.
	Cache   string    `json:"cache,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // zero: it has expired, at a time that is not known
	// RenewUntil is the end of the time in which kinit -R makes a new ticket of it; zero if it cannot be renewed.
	RenewUntil time.Time `json:"renew_until,omitzero"`
}

// Valid reports whether a ticket lets in at a time.
func (t Ticket) Valid(now time.Time) bool { return now.Before(t.Expires) }

// within bounds klist and tokens, which ask daemons of this host.
const within = 10 * time.Second

// Look returns the tickets of this process, at most one of each kind. env has KRB5CCNAME, if that is set. A host without
// the programs has no tickets.
func Look(ctx context.Context, env []string, now time.Time) []Ticket {
	var found []Ticket
	for _, way := range []struct {
		program string
		parse   func(string) (Ticket, error)
	}{
		{"klist", ParseKlist},
		{"tokens", func(text string) (Ticket, error) { return ParseTokens(text, now) }},
	} {
		ctx, cancel := context.WithTimeout(ctx, within)
		out, err := command.Command{Args: []string{way.program}, Env: append([]string{"LC_ALL=C", "TZ=UTC0", "PATH=/usr/bin:/bin:/usr/local/bin:/usr/heimdal/bin"}, env...)}.Output(ctx)
		cancel()
		if err != nil {
			continue // there is none, or no such program
		}
		if t, err := way.parse(string(out)); err == nil {
			found = append(found, t)
		}
	}
	return found
}

// ErrNone means that a text has no ticket.
var ErrNone = errors.New("there is no ticket")

// ticketLine matches the end of a line of klist about a ticket that gets others: the time of its end, and its name. Heimdal
// writes >>>Expired<<< as the end of an old one.
var ticketLine = lazyregexp.New(`(>>>Expired<<<|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}|\d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d|\S+ \d\d:\d\d:\d\d)\s+krbtgt/(\S+)$`)

// layouts are the forms of times in the language C (MIT src/lib/krb5/krb/str_conv.c, Heimdal kuser/klist.c).
func layouts() []string {
	return []string{"01/02/06 15:04:05", "01/02/2006 15:04:05", "Jan _2 15:04:05 2006", "02 Jan 2006 15:04:05"}
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range layouts() {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("cannot read the time %q", text)
}

// ParseKlist reads the output of klist in UTC. It returns the ticket of the principal's own realm, or the first one. An
// error means that there is none, or that it cannot be read.
func ParseKlist(text string) (Ticket, error) {
	t := Ticket{Kind: Kerberos}
	found, own := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "Ticket cache", "Credentials cache":
			t.Cache = value
		case "Default principal", "Principal":
			t.Of = value
		}
		if until, ok := strings.CutPrefix(strings.TrimSpace(line), "renew until "); ok && own {
			until, _, _ = strings.Cut(until, ",")
			if at, err := parseTime(until); err == nil {
				t.RenewUntil, own = at, false
			}
		}
		m := ticketLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		_, realm, _ := strings.Cut(t.Of, "@")
		if own = !found || m[2] == realm+"@"+realm; !own {
			continue
		}
		found, t.Expires, t.RenewUntil = true, time.Time{}, time.Time{}
		if m[1] == ">>>Expired<<<" {
			continue
		}
		at, err := parseTime(m[1])
		if err != nil {
			return Ticket{}, err
		}
		t.Expires = at
	}
	if !found {
		return Ticket{}, ErrNone
	}
	return t, nil
}

// tokenLine matches a line of tokens about one cell (OpenAFS src/log/tokens.c).
var tokenLine = lazyregexp.New(`[Tt]okens for \S*@(\S+) \[(?:Expires ([^\]]+)|>> Expired <<)\]`)

// ParseTokens reads the output of tokens in UTC, and returns the token that ends last. Its times have no year: a token
// lives for less than half of one.
func ParseTokens(text string, now time.Time) (Ticket, error) {
	t, found := Ticket{Kind: AFS}, false
	for _, m := range tokenLine().FindAllStringSubmatch(text, -1) {
		var expires time.Time
		if m[2] != "" {
			at, err := time.Parse("Jan _2 15:04 2006", fmt.Sprintf("%s %d", m[2], now.UTC().Year()))
			if err != nil {
				return Ticket{}, fmt.Errorf("cannot read the time %q", m[2])
			}
			if at.Before(now.AddDate(0, -6, 0)) {
				at = at.AddDate(1, 0, 0)
			}
			expires = at
		}
		if !found || expires.After(t.Expires) {
			found, t.Of, t.Expires = true, m[1], expires
		}
	}
	if !found {
		return Ticket{}, ErrNone
	}
	return t, nil
}
