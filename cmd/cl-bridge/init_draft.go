package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// draft is a configuration that init is about to write.
type draft struct {
	Server, User, PasswordFile, Shared string
	// SlurmBin and SlurmConf are written where Slurm is not in its usual places.
	SlurmBin, SlurmConf string
	NoAccounting        bool
	LowWater            string
	Queues              []draftQueue
	// LeftOut says of partitions why there is no queue for them.
	LeftOut []string
}

// draftQueue is a queue for one partition.
type draftQueue struct {
	Name      string
	Partition sbatch.Partition
	Account   string
	Others    []string // accounts that would do as well
	Default   bool
}

// fallbackTime is the time of a job that asks for none, in a partition that has no
// default of its own.
const fallbackTime = time.Hour

// defaultTime is the time of a bundle that asks for none.
func (q draftQueue) defaultTime() time.Duration {
	d := q.Partition.DefaultTime
	if d == 0 {
		d = fallbackTime
	}
	if q.Partition.MaxTime > 0 {
		d = min(d, q.Partition.MaxTime)
	}
	return d
}

// gresType is the one type of GPUs that the partition has; empty where there are
// several, or none is told.
func (q draftQueue) gresType() string {
	if len(q.Partition.Most.GPUTypes) != 1 {
		return ""
	}
	for kind := range q.Partition.Most.GPUTypes {
		return kind
	}
	return ""
}

// text is the file's.
func (d draft) text() string {
	var b tomlWriter
	b.line("# Written by cl-bridge init. docs/operators.md has all keys; cl-bridge doctor tries what is here.")
	b.value("server", d.Server, "the CodaLab server")
	b.value("user", d.User, "whose bundles the bridge runs")
	b.value("password_file", d.PasswordFile, "only you may read it")
	b.value("shared", d.Shared, "this host and the compute nodes see it at the same path")
	if d.LowWater != "" {
		b.value("low_water", d.LowWater, "how much of that disk has to stay free")
	}
	if d.SlurmBin != "" || d.SlurmConf != "" || d.NoAccounting {
		b.line("")
		b.line("[slurm]")
		if d.SlurmBin != "" {
			b.value("bin", d.SlurmBin, "where Slurm's commands are")
		}
		if d.SlurmConf != "" {
			b.value("conf", d.SlurmConf, "where slurm.conf is")
		}
		if d.NoAccounting {
			b.bare("accounting", "false", "sacct did not answer")
		}
	}
	for _, q := range d.Queues {
		q.write(&b)
	}
	for i, why := range d.LeftOut {
		if i == 0 {
			b.line("")
		}
		b.line("# Left out: " + line(why))
	}
	return strings.Join(b.lines, "\n") + "\n"
}

func (q draftQueue) write(b *tomlWriter) {
	b.line("")
	b.line("[queue." + q.Name + "]  # cl run --request-queue " + q.Name)
	b.value("partition", q.Partition.Name, fmt.Sprintf("%d nodes; one has at most %s", q.Partition.Nodes, most(q.Partition.Most)))
	if q.Default {
		b.bare("default", "true", "takes what names no queue")
	}
	if q.Account != "" {
		others := "whom jobs are charged to"
		if len(q.Others) > 0 {
			others += "; you also have " + strings.Join(q.Others, ", ")
		}
		b.value("account", q.Account, others)
	}
	b.value("default_time", codalab.SpellDuration(q.defaultTime()), "of who asks for no time")
	if q.Partition.MaxTime > 0 {
		b.value("max_time", codalab.SpellDuration(q.Partition.MaxTime), "the most that may be asked for: the partition's limit")
	}
	switch kind := q.gresType(); {
	case kind != "":
		b.value("gres_type", kind, "of the GPUs that runs get")
	case len(q.Partition.Most.GPUTypes) > 1:
		b.line(`# gres_type = "…"  # a run gets any of the types ` + strings.Join(gpuTypes(q.Partition.Most), ", ") + "; write a queue for each where that matters")
	}
}

// most says what a node has.
func most(r sbatch.NodeResources) string {
	said := fmt.Sprintf("%d CPUs, %s of memory", r.CPUs, codalab.FormatSize(r.Memory))
	if r.GPUs > 0 {
		said += fmt.Sprintf(", %d GPUs", r.GPUs)
	}
	return said
}

func gpuTypes(r sbatch.NodeResources) []string {
	var kinds []string
	for kind := range r.GPUTypes {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// tomlWriter writes keys with a comment each.
type tomlWriter struct{ lines []string }

func (b *tomlWriter) line(text string) { b.lines = append(b.lines, text) }

func (b *tomlWriter) value(key, value, comment string) { b.bare(key, tomlText(value), comment) }

func (b *tomlWriter) bare(key, value, comment string) {
	b.line(fmt.Sprintf("%s = %s  # %s", key, value, line(comment)))
}

// tomlText quotes a text as TOML's basic string.
func tomlText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// queueName makes a queue's name of a partition's.
func queueName(partition string, taken []draftQueue) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-' // a dot would be part of a table's name
	}, partition)
	if !codalab.IsName(name) {
		name = "q-" + name
	}
	for slices.ContainsFunc(taken, func(q draftQueue) bool { return q.Name == name }) {
		name += "-2"
	}
	return name
}
