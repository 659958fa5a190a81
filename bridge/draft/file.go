package draft

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// fallbackTime is the default time of a queue where the partition has none.
const fallbackTime = time.Hour

// defaultTime returns the time limit of bundles that ask for none.
func (q Queue) defaultTime() time.Duration {
	d := q.Partition.DefaultTime
	if d == 0 {
		d = fallbackTime
	}
	if q.Partition.MaxTime > 0 {
		d = min(d, q.Partition.MaxTime)
	}
	return d
}

// Text returns the configuration file, with a comment for each key.
func (d Draft) Text() string {
	var b tomlWriter
	b.line("# Written by cl-bridge init. docs/operators.md has all keys; cl-bridge doctor tries what is here.")
	b.value("server", d.Server, "the CodaLab server")
	b.value("user", d.User, "the bridge runs this user's bundles")
	b.value("password_file", d.PasswordFile, "only you may read it")
	b.value("shared", d.Shared, "this host and the compute nodes see it at the same path")
	if d.LowWater != "" {
		b.value("low_water", d.LowWater, "how much of that disk has to stay free")
	}
	if d.SlurmBin != "" || d.SlurmConf != "" || d.NoAccounting {
		b.line("")
		b.line("[slurm]")
		if d.SlurmBin != "" {
			b.value("bin", d.SlurmBin, "the directory of Slurm's commands")
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
		b.line("# Left out: " + oneLine(why))
	}
	return strings.Join(b.lines, "\n") + "\n"
}

func (q Queue) write(b *tomlWriter) {
	b.line("")
	b.line("[queue." + q.Name + "]  # cl run --request-queue " + q.Name)
	b.value("partition", q.Partition.Name, fmt.Sprintf("%d nodes; one has at most %s", q.Partition.Nodes, most(q.Partition.Most)))
	if q.Default {
		b.bare("default", "true", "takes bundles that name no queue")
	}
	if q.Account != "" {
		others := "Slurm charges this account"
		if len(q.Others) > 0 {
			others += "; you also have " + strings.Join(q.Others, ", ")
		}
		b.value("account", q.Account, others)
	}
	b.value("default_time", codalab.SpellDuration(q.defaultTime()), "for bundles that ask for no time")
	if q.Partition.MaxTime > 0 {
		b.value("max_time", codalab.SpellDuration(q.Partition.MaxTime), "no bundle may ask for more: the partition's limit")
	}
	switch kinds := slices.Sorted(maps.Keys(q.Partition.Most.GPUTypes)); len(kinds) {
	case 0:
	case 1:
		b.value("gres_type", kinds[0], "the type of GPUs that bundles get")
	default:
		b.line(`# gres_type = "…"  # a bundle gets any of the types ` + strings.Join(kinds, ", ") + "; where that matters, write a queue for each")
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

// tomlWriter writes keys with a comment each.
type tomlWriter struct{ lines []string }

func (b *tomlWriter) line(text string) { b.lines = append(b.lines, text) }

func (b *tomlWriter) value(key, value, comment string) { b.bare(key, tomlText(value), comment) }

func (b *tomlWriter) bare(key, value, comment string) {
	b.line(fmt.Sprintf("%s = %s  # %s", key, value, oneLine(comment)))
}

// oneLine returns a text of other programs without what may not stand in a comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
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
