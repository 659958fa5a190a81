package plan

import (
	"slices"
	"strings"
)

// Billing decides which account, QOS and so on Slurm gives a job. An empty field leaves that to the queue.
type Billing struct {
	Account     string `json:",omitempty"`
	QOS         string `json:",omitempty"`
	WCKey       string `json:",omitempty"`
	Reservation string `json:",omitempty"`
	// Nice lowers the priority by this much; nil leaves it to the queue.
	Nice *int64 `json:",omitempty"`
}

// Mapping is an entry of the site's table of owners. The first entry of the table that fits a bundle's queue and owner
// counts, and no other. A bundle that no entry fits is the queue's.
type Mapping struct {
	// Queues names the queues of the entry; empty for all.
	Queues []string `json:",omitempty"`
	// Users lists names and ids of users at the CodaLab server, or "*" for everybody. Groups lists names of groups.
	Users  []string `json:",omitempty"`
	Groups []string `json:",omitempty"`
	Billing
	// Refuse is the sentence for owners whose bundles the queue does not run; empty if it runs them.
	Refuse string `json:",omitempty"`
}

// fits reports whether the entry is about a row.
func (m Mapping) fits(r Row) bool {
	if len(m.Queues) > 0 && !slices.Contains(m.Queues, r.Queue) {
		return false
	}
	run := r.run()
	isOwner := func(user string) bool {
		return user == "*" || user == run.OwnerID || user == run.OwnerName && user != ""
	}
	isTheirs := func(group string) bool { return slices.Contains(run.OwnerGroups, group) }
	return slices.ContainsFunc(m.Users, isOwner) || slices.ContainsFunc(m.Groups, isTheirs)
}

// mapping returns the entry that counts for a row; an empty one if none does.
func (p Policy) mapping(r Row) Mapping {
	if i := slices.IndexFunc(p.Map, func(m Mapping) bool { return m.fits(r) }); i >= 0 {
		return p.Map[i]
	}
	return Mapping{}
}

// Billed returns the queue with the account, QOS and so on of a billing.
func (q Queue) Billed(c Billing) Queue {
	for _, part := range []struct {
		own   *string
		other string
	}{{&q.Account, c.Account}, {&q.QOS, c.QOS}, {&q.WCKey, c.WCKey}, {&q.Reservation, c.Reservation}} {
		if part.other != "" {
			*part.own = part.other
		}
	}
	if c.Nice != nil {
		q.Nice = *c.Nice
	}
	return q
}

// String lists the parts of the billing, for operators.
func (c Billing) String() string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"account", c.Account}, {"QOS", c.QOS}, {"wckey", c.WCKey}, {"reservation", c.Reservation},
	} {
		if part.value != "" {
			parts = append(parts, part.name+" "+part.value)
		}
	}
	return strings.Join(parts, ", ")
}

// billing returns what the site's table gives a row's owner; nothing if the row is the queue's.
func (p Policy) billing(r Row) Billing { return p.mapping(r).Billing }
