package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// draft is a configuration that is about to be written.
type draft struct {
	Server, User, Shared string
	// One of these is empty.
	PasswordFile, TokenFile string
	// Trust is the value of the key trust.
	Trust []string
	// Ledger is empty where the usual place is on a disk of this host.
	Ledger string
	// SlurmBin and SlurmConf are empty where Slurm is in its usual places.
	SlurmBin, SlurmConf string
	// LowWater is empty for the default.
	LowWater string
	Queues   []queue
	// LeftOut has a sentence for each partition without a queue, with the reason.
	LeftOut []string
}

// choose makes the draft's queues: one for each of these partitions, which have to
// be among the usable ones. An error leaves the draft as it was.
func (d *draft) choose(usable []queue, partitions []string) error {
	var chosen []queue
	for i, name := range partitions {
		if slices.Contains(partitions[:i], name) {
			continue
		}
		at := slices.IndexFunc(usable, func(q queue) bool { return q.Partition.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no partition %q that you may use: there are %s", name, strings.Join(partitionsOf(usable), ", "))
		}
		q := usable[at]
		q.Name = queueName(name, chosen)
		chosen = append(chosen, q)
	}
	d.Queues = chosen
	return nil
}

// suggestDefault returns the partition for bundles that name no queue: Slurm's
// default one, if it has a queue, or else the first.
func (d *draft) suggestDefault() string {
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

// setDefault makes the queue of a partition the one for bundles that name none.
func (d *draft) setDefault(partition string) error {
	at := slices.IndexFunc(d.Queues, func(q queue) bool { return q.Partition.Name == partition })
	if at < 0 {
		return fmt.Errorf("there is no queue for a partition %q: there are %s", partition, strings.Join(partitionsOf(d.Queues), ", "))
	}
	d.Queues[at].Default = true
	return nil
}

// partitionsOf returns the names of the queues' partitions.
func partitionsOf(queues []queue) []string {
	var names []string
	for _, q := range queues {
		names = append(names, q.Partition.Name)
	}
	return names
}

// queueName makes the name of a partition's queue, one that is not taken.
func queueName(partition string, taken []queue) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-' // a dot would be part of a table's name
	}, partition)
	if !codalab.IsName(name) {
		name = "q-" + name
	}
	for slices.ContainsFunc(taken, func(q queue) bool { return q.Name == name }) {
		name += "-2"
	}
	return name
}
