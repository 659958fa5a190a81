package draft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Draft is a configuration that is about to be written.
type Draft struct {
	Server, User, PasswordFile, Shared string
	// SlurmBin and SlurmConf are empty where Slurm is in its usual places.
	SlurmBin, SlurmConf string
	// NoAccounting is set where sacct does not work.
	NoAccounting bool
	// LowWater is empty for the default.
	LowWater string
	Queues   []Queue
	// LeftOut says why partitions have no queue.
	LeftOut []string
}

// Choose makes the draft's queues: one for each of these partitions, which have to
// be among the usable ones. An error leaves the draft as it was.
func (d *Draft) Choose(usable []Queue, partitions []string) error {
	var chosen []Queue
	for i, name := range partitions {
		if slices.Contains(partitions[:i], name) {
			continue
		}
		at := slices.IndexFunc(usable, func(q Queue) bool { return q.Partition.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no partition %q that you may use: there are %s", name, strings.Join(Partitions(usable), ", "))
		}
		q := usable[at]
		q.Name = queueName(name, chosen)
		chosen = append(chosen, q)
	}
	d.Queues = chosen
	return nil
}

// SuggestDefault returns the partition for bundles that name no queue: Slurm's
// default one, if it has a queue, or else the first.
func (d *Draft) SuggestDefault() string {
	for _, q := range d.Queues {
		if q.Partition.Default {
			return q.Partition.Name
		}
	}
	if len(d.Queues) == 0 {
		return ""
	}
	return d.Queues[0].Partition.Name
}

// SetDefault makes the queue of a partition the one for bundles that name none.
func (d *Draft) SetDefault(partition string) error {
	at := slices.IndexFunc(d.Queues, func(q Queue) bool { return q.Partition.Name == partition })
	if at < 0 {
		return fmt.Errorf("there is no queue for a partition %q: there are %s", partition, strings.Join(Partitions(d.Queues), ", "))
	}
	d.Queues[at].Default = true
	return nil
}

// Names returns the names of the draft's queues.
func (d *Draft) Names() []string {
	return texts(d.Queues, func(q Queue) string { return q.Name })
}

// Partitions returns the names of the queues' partitions.
func Partitions(queues []Queue) []string {
	return texts(queues, func(q Queue) string { return q.Partition.Name })
}

func texts(queues []Queue, text func(Queue) string) []string {
	var all []string
	for _, q := range queues {
		all = append(all, text(q))
	}
	return all
}

// queueName makes a queue's name, which nothing has yet, of a partition's.
func queueName(partition string, taken []Queue) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-' // a dot would be part of a table's name
	}, partition)
	if !codalab.IsName(name) {
		name = "q-" + name
	}
	for slices.ContainsFunc(taken, func(q Queue) bool { return q.Name == name }) {
		name += "-2"
	}
	return name
}
