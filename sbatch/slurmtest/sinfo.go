package slurmtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var sinfoOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"all", 'a', false},
	{"Node", 'N', false},
	{"exact", 'e', false},
	{"format", 'o', true},
	{"local", 0, false},
	{"noheader", 'h', false},
	{"nodes", 'n', true},
	{"partition", 'p', true},

	{"Format", 'O', true},
	{"json", 0, false},
	{"long", 'l', false},
	{"states", 't', true},
	{"summarize", 's', false},
}

// sinfoFields are the fields of sinfo(1)'s --format that are modelled, with
// their headings.
var sinfoFields = map[byte]string{ //nolint:gochecknoglobals // a table, never written
	'P': "PARTITION", 'R': "PARTITION", 'a': "AVAIL", 'l': "TIMELIMIT", 'L': "DEFAULTTIME", 'B': "MAX_CPUS_PER_NODE",
	'D': "NODES", 'F': "NODES(A/I/O/T)", 'T': "STATE", 't': "STATE", 'N': "NODELIST",
	'c': "CPUS", 'm': "MEMORY", 'G': "GRES", 'f': "AVAIL_FEATURES",
}

// group is one line of sinfo's: nodes of a partition that are alike in what is
// printed of them.
type group struct {
	partition *Partition
	nodes     []*node
}

// query is what sinfo is asked.
type query struct {
	all, each, bare, exact bool
	nodes, partitions      []string
	fields                 []field
}

func sinfoQuery(args []string) (query, error) {
	var q query
	format := "%9P %.5a %.10l %.6D %.6t %N"
	rest, err := scan("sinfo", sinfoOptions, args, func(option, value string) error {
		switch option {
		case "all":
			q.all = true
		case "Node":
			q.each = true
		case "exact":
			q.exact = true
		case "local": // there is no other cluster
		case "format":
			format = value
		case "noheader":
			q.bare = true
		case "nodes":
			q.nodes = strings.Split(value, ",")
		case "partition":
			q.partitions = strings.Split(value, ",")
		default:
			return &UnmodelledError{What: "sinfo --" + option}
		}
		return nil
	})
	if err == nil && len(rest) > 0 {
		err = &UnmodelledError{What: "sinfo " + rest[0]}
	}
	if err != nil {
		return query{}, err
	}
	q.fields, err = parseFormat("sinfo", format, sinfoFields)
	return q, err
}

func (k *Cluster) sinfo(c call) (string, error) {
	q, err := sinfoQuery(c.Args)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if !q.bare {
		for _, f := range q.fields {
			f.print(&out, sinfoFields[f.letter])
		}
		out.WriteString("\n")
	}
	k.Do(func(_ time.Time, m *Controller) {
		if m.stopped {
			err = fail(1, "slurm_load_partitions: "+away)
			return
		}
		for i := range m.partitions {
			p := &m.partitions[i]
			if !q.all && p.Hidden || q.partitions != nil && !slices.Contains(q.partitions, p.Name) {
				continue
			}
			for _, g := range m.groups(p, q) {
				for _, f := range q.fields {
					f.print(&out, g.field(f.letter))
				}
				out.WriteString("\n")
			}
		}
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// groups returns the nodes of a partition that are asked for: each alone, or together
// those that print alike. A partition without nodes has a line too.
func (c *Controller) groups(p *Partition, q query) []group {
	var all []group
	for _, name := range p.Nodes {
		n := c.node(name)
		if n == nil || q.nodes != nil && !slices.Contains(q.nodes, name) {
			continue
		}
		at := slices.IndexFunc(all, func(g group) bool { return q.alike(g.nodes[0], n) })
		if at < 0 || q.each {
			all = append(all, group{p, []*node{n}})
		} else {
			all[at].nodes = append(all[at].nodes, n)
		}
	}
	if len(p.Nodes) == 0 && !q.each && q.nodes == nil {
		return []group{{p, nil}}
	}
	return all
}

// alike says whether two nodes share a line. CPUs and memory tell them apart only
// with --exact.
func (q query) alike(a, b *node) bool {
	for _, f := range q.fields {
		switch f.letter {
		case 'c', 'm':
			if !q.exact {
				continue
			}
		case 'T', 't', 'G', 'f':
		default:
			continue
		}
		if a.field(f.letter) != b.field(f.letter) {
			return false
		}
	}
	return true
}

// state is a node's, as sinfo prints it.
func (n *node) state() string {
	busy := n.freeCPUs < n.CPUs
	switch {
	case n.down:
		return "down"
	case n.drained && busy:
		return "draining"
	case n.drained:
		return "drained"
	case n.freeCPUs == 0:
		return "allocated"
	case busy:
		return "mixed"
	}
	return "idle"
}

func (g group) field(letter byte) string {
	p := g.partition
	switch letter {
	case 'P':
		if p.Default {
			return p.Name + "*"
		}
		return p.Name
	case 'R':
		return p.Name
	case 'a':
		if s := strings.ToLower(p.State); s != "" {
			return s
		}
		return "up"
	case 'l':
		return limitOr(p.MaxTime, "infinite")
	case 'L':
		return limitOr(p.DefaultTime, "n/a")
	case 'B':
		return "UNLIMITED"
	case 'D':
		return strconv.Itoa(len(g.nodes))
	case 'F':
		return g.byState()
	case 'N':
		names := make([]string, 0, len(g.nodes))
		for _, n := range g.nodes {
			names = append(names, n.Name)
		}
		return nodeList(names)
	}
	if len(g.nodes) == 0 {
		return map[byte]string{'c': "0", 'm': "0", 'G': "(null)", 'f': "(null)", 'T': "n/a", 't': "n/a"}[letter]
	}
	first := g.nodes[0].field(letter)
	if letter == 'c' || letter == 'm' {
		for _, n := range g.nodes {
			if n.field(letter) != first { // a + after the least amount says that others have more
				return g.least(letter) + "+"
			}
		}
	}
	return first
}

func limitOr(d time.Duration, none string) string {
	if d == 0 {
		return none
	}
	return span(d)
}

// byState counts the nodes: allocated, idle, others, all.
func (g group) byState() string {
	var allocated, idle int
	for _, n := range g.nodes {
		switch n.state() {
		case "idle":
			idle++
		case "allocated", "mixed":
			allocated++
		}
	}
	return fmt.Sprintf("%d/%d/%d/%d", allocated, idle, len(g.nodes)-allocated-idle, len(g.nodes))
}

// least returns the least number of CPUs or of mebibytes.
func (g group) least(letter byte) string {
	n := slices.MinFunc(g.nodes, func(a, b *node) int {
		if letter == 'c' {
			return cmp.Compare(a.CPUs, b.CPUs)
		}
		return cmp.Compare(a.MemoryMiB, b.MemoryMiB)
	})
	return n.field(letter)
}

// field returns what sinfo prints of a node.
func (n *node) field(letter byte) string {
	switch letter {
	case 'T':
		return n.state()
	case 't':
		short := map[string]string{"allocated": "alloc", "mixed": "mix", "draining": "drng", "drained": "drain"}
		if s := short[n.state()]; s != "" {
			return s
		}
		return n.state()
	case 'c':
		return strconv.FormatInt(n.CPUs, 10)
	case 'm':
		return strconv.FormatInt(n.MemoryMiB, 10)
	case 'G':
		if n.GPUs == 0 {
			return "(null)"
		}
		return "gpu:" + n.GPUType + ":" + strconv.Itoa(n.GPUs)
	}
	return strings.Join(n.Features, ",")
}
