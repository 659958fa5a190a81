package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Mapping is a table [[map]]: it decides by their owners which account and so on bundles' jobs have.
type Mapping struct {
	Users       []string `toml:"users"`
	Groups      []string `toml:"groups"`
	Queues      []string `toml:"queues"`
	Account     string   `toml:"account"`
	QOS         string   `toml:"qos"`
	WCKey       string   `toml:"wckey"`
	Reservation string   `toml:"reservation"`
	Nice        *int     `toml:"nice"`
	Refuse      string   `toml:"refuse"`
}

// Plan returns the entry as package plan knows it.
func (m Mapping) Plan() plan.Mapping {
	charge := plan.Billing{Account: m.Account, QOS: m.QOS, WCKey: m.WCKey, Reservation: m.Reservation}
	if m.Nice != nil {
		nice := int64(*m.Nice)
		charge.Nice = &nice
	}
	return plan.Mapping{Users: m.Users, Groups: m.Groups, Queues: m.Queues, Billing: charge, Refuse: strings.TrimSpace(m.Refuse)}
}

// String is the entry in one line: its owners, with an @ before groups, its queues, and what it gives them.
func (m Mapping) String() string {
	owners := slices.Clone(m.Users)
	for _, g := range m.Groups {
		owners = append(owners, "@"+g)
	}
	text := strings.Join(owners, ", ")
	if len(m.Queues) > 0 {
		text += " in " + strings.Join(m.Queues, ", ")
	}
	if m.Refuse != "" {
		return text + ": refused"
	}
	var given []string
	for _, part := range []struct{ key, value string }{{"account", m.Account}, {"qos", m.QOS}, {"wckey", m.WCKey}, {"reservation", m.Reservation}} {
		if part.value != "" {
			given = append(given, part.key+" "+part.value)
		}
	}
	if m.Nice != nil {
		given = append(given, "nice "+strconv.Itoa(*m.Nice))
	}
	return text + ": " + cmp.Or(strings.Join(given, ", "), "the queue's")
}

// Mappings returns the tables [[map]] in their order.
func (c Config) Mappings() []plan.Mapping {
	var all []plan.Mapping
	for _, m := range c.Map {
		all = append(all, m.Plan())
	}
	return all
}

// MappingKey returns the name of a key of the table [[map]] with this index, for people, who count from 1.
func MappingKey(i int, key string) string { return fmt.Sprintf("map.%d.%s", i+1, key) }

// checkMappings refuses entries that say nothing of anybody, contradict themselves, or never count.
func (c Config) checkMappings() error {
	var errs []error
	for i, m := range c.Map {
		if err := c.checkMapping(m, c.Map[:i]); err != nil {
			errs = append(errs, fmt.Errorf("[[map]] %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkMapping(m Mapping, before []Mapping) error {
	for _, names := range [][]string{m.Users, m.Groups} {
		if slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			return errors.New("users or groups has an empty name")
		}
	}
	switch p := m.Plan(); {
	case len(m.Users)+len(m.Groups) == 0:
		return errors.New("it is about nobody: write users or groups, or users = [\"*\"] for everybody")
	case slices.Contains(m.Groups, "*"):
		return errors.New("groups has \"*\": write users = [\"*\"] for everybody")
	case p.Refuse != "" && p.Billing != (plan.Billing{}):
		return errors.New("refuse is there, and so no job gets its account, qos, wckey, reservation or nice: leave one or the other out")
	case m.Refuse != "" && p.Refuse == "":
		return errors.New("refuse is empty: write the sentence that such an owner reads")
	case m.Nice != nil && (*m.Nice < 0 || *m.Nice > plan.MaxNice):
		return fmt.Errorf("nice = %d: want a number from 0 to %d", *m.Nice, plan.MaxNice)
	}
	for _, q := range m.Queues {
		if c.Queue[q] == nil {
			return fmt.Errorf("queues: there is no [queue.%s]", q)
		}
	}
	for name, q := range c.Queue {
		if m.Nice != nil && q.hasNiceOption() && (len(m.Queues) == 0 || slices.Contains(m.Queues, name)) {
			return fmt.Errorf("nice has no effect in [queue.%s], whose sbatch_options have --nice: write that one as the queue's nice", name)
		}
	}
	for i, other := range before {
		if slices.Contains(other.Users, "*") && (len(other.Queues) == 0 || len(m.Queues) > 0 && within(m.Queues, other.Queues)) {
			return fmt.Errorf("it never counts, because [[map]] %d before it is for everybody: write it before that one", i+1)
		}
	}
	return nil
}

// hasNiceOption reports whether the queue's options of sbatch have the option that overrides the keys nice.
func (q Queue) hasNiceOption() bool {
	return slices.ContainsFunc(q.SbatchOptions, func(o SbatchOption) bool { return o.Text == "--nice" || strings.HasPrefix(o.Text, "--nice=") })
}

// within reports whether all elements of some are among others.
func within(some, others []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(others, s) })
}
