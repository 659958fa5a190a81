package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// fallbackTime is the default time of a queue where the partition has none.
const fallbackTime = time.Hour

// defaultTime returns the time limit of bundles that ask for none.
func (q queue) defaultTime() time.Duration {
	d := q.Partition.DefaultTime
	if d == 0 {
		d = fallbackTime
	}
	if q.Partition.MaxTime > 0 {
		d = min(d, q.Partition.MaxTime)
	}
	return d
}

// text returns the configuration file, with the comments of [config.Keys] and comments about the site.
func (d draft) text() string {
	var b tomlWriter
	b.line("# Written by cl-bridge init. docs/keys.md has all keys; cl-bridge doctor checks what is here.")
	b.text("server", d.Server)
	b.text("user", d.User)
	if d.TokenFile != "" {
		b.text("token_file", d.TokenFile)
	} else {
		b.text("password_file", d.PasswordFile)
	}
	b.text("shared", d.Shared)
	if len(d.Trust) > 0 {
		b.value("trust", tomlTexts(d.Trust))
	}
	if d.Ledger != "" {
		b.text("ledger", d.Ledger)
	}
	if d.LowWater != "" {
		b.text("low_water", d.LowWater)
	}
	if d.SlurmBin != "" || d.SlurmConf != "" {
		b.table("slurm", "")
		if d.SlurmBin != "" {
			b.text("bin", d.SlurmBin)
		}
		if d.SlurmConf != "" {
			b.text("conf", d.SlurmConf)
		}
	}
	for _, q := range d.Queues {
		q.write(&b)
	}
	for i, why := range d.LeftOut {
		if i == 0 {
			b.line("")
		}
		b.line("# Left out: " + termtext.Line(why))
	}
	return strings.Join(b.lines, "\n") + "\n"
}

func (q queue) write(b *tomlWriter) {
	b.table("queue."+q.Name, "cl run --request-queue "+q.Name)
	b.keys = "queue.NAME."
	b.text("partition", q.Partition.Name, nodes(q.Partition))
	if q.Default {
		b.value("default", "true")
	}
	if q.Account != "" {
		others := ""
		if len(q.Others) > 0 {
			others = "; you also have " + strings.Join(q.Others, ", ")
		}
		b.text("account", q.Account, others)
	}
	b.text("default_time", codalab.SpellDuration(q.defaultTime()))
	if q.Partition.MaxTime > 0 {
		b.text("max_time", codalab.SpellDuration(q.Partition.MaxTime))
	}
	switch kinds := slices.Sorted(maps.Keys(q.Partition.Most.GPUTypes)); len(kinds) {
	case 0:
	case 1:
		b.text("gres_type", kinds[0])
	default:
		b.line(`# gres_type = "…"  # a bundle gets any of the types ` + strings.Join(kinds, ", ") + "; where that matters, write a queue for each")
	}
}

// nodes returns the number of a partition's nodes and the resources of single ones, for people.
func nodes(p sbatch.Partition) string {
	said := termtext.Count(p.Nodes, "node")
	if p.Ready < p.Nodes {
		said += fmt.Sprintf(" (%d of them up)", p.Ready)
	}
	if len(p.Sizes) < 2 {
		return said + "; one has at most " + node(p.Most)
	}
	var sizes []string // no job gets the most of each resource where that is of different nodes
	for _, size := range p.Sizes {
		sizes = append(sizes, node(size))
	}
	return said + "; one has at most " + strings.Join(sizes, ", or ")
}

// node returns the resources of a node, for people.
func node(r sbatch.NodeResources) string {
	said := termtext.Count(r.CPUs, "CPU") + ", " + codalab.FormatSize(r.Memory) + " of memory"
	if r.GPUs > 0 {
		said += ", " + termtext.Count(r.GPUs, "GPU")
	}
	return said
}

// tomlWriter writes keys with a comment each.
type tomlWriter struct {
	lines []string
	keys  string // the tables of the keys that come, as [config.Keys] names them
}

func (b *tomlWriter) line(text string) { b.lines = append(b.lines, text) }

// table begins a table.
func (b *tomlWriter) table(name, comment string) {
	head := "[" + name + "]"
	if comment != "" {
		head += "  # " + comment
	}
	b.keys = name + "."
	b.lines = append(b.lines, "", head)
}

// text writes a key whose value is a text.
func (b *tomlWriter) text(key, value string, more ...string) {
	b.value(key, tomlText(value), more...)
}

// value writes a key with a value in TOML, the comment of the table of keys, and more of
// a comment.
func (b *tomlWriter) value(key, value string, more ...string) {
	comment := config.Comment(b.keys+key) + strings.Join(more, "")
	b.line(fmt.Sprintf("%s = %s  # %s", key, value, termtext.Line(comment)))
}

// tomlTexts returns a list of texts in TOML.
func tomlTexts(list []string) string {
	var quoted []string
	for _, s := range list {
		quoted = append(quoted, tomlText(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
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
